"""Map: entries are selected by a lasso or by keys, then relabeled or forgotten."""

from __future__ import annotations

import re

import numpy as np
import pytest

from .test_page_ask import ask

pytestmark = pytest.mark.slow


def map_of(page):
    page.keyboard.press("g")
    page.keyboard.press("m")
    chart = page.get_by_role("application")
    chart.wait_for()
    page.wait_for_timeout(300)  # a frame is drawn
    return chart


def lasso(page, chart):
    """Draw around the left half of the map."""
    page.get_by_role("button", name="Lasso").click()
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    right, bottom = box["x"] + box["width"] / 2, box["y"] + box["height"] - 5
    left, top = box["x"] + 5, box["y"] + 5
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in [(right, top), (right, bottom), (left, bottom), (left, top)]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    heading = page.get_by_role("heading", name=re.compile("selected$"))
    return int(re.search(r"[\d,]+", heading.inner_text())[0].replace(",", ""))


def test_a_lasso_selects_entries_that_are_relabeled_after_a_preview(page, server):
    ask(page)
    chart = map_of(page)
    chart.locator("text", has_text="your question").wait_for()
    n_selected = lasso(page, chart)
    assert 0 < n_selected < 600
    page.keyboard.press("r")
    page.get_by_role("combobox", name="Class").fill("login")
    page.keyboard.press("Enter")
    page.get_by_text("This row, now").last.wait_for()
    page.get_by_role("button", name=f"Apply all {n_selected}").click()
    page.get_by_role("button", name="Undo", exact=True).last.wait_for()
    n_login = next(
        one["count"] for one in server.get("model")["classes"] if one["label"] == "login"
    )
    assert n_login >= n_selected
    edited = server.get("version")["version"]
    page.keyboard.press("u")
    page.locator("aside").get_by_text(f"edit {edited + 1}").wait_for()
    after = {one["label"]: one["count"] for one in server.get("model")["classes"]}
    assert after["login"] < n_login


def test_entries_are_selected_and_forgotten_by_keys_alone(page, server):
    chart = map_of(page)
    chart.focus()
    for key in ["+", "+", "ArrowLeft", "ArrowUp"]:
        page.keyboard.press(key)
    page.keyboard.press("v")
    heading = page.get_by_role("heading", name=re.compile("selected$"))
    n_selected = int(re.search(r"\d+", heading.inner_text())[0])
    assert 0 < n_selected < 600
    page.keyboard.press("f")
    page.get_by_role("button", name=re.compile("^Apply")).press("Enter")
    page.locator("aside").get_by_text(f"{600 - n_selected} entries").wait_for()


def test_points_are_colored_by_class_error_novelty_and_age(page):
    map_of(page)
    pictures = set()
    for color in ["Class", "Label error", "Novelty", "Age"]:
        page.get_by_label("Color by").select_option(color)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(300)
        pictures.add(page.locator("canvas").screenshot())
    assert len(pictures) == 4


def test_without_webgl_a_canvas_draws_the_same_places(page, server, open_page):
    chart = map_of(page)
    assert chart.get_attribute("data-renderer") == "webgl"
    plain = open_page(f"{server.url}?canvas#/map")
    canvas = plain.get_by_role("application")
    canvas.wait_for()
    plain.wait_for_timeout(300)
    assert canvas.get_attribute("data-renderer") == "canvas"
    assert lasso(plain, canvas) == lasso(page, chart)


def test_a_hundred_thousand_entries_are_drawn_and_selected(page, record_property):
    side = np.linspace(-1, 1, 316)
    x, y = (axis.ravel().round(4).tolist() for axis in np.meshgrid(side, side))
    classes = {"kind": "class", "values": [i % 3 for i in range(len(x))], "classes": [*"abc"]}
    layout = {"version": 0, "n": len(x), "ids": [*range(len(x))], "x": x, "y": y, "color": classes}
    page.route("**/api/map?*", lambda route: route.fulfill(json=layout))
    chart = map_of(page)
    assert lasso(page, chart) == pytest.approx(len(x) / 2, rel=0.02)
    for key in ["+", "ArrowLeft", "0"]:
        chart.press(key)
    drawn = page.evaluate(
        "() => new Promise(done => { let n = 0; const start = performance.now();"
        " const chart = document.querySelector('[role=application]');"
        " const step = now => { chart.dispatchEvent(new KeyboardEvent('keydown',"
        " {key: n % 2 ? 'ArrowLeft' : 'ArrowRight', bubbles: true, cancelable: true}));"
        " n += 1; now - start > 2000 ? done(n / 2) : requestAnimationFrame(step); };"
        " requestAnimationFrame(step); })"
    )
    record_property("frames a second", drawn)
    assert drawn > 4  # without a graphics card, on busy cores
