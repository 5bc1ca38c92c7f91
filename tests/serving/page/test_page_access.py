"""Anybody can use the page: by keyboard alone, on a phone, with a screen reader, in the dark."""

from __future__ import annotations

import re

import pytest

from .desk import ROOT
from .test_page_ask import QUESTION, ask

pytestmark = pytest.mark.slow

AXE = ROOT / "explorer" / "node_modules" / "axe-core" / "axe.min.js"
SCREENS = {
    "a": "Ask",
    "f": "Fix labels",
    "l": "Label next",
    "e": "Errors",
    "m": "Map",
    "h": "History",
}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def focused(page):
    """The name of the element that has the focus."""
    return page.evaluate(
        "() => { const it = document.activeElement;"
        " return it.getAttribute('aria-label') || it.innerText || it.tagName; }"
    )


def tab_to(page, name, most=80):
    for _ in range(most):
        page.keyboard.press("Tab")
        if re.search(name, focused(page)):
            return
    raise AssertionError(f"Tab does not reach {name}; it stands on {focused(page)}.")


def test_a_question_is_asked_edited_and_undone_by_keyboard_alone(page, server):
    tab_to(page, "^TEXTAREA$")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Control+Enter")
    page.get_by_role("region", name="Answer").wait_for()
    tab_to(page, "^Relabel entry")
    page.keyboard.press("Enter")
    page.keyboard.type("login")
    page.keyboard.press("Enter")
    page.get_by_text("to become login").wait_for()
    assert focused(page).startswith("Relabel entry")  # the dialog gives the focus back
    page.get_by_text("after the edit").wait_for()
    for _ in range(80):
        page.keyboard.press("Shift+Tab")
        if focused(page).startswith("Apply"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo", exact=True).wait_for()
    assert server.get("version")["version"] > 0
    before = server.get("version")["version"]
    page.locator("body").press("u")
    page.wait_for_function(
        f"() => document.querySelector('aside').innerText.includes('edit {before + 1}')"
    )


def test_the_help_lists_the_keys_of_the_screen(page):
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.get_by_role("region", name="Entry").wait_for()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog").inner_text()
    for does in [
        "Accept the suggested class",
        "Keep the label",
        "Undo the last decision",
        "Open Map",
    ]:
        assert does in keys
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_keys_do_nothing_while_text_is_typed(page, server):
    page.get_by_label("Text").fill("")
    page.get_by_label("Text").press_sequentially("gf u ?")
    assert page.get_by_label("Text").input_value() == "gf u ?"
    assert page.get_by_role("dialog").count() == 0
    assert page.get_by_role("heading", name="Ask", exact=True).is_visible()


def walk(page, files):
    """Fill each screen as a person would, and yield its name."""
    ask(page)
    page.get_by_role("button", name=re.compile("Forget entry")).first.click()
    page.get_by_text("after the edit").wait_for()
    yield "Ask"
    for key in "flemh":
        page.locator("h1:visible").press("g")
        page.keyboard.press(key)
        page.get_by_role("heading", name=SCREENS[key], exact=True).wait_for()
        if key == "f":
            page.get_by_label("Evidence", exact=True).last.locator("tbody tr").nth(5).wait_for()
        if key == "l":
            page.get_by_label("Upload a file").last.set_input_files(files / "unlabeled.csv")
            page.get_by_role("region", name="Row to label").wait_for()
        if key == "e":
            page.get_by_label("Upload a file").last.set_input_files(files / "checked.csv")
            page.locator("[aria-label='Confusion matrix'] button[class*=wrong]").first.click()
            page.locator("[aria-label='Rows of the cell'] button.line").first.click()
            page.get_by_role("region", name=re.compile("Evidence of row")).wait_for()
        if key == "m":
            page.get_by_role("application").wait_for()
        if key == "h":
            page.get_by_role("region", name="Log").locator("li").first.wait_for()
        yield SCREENS[key]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(scheme, server, open_page, files):
    if not AXE.exists():
        pytest.skip("needs axe-core: run `npm ci` in explorer/")
    page = open_page(server.url, color_scheme=scheme)
    found = {}
    for name in walk(page, files):
        page.evaluate(AXE.read_text())  # not a script tag, which the page's policy forbids
        violations = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        grave = [
            one for one in violations["violations"] if one["impact"] in ("serious", "critical")
        ]
        found[name] = [(one["id"], [node["html"] for node in one["nodes"][:3]]) for one in grave]
    assert found == {name: [] for name in SCREENS.values()}


@pytest.mark.parametrize("width", [390, 820])
def test_no_screen_runs_over_the_side(width, server, open_page, files):
    page = open_page(server.url, width=width, height=844)
    over = {}
    for name in walk(page, files):
        over[name] = page.evaluate(OVERFLOW)
    assert over == dict.fromkeys(SCREENS.values(), 0)


def test_the_screens_are_worked_through_on_a_phone(server, open_page):
    page = open_page(server.url, width=390, height=844, has_touch=True)
    page.get_by_label("Text").fill(QUESTION)
    page.get_by_role("button", name="Ask", exact=True).tap()
    answer = page.get_by_role("region", name="Answer")
    answer.wait_for()
    page.wait_for_timeout(200)
    assert -1 <= answer.bounding_box()["y"] < 844  # below the form, scrolled to
    page.get_by_role("button", name=re.compile("Forget entry")).first.tap()
    page.get_by_role("button", name="Apply", exact=True).tap()
    page.get_by_role("button", name="Undo", exact=True).tap()
    page.get_by_role("link", name="Fix labels").tap()
    page.get_by_role("button", name="Accept").tap()
    page.get_by_label("Progress").get_by_text("all stored").wait_for()
    assert server.get("version")["version"] >= 3


def test_a_file_stays_inside_its_card(page, files):
    page.get_by_label("Upload a file").first.set_input_files(files / "unlabeled.csv")
    card = page.get_by_role("region", name="Rows of a file")
    card.locator("button.line").first.wait_for()
    assert card.evaluate("card => card.scrollWidth - card.clientWidth") <= 0


def test_nothing_moves_while_an_answer_is_replaced(page):
    ask(page)
    before = page.get_by_role("region", name="Answer").bounding_box()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_load_state("networkidle")
    assert page.get_by_role("region", name="Answer").bounding_box() == before
