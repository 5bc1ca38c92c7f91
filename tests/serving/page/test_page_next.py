"""Label next: rows by expected gain, labeled by key."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def session(page, files):
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_label("Upload a file").last.set_input_files(files / "unlabeled.csv")
    page.get_by_role("region", name="Row to label").wait_for()
    return page


def row_of(page):
    return page.get_by_role("region", name="Row to label").get_by_role("heading").inner_text()


def test_rows_are_labeled_by_key_and_the_model_knows_at_once(session, server):
    first = row_of(session)
    session.keyboard.press("3")  # of seven classes, which keep their keys
    session.wait_for_function(
        "first => document.querySelector('[aria-label=\"Row to label\"] h2').innerText !== first",
        arg=first,
    )
    for key in ["Enter", "1", "s", "2"]:
        session.keyboard.press(key)
    progress = session.get_by_label("Progress").last
    progress.get_by_text("all stored").wait_for()
    assert session.get_by_test_id("n-labeled").inner_text() == "4"
    assert server.get("version")["n_entries"] == 604
    third = server.get("model")["classes"][2]["label"]
    added = server.get("entries?offset=600&limit=10")["entries"]
    assert added[0]["label"] == third
    progress.get_by_role("img", name="Expected accuracy by labels given").wait_for()

    session.keyboard.press("u")
    session.locator("aside").get_by_text("603 entries").wait_for()
    assert session.get_by_test_id("n-labeled").inner_text() == "3"


def test_a_new_class_is_given_by_name(session, server):
    session.keyboard.press("o")
    session.get_by_role("combobox", name="Class").fill("praise")
    session.keyboard.press("Enter")
    session.locator("aside").get_by_text("601 entries").wait_for()
    assert "praise" in [one["label"] for one in server.get("model")["classes"]]


def test_the_order_of_rows_can_be_chosen(session):
    with session.expect_response("**/api/suggest") as answered:
        session.get_by_label("Which rows first").select_option("Novelty")
    assert answered.value.ok
    wanted = answered.value.json()["suggestions"][0]["row"]
    session.get_by_role("heading", name=f"Row {wanted}", exact=True).wait_for()
