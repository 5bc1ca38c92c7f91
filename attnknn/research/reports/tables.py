"""Tables of experiments, and sweeps of them, as sections of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import HIGHER_IS_BETTER, ReliabilityBins, RiskCoverage
from attnknn.metrics.calibration import bins_of_confidence
from attnknn.metrics.selective import curve_of
from attnknn.research.evaluation.intervals import Interval
from attnknn.research.evaluation.table import BY_ROW, METRICS, Table
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section
from attnknn.research.reports.sentences import (
    best,
    describe_calibration,
    describe_change,
    describe_differences,
    join_names,
)

WORDS = {
    "accuracy": "accuracy (higher is better)",
    "macro_f1": "macro F1 (higher is better)",
    "nll": "log-loss (lower is better)",
    "ece": "calibration error in 15 bins (lower is better)",
}
SWEPT = ("accuracy", "macro_f1", "nll", "ece")
OF_SEEDS = " In brackets the lowest and the highest of the seeds."
OF_ERRORS = (
    " In brackets 95 % intervals of the error without its sampling noise, which adds to what is "
    "seen: with few rows it may lie above."
)
Values = dict[str, list[Interval | None]]  # one per method and place, None where it was not run


def grid_of(table: Table, name: str, metrics: Sequence[str] = METRICS) -> Grid:
    """The scores of every method, with 95 % intervals."""
    rows = [
        [method, *(table.cell(metric, method) for metric in metrics)] for method in table.methods
    ]
    best = [
        (at, place)
        for place, metric in enumerate(metrics, start=1)
        for at in best_places([table.mean(metric, m) for m in table.methods], metric)
    ]
    return Grid(name, ["method", *metrics], rows, note=table.caption(metrics), best=best)


def best_places(values: Sequence[float | None], metric: str) -> list[int]:
    """Positions of the best values, equal to four digits; none if there is nothing to compare.

    >>> best_places([0.91, 0.95, None, 0.95], "accuracy"), best_places([0.2, 0.1], "nll")
    ([1, 3], [1])
    """
    found = {at: round(value, 4) for at, value in enumerate(values) if value is not None}
    if len(found) < 2:
        return []
    wanted = max(found.values()) if HIGHER_IS_BETTER[metric] else min(found.values())
    return [at for at, value in found.items() if value == wanted]


def table_section(table: Table, title: str, ours: str | None, name: str) -> Section:
    """A table as a section: sentences, the table, and figures.

    `ours`: the method that is compared with the others; None compares none.
    """
    sentences = [best(table, metric) for metric in BY_ROW]
    if ours is not None:
        sentences += describe_differences(table, ours, "nll")
        sentences.append(describe_calibration(table, ours))
    drawings = [
        Drawing(
            f"{name}-{metric}",
            figures.comparison(
                {method: table.interval(metric, method) for method in table.methods},
                WORDS[metric],
                ours=ours,
            ),
            f"{WORDS[metric]}, with 95 % intervals over {table.luck}.",
        )
        for metric in BY_ROW
    ]
    drawings += [
        Drawing(
            f"{name}-ece",
            figures.comparison(
                {method: table.ece_interval(method) for method in table.methods},
                "expected calibration error, ECE (lower is better)",
                ours=ours,
                observed={method: table.mean("ece", method) for method in table.methods},
            ),
            "Expected calibration error in 15 bins: hollow points as in the table; filled points "
            f"without the sampling noise of the rows, with 95 % intervals over {table.luck}.",
        ),
        Drawing(
            f"{name}-reliabilities",
            figures.reliabilities(
                {method: bins_of(table, method) for method in table.methods},
                {method: table.mean("ece", method) for method in table.methods},
                "Reliability",
            ),
            f"Accuracy by confidence of every method, over {_counted(table)}; whiskers are two "
            "standard deviations, bars the shares of the predictions.",
        ),
        Drawing(
            f"{name}-risk-coverage",
            figures.risk_and_coverage(
                {method: curve(table, method) for method in table.methods},
                "Risk and coverage",
            ),
            "The error rate among the most confident predictions, by their share of all rows.",
        ),
    ]
    if ours is not None:
        drawings.append(
            Drawing(
                f"{name}-reliability",
                figures.reliability(bins_of(table, ours), ours),
                f"Accuracy of {ours} by confidence, over {_counted(table)}; whiskers are two "
                "standard deviations.",
            )
        )
    grids = [grid_of(table, name), *differences_grid(table, name)]
    return Section(title, sentences, grids, drawings)


def differences_grid(table: Table, name: str) -> list[Grid]:
    """What differs from the set-up of the research, if the table was measured with a preset."""
    rows = table.settings.get("differs", [])
    note = f"Settings of {table.settings.get('preset')} that differ from its document."
    head = ["setting", "in the document", "here"]
    return [Grid(f"{name}-differences", head, rows, note)] if rows else []


def bins_of(table: Table, method: str, n_bins: int = 15) -> ReliabilityBins:
    """Reliability bins over all seeds.

    Seeds answer the same rows: together they know no more than one about the luck of the rows. So
    counts are means over seeds, rounded up, and the noise is that of so many rows.
    """
    confidence, is_right = _rows(table, method)
    found = bins_of_confidence(confidence, is_right, n_bins)
    n_seeds = len(table.seeds)
    counts = -(-found.counts // n_seeds)  # rounded up: a bin of a few seeds is not empty
    return replace(found, counts=counts, noise=found.noise * np.sqrt(n_seeds))


def curve(table: Table, method: str) -> RiskCoverage:
    """Risk-coverage curve over the rows of all seeds."""
    confidence, is_right = _rows(table, method)
    return curve_of(confidence, ~is_right)


def _counted(table: Table) -> str:
    rows = f"{table.n_test:,} test rows"
    return f"{rows}, the mean of {len(table.seeds)} seeds" if len(table.seeds) > 1 else rows


def _rows(table: Table, method: str) -> tuple[np.ndarray, np.ndarray]:
    runs = table.of(method)
    confidence = np.concatenate([run.row_confidence for run in runs])
    return np.clip(confidence, 0.0, 1.0), np.concatenate([run.row_correct for run in runs])


def sweep_section(
    tables: Mapping[float, Table],
    title: str,
    name: str,
    *,
    across: str,
    is_log: bool = False,
    ours: str | None = None,
) -> Section:
    """A sweep as a section: sentences, tables, and figures.

    Parameters
    ----------
    tables : by place, which is K, the rate of noise, the ratio of imbalance or the like; all of
        the same data. Seeds that some lack are left out, so that changes are paired row by row;
        methods that some lack have lines with gaps. The section names both.
    name : how the names of its files begin
    across : what a place is, in words
    is_log : whether places stand at the logarithm of what they are
    ours : the method that is compared with the others at the last place; None compares none

    >>> from attnknn.research import datasets
    >>> from attnknn.research.evaluation.protocol import Method, run
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
    ordered = [table.with_seeds(_shared_seeds(ordered)) for table in ordered]
    values: dict[str, Values] = {
        metric: {m: [_value(table, metric, m) for table in ordered] for m in _methods(ordered)}
        for metric in SWEPT
    }
    lacking = _lacking(tables, places, across)
    return Section(
        title,
        [*_sentences(ordered, places, across, ours), *lacking],
        [
            *(_grid(places, values[m], m, f"{name}-{m}", across, ordered[0]) for m in SWEPT),
            *differences_grid(ordered[0], name),
        ],
        [_drawing(places, values[m], m, f"{name}-{m}", across, is_log) for m in SWEPT],
    )


