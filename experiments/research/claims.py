"""The claims of the research documents, and how reports confirm or contradict them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.errors import InvalidSettingError
from attnknn.records import Floats
from attnknn.research.evaluation.intervals import (
    Interval,
    bootstrap_means,
    mean_interval,
    paired_interval,
)
from attnknn.research.evaluation.measurements import MeasurementSet
from attnknn.research.evaluation.table import Table
from attnknn.research.experiments.presets import PRESETS
from attnknn.research.experiments.study import Study
from attnknn.research.reports.measurements import falling_power
from experiments.research.outcomes import Part, Region, by_region, by_signs, combined_outcome
from experiments.research.results import Found, Tables, missing, read

VOTES = ("uniform", "distance", "learned", "attnknn", "k-ensemble", "adaptive K")
OTHERS = ("uniform", "distance")
OURS = ("learned", "attnknn")
HEADS = ("2 heads", "4 heads", "8 heads")
WORDS = {"accuracy": "accuracy", "nll": "log-loss", "ece": "ECE"}

# What counts as nothing: half a point of accuracy, a hundredth of log-loss and of ECE.
MARGINS = {"accuracy": 0.005, "nll": 0.01, "ece": 0.01}
ENOUGH_ROWS = 1000  # test rows that can show that a difference is as small as the margins
KEPT = Region(low=0.98)
HARDLY = Region(high=0.01)
BEHIND = Region(0.05, 0.09)
BELOW_1_MS = Region(high=1.0)
FASTER = Region(high=1.0)  # one time divided by another
NORM_OF_ONE = Region(0.999, 1.001)
BELOW_ROOT = Region(high=1.0)  # K divided by √n
AS_1_OVER_K = Region(-1.25, -0.75)  # powers of K; halfway to 1/√K it is something else


@dataclass(frozen=True)
class ClaimResult:
    """What was measured, a line each, and the outcome of each part of the claim."""

    lines: list[str]
    parts: list[Part]

    @property
    def outcome(self) -> str:
        """The outcome with the counts behind it."""
        return f"{combined_outcome(self.parts)} ({'; '.join(map(str, self.parts))})"


Evaluation = Callable[[Mapping[str, Any]], ClaimResult]


@dataclass(frozen=True)
class Claim:
    """A claim with the numbers of the documents.

    Parameters
    ----------
    study, data, preset : str, tuple of str, str or None
        The studies that it needs.
    evaluate : callable
        Takes what was measured by data set.
    """

    title: str
    statement: str
    study: str
    data: tuple[str, ...]
    evaluate: Evaluation
    preset: str | None = None

    def needs(self, asked: Sequence[Study]) -> list[Study]:
        """The studies that it needs, among those that are requested."""
        by_name = {(s.claim, s.dataset, s.preset): s for s in asked}
        names = [(self.study, name, self.preset) for name in self.data]
        lacking = [name for name in names if name not in by_name]
        if lacking:
            raise InvalidSettingError(
                f"{self.title!r} needs studies that are not requested: {lacking}. "
                "Add them to studies.toml."
            )
        return [by_name[name] for name in names]

    def found(self, asked: Sequence[Study]) -> dict[str, Found]:
        """What was measured, by data set, without studies that are not complete."""
        return {s.dataset: read(s) for s in self.needs(asked) if not missing(s)}


def _gap(table: Table, metric: str, first: str, second: str) -> Interval:
    if metric == "ece":
        return table.ece_difference(first, second)
    return table.difference(metric, first, second)


def _known(table: Table, methods: Sequence[str]) -> list[str]:
    return [method for method in methods if method in table.methods]


def _seed_range(values: Sequence[float]) -> Interval:
    """The mean over seeds, with the least and the largest."""
    return Interval(float(np.mean(values)), min(values), max(values))


def _better(metric: str, better: int) -> Evaluation:
    """Learned attention against uniform and distance votes on every data set."""

    def evaluate(found: Mapping[str, Tables]) -> ClaimResult:
        lines, parts = [], []
        for other in OTHERS:
            gaps = {n: _gap(t[None], metric, "learned", other) for n, t in found.items()}
            lines += [f"{name}: learned − {other} {gap:+.4f}" for name, gap in gaps.items()]
            parts.append(by_signs(f"against {other}", list(gaps.values()), better=better))
        return ClaimResult(lines, parts)

    return evaluate


def _views(found: Mapping[str, Tables]) -> ClaimResult:
    """Every method with views against itself without; the CNN head is shown and not counted."""
    lines = []
    gaps: dict[str, list[Interval]] = {"learned": [], "other votes": []}
    for name, tables in found.items():
        table = tables[None]
        for method in [m for m in table.methods if f"{m}, views" in table.methods]:
            ece = table.ece_difference(f"{method}, views", method)
            nll = table.difference("nll", f"{method}, views", method)
            lines.append(f"{name}, {method}: ECE {ece:+.4f}, log-loss {nll:+.4f}")
            if method in VOTES:
                gaps["learned" if method == "learned" else "other votes"].append(ece)
    return ClaimResult(lines, [by_signs(about, g, better=-1) for about, g in gaps.items()])


def _ends(tables: Tables) -> tuple[Table, Table]:
    places = sorted(place for place in tables if place is not None)
    return tables[places[0]], tables[places[-1]]


def _kept_share(first: Table, last: Table, method: str) -> Interval:
    """Accuracy in the last table divided by that in the first, paired by row and seed."""
    rows = {"first": first.by_row("accuracy", method), "last": last.by_row("accuracy", method)}
    means = bootstrap_means(rows)
    lower, upper = np.quantile(means["last"] / means["first"], [0.025, 0.975])
    return Interval(float(rows["last"].mean() / rows["first"].mean()), float(lower), float(upper))


def _keeps(found: Mapping[str, Tables]) -> ClaimResult:
    """How much accuracy is kept from the first place to the last; only votes are counted."""
    lines, parts = [], []
    for name, tables in found.items():
        first, last = _ends(tables)
        kept = {m: _kept_share(first, last, m) for m in _known(last, first.methods)}
        for method, share in kept.items():
            accuracy, loss = (
                [f"{table.interval(metric, method):.4f}" for table in (first, last)]
                for metric in ("accuracy", "nll")
            )
            lines.append(
                f"{name}, {method}: {share:.1%} kept, accuracy {accuracy[0]} to {accuracy[1]}, "
                f"log-loss {loss[0]} to {loss[1]}"
            )
        shares = [share for method, share in kept.items() if method in VOTES]
        parts.append(by_region(name, shares, KEPT))
    return ClaimResult(lines, parts)


def _changed(first: Table, last: Table, method: str) -> np.ndarray:
    return last.by_row("accuracy", method) - first.by_row("accuracy", method)


def _robust_by_attention(found: Mapping[str, Tables]) -> ClaimResult:
    """What learned attention loses in accuracy by noise, against what the others lose."""
    lines, parts = [], []
    for other in OTHERS:
        gaps = []
        for name, tables in found.items():
            first, last = _ends(tables)
            ours, theirs = (_changed(first, last, method) for method in ("learned", other))
            gaps.append(paired_interval(ours, theirs))
            lines.append(
                f"{name}, {last.corruption}: accuracy changes by {ours.mean():+.4f} with learned, "
                f"{theirs.mean():+.4f} with {other}, difference {gaps[-1]:+.4f}"
            )
        parts.append(by_signs(f"against {other}", gaps, better=+1))
    return ClaimResult(lines, parts)


def _neighbors(found: Mapping[str, Tables]) -> ClaimResult:
    """The accuracy at the best K minus that at the worst, and log-loss at both ends."""
    lines, parts = [], []
    for name, tables in found.items():
        first, last = _ends(tables)
        spreads = []
        for method in _known(first, ("uniform", "distance", "learned")):
            right = {k: table.by_row("accuracy", method) for k, table in tables.items()}
            best, worst = _best_and_worst(right)
            spreads.append(_spread(right))
            ends = [f"{table.interval('nll', method):.4f}" for table in (first, last)]
            lines.append(
                f"{name}, {method}: accuracy best at K = {best:g}, worst at K = {worst:g}, "
                f"difference {spreads[-1]:+.4f}; log-loss {ends[0]} at the smallest K, {ends[1]} "
                "at the largest"
            )
        parts.append(by_region(name, spreads, HARDLY))
    return ClaimResult(lines, parts)


def _best_and_worst(right: Mapping[Any, Floats]) -> tuple[Any, Any]:
    return max(right, key=lambda k: right[k].mean()), min(right, key=lambda k: right[k].mean())


def _spread(right: Mapping[Any, Floats]) -> Interval:
    """The accuracy at the best K minus that at the worst, without selection bias.

    Each half of the rows is evaluated at the two K that the other half chooses.
    """
    apart = np.empty_like(next(iter(right.values())))
    for half in (0, 1):
        best, worst = _best_and_worst({k: rows[:, 1 - half :: 2] for k, rows in right.items()})
        apart[:, half::2] = right[best][:, half::2] - right[worst][:, half::2]
    return mean_interval(apart)


def _k_ensemble(found: Mapping[str, Tables]) -> ClaimResult:
    """The k-ensemble improves on votes at one K by less than the margins."""
    lines, parts = [], []
    for metric, margin in MARGINS.items():
        region = Region(high=margin) if metric == "accuracy" else Region(low=-margin)
        gaps = []
        for name, tables in found.items():
            gap = _gap(tables[None], metric, "k-ensemble", "distance")
            few = _few_words(tables[None])
            lines.append(f"{name}: k-ensemble − distance, {WORDS[metric]} {gap:+.4f}{few}")
            gaps += [] if few else [gap]
        parts.append(by_region(WORDS[metric], gaps, region))
    return ClaimResult(lines, parts)


def _heads(found: Mapping[str, Tables]) -> ClaimResult:
    """Several heads differ from one by less than the margins."""
    lines, parts = [], []
    for metric in ("accuracy", "nll"):
        gaps = []
        for name, tables in found.items():
            table = tables[None]
            for heads in _known(table, HEADS):
                gap = table.difference(metric, heads, "as it is")
                few = _few_words(table)
                lines.append(f"{name}: {heads} − one, {WORDS[metric]} {gap:+.4f}{few}")
                gaps += [] if few else [gap]
        parts.append(by_region(WORDS[metric], gaps, _within(metric)))
    return ClaimResult(lines, parts)


def _few_words(table: Table) -> str:
    return "" if table.n_test >= ENOUGH_ROWS else " (too few rows to count)"


def _within(metric: str) -> Region:
    return Region(-MARGINS[metric], MARGINS[metric])


def _behind_cnn(found: Mapping[str, Tables]) -> ClaimResult:
    """The CNN head of the same training minus learned attention and the default."""
    lines, parts = [], []
    for name, tables in found.items():
        table, gaps = tables[None], []
        for views in ("", ", views"):
            for ours in _known(table, [f"{vote}{views}" for vote in OURS]):
                gaps.append(table.difference("accuracy", f"CNN head{views}", ours))
                loss = table.difference("nll", f"CNN head{views}", ours)
                lines.append(
                    f"{name}: CNN head{views} − {ours}, accuracy {gaps[-1]:+.4f}, log-loss "
                    f"{loss:+.4f}"
                )
        parts.append(by_region(name, gaps, BEHIND))
    return ClaimResult(lines, parts)


def _overhead(found: Mapping[str, MeasurementSet]) -> ClaimResult:
    """What weights and vote take beyond the search; uniform ones are shown and not counted."""
    lines, parts = [], []
    for how in ("at once", "alone"):
        costs = []
        for name, numbers in found.items():
            for what in ("uniform", "distance", "learned"):
                cost = _seed_range(numbers.values(what, f"overhead {how}"))
                costs += [] if what == "uniform" else [cost]
                lines.append(f"{name}, {what}: {cost:.4f} ms for each query asked {how}")
        parts.append(by_region(f"asked {how}", costs, BELOW_1_MS))
    return ClaimResult(lines, parts)


FASTER_PAIRS = {
    "flat is built faster": ("build s", "FAISS flat, Euclidean", "FAISS HNSW"),
    "flat is searched faster": ("ms per query", "FAISS flat, Euclidean", "FAISS HNSW"),
    "inner products are searched faster than distances": (
        "ms per query",
        "FAISS flat, inner product",
        "FAISS flat, Euclidean",
    ),
}


def _index(found: Mapping[str, MeasurementSet]) -> ClaimResult:
    """Times of one machine are compared with each other, seed by seed."""
    lines = [
        f"{name}, {what}: build {numbers.cell(what, 'build s')} s, search "
        f"{numbers.cell(what, 'ms per query')} ms a query, recall {numbers.cell(what, 'recall')}, "
        f"{numbers.cell(what, 'MB')} MB"
        for name, numbers in found.items()
        for what in numbers.rows
    ]
    parts = []
    for about, (column, first, second) in FASTER_PAIRS.items():
        ratios = [_ratio(numbers, column, first, second) for numbers in found.values()]
        parts.append(by_region(about, ratios, FASTER))
    return ClaimResult(lines, parts)


def _ratio(numbers: MeasurementSet, column: str, first: str, second: str) -> Interval:
    pairs = zip(numbers.values(first, column), numbers.values(second, column), strict=True)
    return _seed_range([ours / theirs for ours, theirs in pairs])


def _theory(found: Mapping[str, MeasurementSet]) -> ClaimResult:
    """Norms, K against √n, and how the shares of K neighbors approach those of all in sight."""
    lines = []
    norms, sizes, powers = [], [], []
    for name, numbers in found.items():
        norms.append(_norms(numbers))
        used, root = (
            numbers.values("K of distance attention", column) for column in ("value", "√n")
        )
        sizes.append(_seed_range([k / r for k, r in zip(used, root, strict=True)]))
        powers.append(_powers(numbers))
        lines += [
            f"{name}: norms from {norms[-1].lower:.4f} to {norms[-1].upper:.4f}",
            f"{name}: K in use {_seed_range(used):.0f}, √n {np.mean(root):.0f}",
            f"{name}: the distance between the shares of K neighbors and those of all in sight "
            f"falls as K to the power of {powers[-1]:.2f}",
        ]
    lines.append("The error itself is not compared: parts of it do not depend on K")
    return ClaimResult(
        lines,
        [
            by_region("norms are one", norms, NORM_OF_ONE),
            by_region("K is below √n", sizes, BELOW_ROOT),
            by_region("shares approach those of all neighbors as 1/K", powers, AS_1_OVER_K),
        ],
    )


def _powers(numbers: MeasurementSet) -> Interval:
    """The power of K on each seed; not a number, which decides nothing, where one has none."""
    found = [falling_power(MeasurementSet((one,))) for one in numbers.by_seed]
    return _seed_range([math.nan if power is None else power for power in found])


def _norms(numbers: MeasurementSet) -> Interval:
    what = "norm of embeddings"
    least, largest = (
        min(numbers.values(what, "least")),
        max(numbers.values(what, "largest")),
    )
    return Interval(numbers.mean(what, "value"), least, largest)


def _same_accuracy(found: Mapping[str, Tables]) -> ClaimResult:
    """The votes of an experiment's set-up: learned against the others, within the margin."""
    (tables,) = found.values()
    table = tables[None]
    lines = [
        f"{method}: accuracy {table.interval('accuracy', method):.4f}, log-loss "
        f"{table.interval('nll', method):.4f}, ECE {table.mean('ece', method):.4f}"
        for method in table.methods
    ]
    gaps = {other: table.difference("accuracy", "learned", other) for other in OTHERS}
    lines += [f"learned − {other}, accuracy {gap:+.4f}" for other, gap in gaps.items()]
    lines.append(f"Measured with {table.encoder}")
    parts = [by_region(f"as {other}", [gap], _within("accuracy")) for other, gap in gaps.items()]
    return ClaimResult(lines, parts)


EVALUATIONS: dict[str, Evaluation] = {
    "accuracy": _better("accuracy", +1),
    "log-loss": _better("nll", -1),
    "calibration": _better("ece", -1),
    "views": _views,
    "noise": _keeps,
    "robust-by-attention": _robust_by_attention,
    "imbalance": _keeps,
    "neighbors": _neighbors,
    "k-ensemble": _k_ensemble,
    "heads": _heads,
    "gap-to-cnn": _behind_cnn,
    "overhead": _overhead,
    "index": _index,
    "theory": _theory,
    **dict.fromkeys(PRESETS, _same_accuracy),
}
STATEMENTS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "statements.toml").read_text()
)
CLAIMS = [
    Claim(**{**stated, "data": tuple(stated["data"])}, evaluate=EVALUATIONS[name])
    for name, stated in STATEMENTS.items()
]
