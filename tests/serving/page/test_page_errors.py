"""Errors: scores of a labeled file, and the rows and entries behind them."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def evaluated(page, files):
    page.keyboard.press("g")
    page.keyboard.press("e")
    chooser = page.get_by_label("Upload a file").last
    chooser.set_input_files(files / "checked.csv")
    page.get_by_role("heading", name="Confusion matrix").wait_for()
    return page


def file_id(server):
    return server.get("files")["files"][0]["id"]


def test_scores_are_those_of_the_server_with_intervals(evaluated, server):
    found = server.post("evaluate", {"file": file_id(server)})["scores"]
    shown = evaluated.locator(".scores").inner_text()
    assert f"{100 * found['accuracy']['value']:.1f} %" in shown
    assert f"{found['log_loss']['value']:.3f}" in shown
    assert len(re.findall(r" to ", shown)) == 5


def test_a_cell_opens_its_rows_and_a_row_its_evidence(evaluated, server):
    evaluated.locator("[aria-label='Confusion matrix'] button[class*=wrong]").first.click()
    rows = evaluated.get_by_role("region", name="Rows of the cell").locator("button.line")
    rows.first.click()
    evidence = evaluated.get_by_role("region", name=re.compile("Evidence of row"))
    evidence.locator("tbody tr").nth(5).wait_for()

    evidence.get_by_role("button", name=re.compile("Forget entry")).first.click()
    evaluated.get_by_text(re.compile(r"of 200")).first.wait_for()  # what changes in the file
    evaluated.get_by_role("button", name="Apply", exact=True).click()
    evaluated.locator("aside").get_by_text("599 entries").wait_for()


def test_the_threshold_is_dragged_and_moved_by_keys(evaluated):
    slider = evaluated.get_by_role("slider", name="Threshold of confidence")
    slider.scroll_into_view_if_needed()
    everything = slider.get_attribute("aria-valuetext")
    assert everything.startswith("Answer 100.0 %")
    box = evaluated.locator("rect.area").bounding_box()
    middle = box["y"] + box["height"] / 2
    evaluated.mouse.move(box["x"] + box["width"] - 2, middle)
    evaluated.mouse.down()
    evaluated.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    evaluated.mouse.up()
    half = slider.get_attribute("aria-valuetext")
    assert 0.4 < float(re.search(r"Answer ([\d.]+)", half)[1]) / 100 < 0.6
    slider.focus()
    evaluated.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext") == everything
    evaluated.keyboard.press("ArrowLeft")
    assert slider.get_attribute("aria-valuetext") != everything


def test_a_file_without_labels_is_refused_with_what_to_do(page, files):
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.get_by_label("Upload a file").last.set_input_files(files / "unlabeled.csv")
    assert "has no labels" in page.get_by_role("alert").inner_text()
