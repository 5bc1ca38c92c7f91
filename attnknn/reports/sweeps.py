"""Tables along an axis (K, a rate of noise) as a section: lines with their intervals."""

from __future__ import annotations

from collections.abc import Mapping

from attnknn.evaluation.intervals import Interval
from attnknn.evaluation.table import BY_ROW, Table
from attnknn.reports import figures
from attnknn.reports.page import Drawing, Grid, Section

WORDS = {"accuracy": "accuracy", "nll": "log-loss", "ece": "calibration error"}


def sweep_section(
    tables: Mapping[float, Table], title: str, name: str, *, across: str, is_log: bool = False
) -> Section:
    """What methods gain or lose along the axis, as sentences, tables and lines."""
    methods = next(iter(tables.values())).methods
    shared = [method for method in methods if all(method in t.methods for t in tables.values())]
    sentences = [_lost(tables, method) for method in shared]
    grids = [_grid(tables, shared, metric, name, across) for metric in WORDS]
    drawings = [_drawing(tables, shared, metric, name, across, is_log) for metric in WORDS]
    return Section(title, sentences, grids, drawings)


def _lost(tables: Mapping[float, Table], method: str) -> str:
    """What a method's accuracy and log-loss are at both ends."""
    first, last = min(tables), max(tables)
    cells = [
        f"{WORDS[metric]} goes from {tables[first].mean(metric, method):.4f} to "
        f"{tables[last].mean(metric, method):.4f}"
        for metric in BY_ROW
    ]
    return f"{method}: {' and '.join(cells)} ({first:g} to {last:g})."


def _grid(
    tables: Mapping[float, Table], methods: list[str], metric: str, name: str, across: str
) -> Grid:
    rows = [
        [f"{place:g}", *(table.cell(metric, method) for method in methods)]
        for place, table in tables.items()
    ]
    note = f"{WORDS[metric].capitalize()}. {next(iter(tables.values())).caption()}"
    return Grid(f"{name}-{metric}", [across, *methods], rows, note=note)


def _drawing(
    tables: Mapping[float, Table],
    methods: list[str],
    metric: str,
    name: str,
    across: str,
    is_log: bool,
) -> Drawing:
    values = {method: [_value(t, metric, method) for t in tables.values()] for method in methods}
    figure = figures.lines(
        list(tables),
        values,
        WORDS[metric],
        across=across,
        up=WORDS[metric],
        is_log=is_log,
        from_zero=metric == "ece",
    )
    bands = "" if metric == "ece" else ", in bands of 95 %"
    return Drawing(f"{name}-{metric}", figure, f"{WORDS[metric].capitalize()} by {across}{bands}.")


def _value(table: Table, metric: str, method: str) -> Interval:
    if metric in BY_ROW:
        return table.interval(metric, method)
    mean = table.mean(metric, method)
    return Interval(mean, mean, mean)
