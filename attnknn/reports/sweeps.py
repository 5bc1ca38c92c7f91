"""Tables of one experiment at several places as a section of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.evaluation.intervals import Interval
from attnknn.evaluation.table import BY_ROW, Table
from attnknn.reports import figures
from attnknn.reports.page import Drawing, Grid, Section
from attnknn.reports.sentences import best, steadiest

METRICS = ("accuracy", "nll", "ece")
WORDS = {
    "accuracy": "accuracy (higher is better)",
    "nll": "log-loss (lower is better)",
    "ece": "calibration error in 15 bins (lower is better)",
}
Values = dict[str, list[Interval]]  # for each method one at each place


def sweep_section(
    tables: Mapping[float, Table], title: str, name: str, *, across: str, is_log: bool = False
) -> Section:
    """How methods fare from place to place: sentences, figures, and tables of what they show.

    Parameters
    ----------
    tables : by place, which is K, the rate of noise, the ratio of imbalance or the like; all of
        the same data, seeds and methods, so that changes are paired row by row
    name : how the names of its files begin
    across : what a place is, in words
    is_log : whether places stand at the logarithm of what they are

    Examples
    --------
    >>> from attnknn import datasets
    >>> from attnknn.evaluation.protocol import Method, run
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> def table_at(k):
    ...     methods = [Method("uniform", lambda seed: KNeighborsClassifier(k))]
    ...     return run(datasets.load("iris"), methods, [0])
    >>> tables = {k: table_at(k) for k in (1, 100)}
    >>> section = sweep_section(tables, "Iris", "iris", across="K", is_log=True)
    >>> section.sentences[0]
    'From K 1 to 100, the accuracy of uniform falls by 0.3667 [0.2000, 0.5333].'
    """
    places = sorted(tables)
    _check(tables, places, is_log)
    ordered = [tables[place] for place in places]
    values = {metric: _values(ordered, metric) for metric in METRICS}
    return Section(
        title,
        _sentences(ordered, places, across),
        [_grid(places, values[m], m, f"{name}-{m}", across, ordered[0]) for m in METRICS],
        [_drawing(places, values[m], m, f"{name}-{m}", across, is_log) for m in METRICS],
    )


def _values(tables: Sequence[Table], metric: str) -> Values:
    return {
        method: [_value(table, metric, method) for table in tables] for method in tables[0].methods
    }


def _value(table: Table, metric: str, method: str) -> Interval:
    if metric in BY_ROW:
        return table.interval(metric, method)
    mean = table.mean(metric, method)
    return Interval(mean, mean, mean)


def _sentences(tables: Sequence[Table], places: Sequence[float], across: str) -> list[str]:
    first, last = tables[0], tables[-1]
    way = f"From {across} {places[0]:g} to {places[-1]:g}"
    said = [steadiest(first, last, metric, way) for metric in BY_ROW]
    return [*said, *(f"At {across} {places[-1]:g}, {best(last, metric)}" for metric in BY_ROW)]


def _grid(
    places: Sequence[float], values: Values, metric: str, name: str, across: str, table: Table
) -> Grid:
    rows = []
    for at, place in enumerate(places):
        found = [value[at] for value in values.values()]
        cells = [f"{v:.4f}" if metric in BY_ROW else f"{v.mean:.4f}" for v in found]
        rows.append([f"{place:g}", *cells])
    seeds = ", ".join(map(str, table.seeds))
    note = f"{table.dataset}: {WORDS[metric]} on {table.n_test:,} test rows, seeds {seeds}."
    note += " In brackets 95 % intervals over rows and seeds." if metric in BY_ROW else ""
    return Grid(name, [across, *values], rows, note=note)


def _drawing(
    places: Sequence[float], values: Values, metric: str, name: str, across: str, is_log: bool
) -> Drawing:
    figure = figures.lines(
        places,
        values,
        WORDS[metric],
        across=across,
        up=WORDS[metric].split(" (")[0],
        is_log=is_log,
        from_zero=metric != "accuracy",
    )
    how = "in bands of 95 % over rows and seeds" if metric in BY_ROW else "means over seeds"
    return Drawing(name, figure, f"{WORDS[metric]} by {across}, {how}.")


def _check(tables: Mapping[float, Table], places: Sequence[float], is_log: bool) -> None:
    if len(places) < 2:
        raise InvalidInputError(f"A sweep needs tables of at least 2 places, got {len(places)}.")
    if is_log and places[0] <= 0:
        raise InvalidSettingError(
            f"`is_log` needs places above 0, got {places[0]:g}. Leave it out, or that place."
        )
    first = tables[places[0]]
    for place in places[1:]:
        for field in ("dataset", "checksum", "n_test", "seeds", "methods"):
            wanted, came = getattr(first, field), getattr(tables[place], field)
            if came != wanted:
                raise InvalidInputError(
                    f"Tables of a sweep must have the same `{field}`, "
                    f"got {wanted!r} at {places[0]:g} and {came!r} at {place:g}."
                )
