"""Fix labels: a queue of decisions by key, each stored at once."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

KEYS = "aaafaaskaa" * 3  # accept, forget, skip and keep: 30 decisions


@pytest.fixture
def queue(page):
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.get_by_role("region", name="Entry").wait_for()
    return page


def expected_wrong(page):
    return float(page.get_by_label("Progress").locator(".figure-number").first.inner_text())


def test_thirty_decisions_by_key_are_thirty_stored_decisions(queue, server):
    listed = server.get("audit?limit=40")["entries"]
    start = server.get("version")["version"]
    before = expected_wrong(queue)
    for key in KEYS:
        queue.keyboard.press(key)
    n_edits = sum(key in "akf" for key in KEYS)
    progress = queue.get_by_label("Progress")
    progress.get_by_text("all stored").wait_for()
    assert progress.get_by_test_id("n-decided").inner_text() == str(n_edits)

    log = [line for line in server.get("log?limit=100")["edits"] if line["edit"] > start]
    assert [(line["kind"], line["by"]) for line in log] == [("edit", "ann")] * n_edits
    assert server.get("audit?limit=1")["n_kept"] == KEYS.count("k")
    n_forgotten = KEYS.count("f")
    assert server.get("version")["n_entries"] == 600 - n_forgotten
    first = server.post("entries/lookup", {"ids": [listed[0]["id"]]})["entries"][0]
    assert first["label"] == listed[0]["suggested"]

    queue.wait_for_function(
        "before => parseFloat(document.querySelector('[aria-label=Progress] .figure-number')"
        ".innerText) < before - 10",
        arg=before,
    )


def test_undo_takes_decisions_back_one_by_one(queue, server):
    listed = server.get("audit?limit=3")["entries"]
    queue.keyboard.press("a")
    queue.keyboard.press("f")
    queue.get_by_label("Progress").get_by_text("all stored").wait_for()
    queue.keyboard.press("u")
    queue.locator("aside").get_by_text("600 entries").wait_for()
    queue.keyboard.press("u")
    queue.get_by_text("Undone: Relabeled").first.wait_for()
    entries = server.post("entries/lookup", {"ids": [one["id"] for one in listed]})["entries"]
    assert sorted(one["label"] for one in entries) == sorted(one["label"] for one in listed)


def test_another_class_is_chosen_by_typing(queue, server):
    first = server.get("audit?limit=1")["entries"][0]
    wanted = next(
        one["label"]
        for one in server.get("model")["classes"]
        if one["label"] not in (first["label"], first["suggested"])
    )
    queue.keyboard.press("o")
    queue.get_by_role("combobox", name="Class").fill(wanted)
    queue.keyboard.press("Enter")
    queue.get_by_label("Progress").get_by_text("all stored").wait_for()
    entry = server.post("entries/lookup", {"ids": [first["id"]]})["entries"][0]
    assert entry["label"] == wanted


def test_the_first_suggestions_are_accepted_by_one_edit(queue, server):
    listed = server.get("audit?limit=15")["entries"]
    before = server.get("version")["version"]
    queue.get_by_label("Accept the first").fill("15")
    queue.get_by_role("button", name="Preview").click()
    queue.get_by_role("button", name="Apply all 15").click()
    queue.get_by_role("button", name="Undo", exact=True).first.wait_for()
    queue.get_by_role("region", name="Entry").wait_for()
    after = {
        one["id"]: one["label"]
        for one in server.post("entries/lookup", {"ids": [e["id"] for e in listed]})["entries"]
    }
    assert after == {one["id"]: one["suggested"] for one in listed}
    assert server.get("version")["version"] == before + 1


def test_arrows_move_through_the_queue_and_evidence_follows(queue, server):
    listed = server.get("audit?limit=3")["entries"]
    queue.keyboard.press("ArrowDown")
    queue.keyboard.press("ArrowDown")
    queue.get_by_label("Entry", exact=True).get_by_text(f"#{listed[2]['id']}").wait_for()
    evidence = server.get(f"entries/{listed[2]['id']}/evidence")["evidence"]
    shown = queue.get_by_label("Evidence", exact=True).last
    queue.get_by_text(f"#{evidence['neighbors'][0]['id']} ").first.wait_for()
    assert evidence["neighbors"][0]["payload"].split("=")[1] in shown.inner_text()


def test_the_audit_is_saved(queue):
    with queue.expect_download() as saved:
        queue.get_by_role("button", name="CSV").click()
    text = saved.value.path().read_text()
    assert "suggested" in text.splitlines()[0]
    assert len(text.splitlines()) > 100
