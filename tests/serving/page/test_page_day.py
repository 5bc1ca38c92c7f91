"""The tutorial in the browser, worked through once; it takes the pictures of the documentation.

`ATTNKNN_PICTURES=docs/_static/explorer` stores them there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .desk import TUTORIAL
from .test_page_ask import ask
from .test_page_map import lasso, map_of

pytestmark = pytest.mark.slow

HEIGHT = 860


@pytest.fixture
def picture(tmp_path):
    """A function that stores a picture of what the window shows."""
    folder = Path(os.environ.get("ATTNKNN_PICTURES") or tmp_path)

    def picture(page, name):
        page.mouse.move(0, 0)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(400)  # bars have grown
        close = page.get_by_role("button", name="Close the message")
        if close.count():
            close.click()
        page.screenshot(path=folder / f"{name}.png")

    picture.folder = folder
    return picture


def open_screen(page, key):
    page.locator("h1:visible").press("g")
    page.keyboard.press(key)


def test_a_day_in_the_browser(server, open_page, files, picture):
    page = open_page(server.url, height=HEIGHT)
    page.get_by_label("Upload a file").first.set_input_files(files / "unlabeled.csv")
    ask(page, "my gold card was charged for the camera")
    picture(page, "ask")
    preview(page)
    picture(page, "preview")
    page.get_by_role("button", name="Discard").click()

    open_screen(page, "f")
    page.get_by_role("region", name="Entry").wait_for()
    for key in "aaaaakaaaasaaafaaaaa":
        page.keyboard.press(key)
        page.wait_for_timeout(1200)  # a person reads; the estimate follows each decision
    page.get_by_label("Progress").get_by_text("all stored").wait_for()
    page.wait_for_load_state("networkidle")
    picture(page, "fix")

    open_screen(page, "l")
    uploaded = page.locator("select[aria-label='Uploaded files']:visible")
    uploaded.select_option(label="unlabeled.csv (200 rows)")
    page.get_by_role("region", name="Row to label").wait_for()
    for _ in range(8):
        with page.expect_response("**/api/suggest"):
            page.keyboard.press("Enter")
    picture(page, "next")

    open_screen(page, "e")
    page.get_by_label("Upload a file").last.set_input_files(files / "checked.csv")
    wrong = page.locator("[aria-label='Confusion matrix'] button[class*=wrong]").first
    wrong.click()
    page.locator("[aria-label='Rows of the cell'] button.line").first.wait_for()
    picture(page, "errors")

    chart = map_of(page)
    lasso(page, chart)
    page.evaluate("window.scrollTo(0, 0)")
    picture(page, "map")

    open_screen(page, "h")
    page.get_by_label("Name of the snapshot").fill("end of the day")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("region", name="Snapshots").get_by_text("end of the day").wait_for()
    page.get_by_role("region", name="Log").locator("button.text").first.click()
    picture(page, "history")

    phone = open_page(f"{server.url}#/fix", width=390, height=844, color_scheme="dark")
    phone.get_by_role("region", name="Entry").wait_for()
    picture(phone, "phone")

    shown = re.findall(r"_static/explorer/(\w+)\.png", TUTORIAL.read_text())
    taken = {path.stem for path in picture.folder.glob("*.png")}
    assert set(shown) == taken


def preview(page):
    """The preview of forgetting an entry that votes for another class."""
    other = page.locator("table.evidence tr:has(.tag.is-other)").first
    other.get_by_role("button", name=re.compile("^Forget")).click()
    page.get_by_text("after the edit").wait_for()
    page.get_by_text(re.compile("of 200")).first.wait_for()
    page.get_by_role("region", name="Preview, not applied yet").scroll_into_view_if_needed()


def test_the_pictures_of_the_tutorial_are_there():
    for name in re.findall(r"_static/explorer/\w+\.png", TUTORIAL.read_text()):
        assert (TUTORIAL.parent / name).is_file()
