"""Measurements as sections of a page."""

from __future__ import annotations

import numpy as np

from attnknn.research.evaluation.intervals import Interval
from attnknn.research.evaluation.measurements import MeasurementSet
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section

TITLES = {
    "index": "Indexes",
    "theory": "Theory and measurement",
    "overhead": "What an answer costs",
}


def measurement_section(found: MeasurementSet, name: str) -> Section:
    """Measurements as sentences and a table, with a figure if they are over K."""
    claim = found.first.claim
    head = ["", *found.columns]
    rows = [[what, *(found.cell(what, column) for column in found.columns)] for what in found.rows]
    grid = Grid(name, head, rows, note=found.caption())
    words = {"index": _index_words, "theory": _theory_words, "overhead": _overhead_words}[claim]
    title = f"{TITLES[claim]}: {found.first.dataset}"
    return Section(title, words(found), [grid], _drawings(found, name))


def _index_words(found: MeasurementSet) -> list[str]:
    fastest = min(found.rows, key=lambda what: found.mean(what, "ms per query"))
    built = max(found.rows, key=lambda what: found.mean(what, "build s"))
    return [
        f"{fastest} answers fastest, {found.mean(fastest, 'ms per query'):.4f} ms for each query "
        f"asked at once, with a recall of {found.mean(fastest, 'recall'):.4f}.",
        f"{built} takes longest to build, {found.mean(built, 'build s'):.2f} s.",
    ]


def _overhead_words(found: MeasurementSet) -> list[str]:
    words = []
    for what in found.rows:
        if what == "search":
            continue
        at_once, alone = (found.mean(what, f"overhead {how}") for how in ("at once", "alone"))
        words.append(
            f"Beyond the search, {what} weights and their vote take {at_once:.4f} ms for each "
            f"query asked at once and {alone:.4f} ms for one asked alone."
        )
    return words


def _theory_words(found: MeasurementSet) -> list[str]:
    least, largest = (found.mean("norm of embeddings", end) for end in ("least", "largest"))
    common = found.mean("neighbors in common, two metrics", "value")
    words = [
        f"Norms of embeddings lie between {least:.4f} and {largest:.4f}.",
        f"Inner product and Euclidean distance have {common:.2%} of their neighbors in common.",
    ]
    slope = falling_power(found)
    if slope is not None:
        words.append(
            f"The shares of a vote over K neighbors approach those over {max(places(found))} as "
            f"K to the power of {slope:.2f}."
        )
    return words


def places(found: MeasurementSet) -> list[int]:
    """The K of the measurements."""
    return [int(what.removeprefix("K = ")) for what in found.rows if what.startswith("K = ")]


def falling_power(found: MeasurementSet) -> float | None:
    """The exponent of K by which the distance to the shares of all neighbors falls.

    None where fewer than two K have a distance.
    """
    sizes = sorted(places(found))[:-1]  # the largest is zero by definition
    gaps = [found.mean(f"K = {k}", "distance to all") for k in sizes]
    kept = [(k, gap) for k, gap in zip(sizes, gaps, strict=True) if gap > 0]
    if len(kept) < 2:
        return None
    x, y = np.log(kept).T
    return float(np.polyfit(x, y, 1)[0])


def _drawings(found: MeasurementSet, name: str) -> list[Drawing]:
    sizes = places(found)
    if not sizes:
        return []
    return [
        Drawing(
            f"{name}-{column.replace(' ', '-')}",
            figures.lines(
                sizes,
                {column: [_range(found.values(f"K = {k}", column)) for k in sizes]},
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
