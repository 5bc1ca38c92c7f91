"""The pages of `attnknn report` and `attnknn evaluate --report` in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from attnknn.research import datasets
from attnknn.research.evaluation.baselines import UniformKNN
from attnknn.research.evaluation.protocol import Method
from attnknn.research.evaluation.protocol import run as run_methods

from .samples import animals, fit_quickly, run, write

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow

WIDTHS = (1280, 400)
PAPER = 680  # pixels of A4 between the margins of the page
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser():
    reason = "needs playwright, of the extra `oracles`"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs the browser `chromium` on the path, as Debian's package brings it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """A page of experiments with many methods of long names, and one of a model's mistakes."""
    folder = tmp_path_factory.mktemp("pages")
    names = ["uniform", "attnknn", *(f"attnknn, neighbors chosen by way {i}" for i in range(9))]
    methods = [Method(name, lambda _: UniformKNN()) for name in names]
    run_methods(datasets.load("iris"), methods, [0, 1], folder=folder / "all" / "quality" / "iris")
    done = run("report", folder / "all", "-o", folder / "tables", "--title", "T" * 90)
    assert done.exit_code == 0, done.output

    train = animals()
    train["name"] = [f"animal {i:03d} of the third enclosure" for i in range(len(train))]
    asked = animals(30, seed=2)
    asked.loc[::4, "kind"] = "ox, or cow"  # some answers must be wrong
    fit_quickly(write(train, folder / "train.csv"), folder / "model")
    rows = write(asked, folder / "rows.csv")
    done = run("evaluate", folder / "model", rows, "--report", folder / "mistakes")
    assert done.exit_code == 0, done.output
    return {name: folder / name / "index.html" for name in ("tables", "mistakes")}


@pytest.fixture(params=["tables", "mistakes"])
def page(request, browser, pages):
    """An open page, and in `complaints` and `asked_for` what it said and wanted on the way."""
    page = browser.new_page()
    page.complaints, page.asked_for = [], []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.asked_for.append(request.url))
    page.path = pages[request.param]
    page.goto(page.path.as_uri(), wait_until="load")
    yield page
    page.close()


def test_a_page_opens_without_complaint_and_asks_for_nothing_else(page):
    assert page.complaints == []
    beside = [url for url in page.asked_for if not url.startswith("data:image/png")]
    assert beside == [page.path.as_uri()]


def test_titles_headings_and_figures_are_there(page):
    assert page.title() == page.locator("h1").inner_text() != ""
    headings = page.locator("h2").all_inner_texts()
    known = {"tables": ["quality/iris"], "mistakes": ["Scores", "The most confident mistakes"]}
    assert set(known[page.path.parent.name]) <= set(headings)
    widths = page.eval_on_selector_all("img", "found => found.map(image => image.naturalWidth)")
    assert len(widths) >= 3
    assert min(widths) > 0


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_runs_over_the_side(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate(OVERFLOW) <= 0
    shown = page.eval_on_selector_all("img", "found => found.map(image => image.clientWidth)")
    assert max(shown) <= width


def test_words_are_never_cut_into_slivers(page):
    page.set_viewport_size({"width": 400, "height": 900})
    narrow = "found => found.map(cell => cell.clientHeight / cell.clientWidth)"
    assert max(page.eval_on_selector_all("td", narrow)) < 3


def test_everything_is_printed(page):
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.set_viewport_size({"width": PAPER, "height": 900})
    page.emulate_media(media="print")
    over = "found => found.map(part => part.scrollWidth - part.clientWidth)"
    assert max(page.eval_on_selector_all(".wide", over)) <= 0  # paper has no scroll bar
