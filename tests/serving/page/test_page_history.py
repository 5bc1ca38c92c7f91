"""History: log, snapshots, rollback, erasure, and edits of other people."""

from __future__ import annotations

import json
import shutil

import pytest

from .desk import serve

pytestmark = pytest.mark.slow


def forget(server, ids, by="ben"):
    return server.post("edits/forget", {"ids": ids, "by": by})


def history_of(page):
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.get_by_role("region", name="Log").locator("li").first.wait_for()
    return page.get_by_role("region", name="Log")


def test_the_log_names_who_changed_what(page, server):
    forget(server, [3, 4])
    page.get_by_text("The model was edited elsewhere").wait_for()
    page.get_by_role("button", name="Show the newest").click()
    page.locator("aside").get_by_text("598 entries").wait_for()
    log = history_of(page)
    newest = log.locator("li").first
    assert "ben" in newest.inner_text()
    newest.locator("button.text").click()
    newest.get_by_text("#3").wait_for()
    assert newest.get_by_text("forgotten").count() == 2


def test_a_snapshot_is_taken_and_rolled_back_to(page, server):
    history_of(page)
    page.get_by_label("Name of the snapshot").fill("before lunch")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("region", name="Snapshots").get_by_text("before lunch").wait_for()
    forget(server, [5])
    page.get_by_role("button", name="Show the newest").click()
    page.locator("aside").get_by_text("599 entries").wait_for()
    page.get_by_role("button", name="Roll back to before lunch").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    page.locator("aside").get_by_text("600 entries").wait_for()
    assert server.get("log")["edits"][0]["kind"] == "rollback"
    page.get_by_role("button", name="Undo the last edit").click()
    page.locator("aside").get_by_text("599 entries").wait_for()


def test_a_person_is_erased_with_a_receipt(files, tmp_path, open_page):
    model = shutil.copytree(files / "desk", tmp_path / "desk")
    with serve(model, "--by", "ann") as server:
        page = open_page(server.url + "#/history")
        page.get_by_label("Data subject").fill("customer-7")
        page.get_by_role("button", name="Erase…").click()
        dialog = page.get_by_role("dialog")
        confirm = dialog.get_by_role("button", name="Erase", exact=True)
        assert confirm.is_disabled()
        dialog.get_by_label("Type customer-7 to confirm").fill("customer-7")
        confirm.click()
        page.get_by_role("heading", name="Receipt").wait_for()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the receipt").click()
        receipt = json.loads(saved.value.path().read_text())
        assert receipt
        assert server.get("version")["n_entries"] == 600 - n_entries_of(files, "customer-7")
        page.context.close()


def n_entries_of(files, customer):
    lines = (files / "desk.csv").read_text().splitlines()
    return sum(line.endswith(f",{customer}") for line in lines)