def _shared_seeds(tables: Sequence[Table]) -> list[int]:
    return [seed for seed in tables[0].seeds if all(seed in table.seeds for table in tables)]


def _methods(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(method for table in tables for method in table.methods))


def _lacking(tables: Mapping[float, Table], places: Sequence[float], across: str) -> list[str]:
    """Sentences on seeds and methods that are missing somewhere."""
    ordered = [tables[place] for place in places]
    seeds = sorted({seed for table in ordered for seed in table.seeds})
    said = []
    for seed in (seed for seed in seeds if seed not in _shared_seeds(ordered)):
        where = _places_without(ordered, places, "seeds", seed)
        said.append(f"Seed {seed} is left out: it is not measured at {across} {where}.")
    for method in _methods(ordered):
        where = _places_without(ordered, places, "methods", method)
        if where:
            said.append(f"{join_names([method])} is not measured at {across} {where}.")
    return said


def _places_without(
    tables: Sequence[Table], places: Sequence[float], field: str, name: int | str
) -> str:
    found = [
        f"{place:g}"
        for place, table in zip(places, tables, strict=True)
        if name not in getattr(table, field)
    ]
    return join_names(found) if found else ""


def _value(table: Table, metric: str, method: str) -> Interval | None:
    if method not in table.methods:
        return None
    if metric in BY_ROW:
        return table.interval(metric, method)
    if metric == "macro_f1":  # no mean over rows
        scores = [run.scores.macro_f1 for run in table.of(method)]
        return Interval(float(np.mean(scores)), min(scores), max(scores))
    return replace(table.ece_interval(method), mean=table.mean(metric, method))


