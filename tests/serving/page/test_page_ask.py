"""Ask: an answer with its evidence, edits as previews, and undo."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow

QUESTION = "hello, my gold card was declined in Kenya, thanks"


def ask(page, text=QUESTION):
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Ask", exact=True).click()
    evidence = page.get_by_role("region", name="Neighbors that voted")
    evidence.wait_for()
    return evidence


def share_of(text):
    """'81 %' as 0.81."""
    return float(re.search(r"[\d.]+", text)[0]) / 100


def test_an_answer_shows_evidence_whose_weights_sum_to_one(page, server):
    evidence = ask(page)
    shares = evidence.locator("tbody td.weight").all_inner_texts()
    assert len(shares) == 12  # ten neighbors, the others, the prior
    assert sum(map(share_of, shares)) == pytest.approx(1, abs=0.02)

    expected = server.post("ask", {"rows": [QUESTION]})["answers"][0]
    answer = page.get_by_role("region", name="Answer")
    assert expected["evidence"]["label"] in answer.inner_text()
    assert "Novelty p-value" in answer.inner_text()
    assert expected["evidence"]["neighbors"][0]["payload"].split("=")[1] in evidence.inner_text()


def test_a_preview_is_exact_and_an_edit_is_applied_and_undone(page, server):
    evidence = ask(page)
    first = server.post("ask", {"rows": [QUESTION]})["answers"][0]["evidence"]["neighbors"][0]
    evidence.get_by_role("button", name=f"Forget entry {first['id']}").click()
    preview = page.get_by_role("region", name="Preview, not applied yet")
    preview.get_by_text("after the edit").wait_for()
    promised = preview.locator(".effect button").all_inner_texts()[1]
    assert server.get("version")["n_entries"] == 600  # nothing was edited

    preview.get_by_label("Reason, for the log").fill("a wrong message")
    preview.get_by_role("button", name="Apply", exact=True).click()
    page.locator("aside").get_by_text("599 entries").wait_for()
    page.wait_for_function(
        "wanted => document.querySelector('[aria-label=Answer] .main button').innerText === wanted",
        arg=promised,
    )
    log = server.get("log")["edits"]
    assert (log[0]["by"], log[0]["message"]) == ("ann", "a wrong message")
    assert f"#{first['id']} " not in evidence.inner_text()

    page.get_by_role("button", name="Undo").click()
    page.locator("aside").get_by_text("600 entries").wait_for()
    page.get_by_text(f"#{first['id']} ").first.wait_for()


def test_a_neighbor_is_relabeled_through_the_list_of_classes(page, server):
    evidence = ask(page)
    neighbor = server.post("ask", {"rows": [QUESTION]})["answers"][0]["evidence"]["neighbors"][0]
    evidence.get_by_role("button", name=f"Relabel entry {neighbor['id']}").click()
    page.get_by_role("combobox", name="Class").fill("login")
    page.keyboard.press("Enter")
    page.get_by_text("to become login").wait_for()
    page.get_by_role("button", name="Apply", exact=True).click()
    page.get_by_role("button", name="Undo").wait_for()
    entry = server.post("entries/lookup", {"ids": [neighbor["id"]]})["entries"][0]
    assert entry["label"] == "login"


def test_a_row_is_added_with_a_new_class(page, server):
    ask(page, "where is your nearest branch")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Add this row with a label").click()
    page.get_by_role("combobox", name="Class").fill("branch")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Apply", exact=True).click()
    page.locator("aside").get_by_text("601 entries").wait_for()
    page.get_by_role("region", name="Answer").get_by_text("branch").first.wait_for()
    assert "branch" in [one["label"] for one in server.get("model")["classes"]]


def test_a_row_of_a_file_is_asked_and_the_preview_counts_its_changes(page, files):
    page.get_by_label("Upload a file").first.set_input_files(files / "unlabeled.csv")
    rows = page.get_by_role("region", name="Rows of a file").locator("button.line")
    rows.nth(3).click()
    page.get_by_role("region", name="Answer").wait_for()
    assert page.get_by_label("Text").input_value() in rows.nth(3).inner_text()
    page.get_by_role("button", name=re.compile("Forget entry")).first.click()
    page.get_by_text(re.compile(r"of 200")).first.wait_for()  # the sentence of the what-if


def test_limits_make_the_model_abstain_with_a_reason(page):
    page.get_by_text("Limits").click()
    page.get_by_label("Novelty level").select_option("5 %")
    ask(page, "zzz qqq xxx")
    assert "abstains: unlike anything remembered" in page.get_by_label("Answer").inner_text()


def test_a_risk_that_cannot_be_kept_is_an_error_with_a_reason(page, server):
    page.get_by_text("Limits").click()
    page.get_by_label("Largest risk").select_option("1 %")
    page.get_by_label("Text").fill(QUESTION)
    with page.expect_response("**/api/ask") as answered:
        page.get_by_role("button", name="Ask", exact=True).click()
    if answered.value.ok:
        pytest.skip("this model keeps a risk of 1 %")
    page.refusals = 1
    assert (
        page.get_by_role("alert").inner_text().startswith(answered.value.json()["error"]["message"])
    )


def test_what_is_wrong_with_a_question_is_said(page, server):
    page.get_by_role("button", name="Ask", exact=True).click()
    assert page.get_by_role("alert").inner_text() == "Type or paste a text first."


def test_each_number_of_the_answer_is_explained_by_hover_and_focus(page):
    ask(page)
    numbers = page.get_by_role("region", name="Answer").locator("button.explained")
    assert numbers.count() >= 8
    tooltip = page.get_by_role("tooltip")
    for i in range(numbers.count()):
        numbers.nth(i).hover()
        assert len(tooltip.inner_text()) > 30
        box = tooltip.bounding_box()
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= 1280
    page.mouse.move(0, 0)
    assert not tooltip.is_visible()
    numbers.first.focus()
    assert tooltip.is_visible()
    assert numbers.first.get_attribute("aria-describedby") == tooltip.get_attribute("id")
    page.keyboard.press("Escape")
    assert not tooltip.is_visible()
