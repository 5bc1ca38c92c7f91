"""Sheets of numbers as sections of a report, with what they say."""

from __future__ import annotations

import numpy as np

from attnknn.research.evaluation.intervals import Interval
from attnknn.research.evaluation.sheet import Sheets
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section

TITLES = {
    "index": "Indexes",
    "theory": "Theory and measurement",
    "overhead": "What an answer costs",
}


def sheet_section(sheets: Sheets, name: str) -> Section:
    """Sentences, the numbers, and a figure where they run along K."""
    claim = sheets.first.claim
    head = ["", *sheets.columns]
    rows = [
        [what, *(sheets.cell(what, column) for column in sheets.columns)] for what in sheets.rows
    ]
    grid = Grid(name, head, rows, note=sheets.caption())
    words = {"index": _index_words, "theory": _theory_words, "overhead": _overhead_words}[claim]
    title = f"{TITLES[claim]}: {sheets.first.dataset}"
    return Section(title, words(sheets), [grid], _drawings(sheets, name))


def _index_words(sheets: Sheets) -> list[str]:
    fastest = min(sheets.rows, key=lambda what: sheets.mean(what, "ms per query"))
    built = max(sheets.rows, key=lambda what: sheets.mean(what, "build s"))
    return [
        f"{fastest} answers fastest, {sheets.mean(fastest, 'ms per query'):.4f} ms for each query "
        f"asked at once, with a recall of {sheets.mean(fastest, 'recall'):.4f}.",
        f"{built} takes longest to build, {sheets.mean(built, 'build s'):.2f} s.",
    ]


def _overhead_words(sheets: Sheets) -> list[str]:
    words = []
    for what in sheets.rows:
        if what == "search":
            continue
        at_once, alone = (sheets.mean(what, f"overhead {how}") for how in ("at once", "alone"))
        words.append(
            f"Beyond the search, {what} weights and their vote take {at_once:.4f} ms for each "
            f"query asked at once and {alone:.4f} ms for one asked alone."
        )
    return words


def _theory_words(sheets: Sheets) -> list[str]:
    least, largest = (sheets.mean("norm of embeddings", end) for end in ("least", "largest"))
    common = sheets.mean("neighbors in common, two metrics", "value")
    words = [
        f"Norms of embeddings lie between {least:.4f} and {largest:.4f}.",
        f"Inner product and Euclidean distance have {common:.2%} of their neighbors in common.",
    ]
    slope = falling_power(sheets)
    if slope is not None:
        words.append(
            f"The shares of a vote over K neighbors approach those over {max(places(sheets))} as "
            f"K to the power of {slope:.2f}."
        )
    return words


def places(sheets: Sheets) -> list[int]:
    """The K that the sheet has rows for."""
    return [int(what.removeprefix("K = ")) for what in sheets.rows if what.startswith("K = ")]


def falling_power(sheets: Sheets) -> float | None:
    """The power of K along which the distance to all neighbors' shares falls, by least squares.

    None where fewer than two K have a distance.
    """
    sizes = sorted(places(sheets))[:-1]  # the largest is zero by definition
    gaps = [sheets.mean(f"K = {k}", "distance to all") for k in sizes]
    kept = [(k, gap) for k, gap in zip(sizes, gaps, strict=True) if gap > 0]
    if len(kept) < 2:
        return None
    x, y = np.log(kept).T
    return float(np.polyfit(x, y, 1)[0])


def _drawings(sheets: Sheets, name: str) -> list[Drawing]:
    sizes = places(sheets)
    if not sizes:
        return []
    return [
        Drawing(
            f"{name}-{column.replace(' ', '-')}",
            figures.lines(
                sizes,
                {column: [_range(sheets.values(f"K = {k}", column)) for k in sizes]},
                column,
                across="number of neighbors",
                up=column,
                is_log=True,
                from_zero=True,
            ),
            f"{column.capitalize()}, the mean over seeds and its range.",
        )
        for column in ("error", "distance to all")
    ]


def _range(values: list[float]) -> Interval:
    return Interval(float(np.mean(values)), min(values), max(values))