def _sentences(
    tables: Sequence[Table], places: Sequence[float], across: str, ours: str | None
) -> list[str]:
    first, last = _with_shared_methods(tables[0], tables[-1])
    way = f"From {across} {places[0]:g} to {places[-1]:g}"
    said = [describe_change(first, last, metric, way) for metric in BY_ROW] if first.methods else []
    at_end = f"At {across} {places[-1]:g}"
    said += [f"{at_end}, {best(tables[-1], metric)}" for metric in BY_ROW]
    if ours in tables[-1].methods:
        said += [f"{at_end}, {words}" for words in describe_differences(tables[-1], ours, "nll")]
    return said


def _with_shared_methods(*tables: Table) -> list[Table]:
    shared = set.intersection(*(set(table.methods) for table in tables))
    return [
        replace(table, runs=tuple(run for run in table.runs if run.method in shared))
        for table in tables
    ]


def _grid(
    places: Sequence[float], values: Values, metric: str, name: str, across: str, table: Table
) -> Grid:
    rows, best = [], []
    for at, place in enumerate(places):
        found = [value[at] for value in values.values()]
        means = [None if value is None else value.mean for value in found]
        best += [(at, column + 1) for column in best_places(means, metric)]
        cells = ["–" if value is None else f"{value:.4f}" for value in found]
        rows.append([f"{place:g}", *cells])
    seeds = ", ".join(map(str, table.seeds))
    note = f"{table.dataset}: {WORDS[metric]} on {table.n_test:,} test rows, seeds {seeds}."
    brackets = {"macro_f1": OF_SEEDS, "ece": OF_ERRORS}
    note += brackets.get(metric, f" In brackets 95 % intervals over {table.luck}.")
    return Grid(name, [across, *values], rows, note=note, best=best)


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
        from_zero=not HIGHER_IS_BETTER[metric],
    )
    how = {
        "macro_f1": "in bands from the lowest to the highest seed",
        "ece": "as seen, with bands of 95 % of what it is without its sampling noise",
    }.get(metric, "in bands of 95 %")
    return Drawing(name, figure, f"{WORDS[metric]} by {across}, {how}.")


def _beside_axis(table: Table) -> dict[str, Any]:
    """The settings of an experiment without the numbers that a sweep changes."""
    settings = dict(table.settings)
    for damage, number in {"corruption": "level", "shift": "severity"}.items():
        if damage in settings:
            settings[damage] = {k: v for k, v in settings[damage].items() if k != number}
    return settings


def _check(tables: Mapping[float, Table], places: Sequence[float], is_log: bool) -> None:
    if len(places) < 2:
        raise InvalidInputError(f"A sweep needs tables of at least 2 places, got {len(places)}.")
    if is_log and places[0] <= 0:
        raise InvalidSettingError(
            f"`is_log` needs places above 0, got {places[0]:g}. Leave it out, or that place."
        )
    first = tables[places[0]]
    for place in places[1:]:
        for field in ("dataset", "checksum", "n_test", "encoder"):
            wanted, came = getattr(first, field), getattr(tables[place], field)
            if came != wanted:
                raise InvalidInputError(
                    f"Tables of a sweep must have the same `{field}`, "
                    f"got {wanted!r} at {places[0]:g} and {came!r} at {place:g}."
                )
        if _beside_axis(tables[place]) != _beside_axis(first):
            raise InvalidInputError(
                "Tables of a sweep must have the same settings but for what it goes along, "
                f"got other ones at {places[0]:g} than at {place:g}. Give each its own folder."
            )
    if not _shared_seeds([tables[place] for place in places]):
        seeds = "; ".join(f"{join_names(list(map(str, tables[p].seeds)))} at {p:g}" for p in places)
        raise InvalidInputError(
            f"Tables of a sweep must have a seed in common, got {seeds}. Measure the missing ones."
        )
