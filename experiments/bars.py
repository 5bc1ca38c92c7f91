"""Thresholds that results must meet, each with the measured figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from attnknn.research.evaluation.intervals import bootstrap_means
from attnknn.research.evaluation.table import Table

Tables = dict[str, dict[str, Table]]  # by claim and data set
OURS = "attnknn"


@dataclass(frozen=True)
class Bar:
    """What must hold, what was measured, and whether it holds."""

    what: str
    measured: str
    is_met: bool

    def __str__(self) -> str:
        return f"{'met    ' if self.is_met else 'NOT MET'}  {self.what}: {self.measured}"


def bars(tables: Tables) -> Iterator[Bar]:
    """Every bar whose tables are there."""
    quality = tables.get("quality", {})
    for name, least, most in (("banking77", 0.928, 0.265), ("clinc150", 0.945, 0.230)):
        if name in quality:
            yield at_least(quality[name], name, "accuracy", least)
            yield at_most(quality[name], name, "nll", most)
    if "banking77" in quality:
        yield at_most(quality["banking77"], "banking77", "debiased_ece", 0.010)
        yield below(quality["banking77"], "banking77", "logistic")
    for name in ("letter", "fashion-mnist-pca64"):
        if name in quality:
            yield gains(quality[name], name, "uniform", 0.015)
    for name in ("letter", "magic", "fashion-mnist-pca64"):
        if name in quality:
            yield below(quality[name], name, "distance")
    for name in ("satimage", "churn"):
        if name in quality:
            yield not_above(quality[name], name, "distance")
    for name, table in quality.items():
        yield clean_labels(table, name)
    yield from noise_bars(tables)


def noise_bars(tables: Tables) -> Iterator[Bar]:
    """The bars under wrong labels."""
    noisy = tables.get("noise", {})
    for name, most in (("letter", 0.28), ("banking77", 0.52)):
        if name in noisy:
            table, where = noisy[name], f"{name}, 30 % noise"
            yield noise_found(table, where)
            yield at_most(table, where, "ece", 0.03)
            yield at_most(table, where, "nll", most)
            for other in ("uniform", "distance"):
                yield not_less_accurate(table, where, other)
    if "letter" in noisy:
        for other in ("uniform", "distance"):
            yield gains(noisy["letter"], "letter, 30 % noise", other, 0.008)
    for name, table in tables.get("noise-by-class", {}).items():
        where = f"{name}, 20 % asymmetric noise, by class"
        yield at_most(table, where, "ece", 0.04, "attnknn, by class")


def at_least(table: Table, where: str, metric: str, bound: float, method: str = OURS) -> Bar:
    """A mean over seeds that must reach a bound."""
    value = table.mean(metric, method)
    return Bar(f"{where}: {metric} ≥ {bound}", f"{value:.4f}", value >= bound)


def at_most(table: Table, where: str, metric: str, bound: float, method: str = OURS) -> Bar:
    """A mean over seeds that must stay under a bound."""
    value = table.mean(metric, method)
    return Bar(f"{where}: {metric} ≤ {bound}", f"{value:.4f}", value <= bound)


def below(table: Table, where: str, other: str) -> Bar:
    """Log-loss lower than another method's beyond the interval."""
    gap = table.difference("nll", OURS, other)
    return Bar(f"{where}: log-loss below {other} beyond the interval", f"{gap:+.4f}", gap.upper < 0)


def not_above(table: Table, where: str, other: str) -> Bar:
    """Log-loss not higher than another method's beyond the interval."""
    gap = table.difference("nll", OURS, other)
    what = f"{where}: log-loss not above {other} beyond the interval"
    return Bar(what, f"{gap:+.4f}", gap.lower <= 0)


def gains(table: Table, where: str, other: str, least: float) -> Bar:
    """Accuracy above another method's by so much."""
    gap = table.difference("accuracy", OURS, other)
    what = f"{where}: accuracy above {other} by ≥ {100 * least:.1f} points"
    return Bar(what, f"{gap:+.4f}", gap.mean >= least)


def not_less_accurate(table: Table, where: str, other: str) -> Bar:
    """Accuracy not below another method's beyond the interval."""
    gap = table.difference("accuracy", OURS, other)
    what = f"{where}: accuracy not below {other} beyond the interval"
    return Bar(what, f"{gap:+.4f}", gap.upper >= 0)


def noise_found(table: Table, where: str) -> Bar:
    """The estimated share of wrong labels, on every seed."""
    found = [float(run.chosen["label_noise_"]) for run in table.of(OURS)]  # NaN: not estimable
    shown = ", ".join(f"{value:.3f}" for value in found)
    are_near = all(abs(value - 0.30) <= 0.03 for value in found)
    return Bar(f"{where}: label_noise_ within 0.03 of 0.30", shown, are_near)


def clean_labels(table: Table, where: str) -> Bar:
    """No noise where there is none; then the noise model changes nothing, and costs nothing."""
    found = [float(run.chosen["label_noise_"]) for run in table.of(OURS)]
    most = max(np.nan_to_num(found))  # where noise is not estimable, none is modeled
    return Bar(f"{where}: label_noise_ ≤ 0.01 with clean labels", f"{most:.3f}", most <= 0.01)


LEARNED = "attnknn, learned encoder"
BOOSTING = "HistGradientBoosting"
TABLE_BASELINES = ("uniform", "distance", "logistic", "MLP, same encoder")


def table_bars(tables: dict[str, Table]) -> Iterator[Bar]:
    """Every bar of the claim `tables` whose data were measured."""
    if "adult" in tables:
        yield at_least(tables["adult"], "adult, learned encoder", "accuracy", 0.870, LEARNED)
        yield at_most(tables["adult"], "adult, learned encoder", "nll", 0.281, LEARNED)
    if "letter" in tables:
        yield at_least(tables["letter"], "letter, learned encoder", "accuracy", 0.975, LEARNED)
    if tables:
        yield from ranks(tables)
    for name, table in tables.items():
        gap = table.difference("nll", LEARNED, BOOSTING)
        what = f"{name}, learned encoder: log-loss not above {BOOSTING} beyond the interval"
        yield Bar(what, f"{gap:+.4f}", gap.lower <= 0)


def command_bars(report: Path) -> Iterator[Bar]:
    """The bars of the Adult table by the command line alone; see `experiments.adult_csv`."""
    if not report.exists():
        return
    found = json.loads(report.read_text())
    fit = "attnknn fit adult-train.csv --target income"
    accuracy, nll, seconds = found["accuracy"], found["nll"], found["fit_seconds"]
    yield Bar(f"{fit}: accuracy ≥ 0.87", f"{accuracy:.4f}", accuracy >= 0.87)
    yield Bar(f"{fit}: nll ≤ 0.281", f"{nll:.4f}", nll <= 0.281)
    yield Bar(f"{fit}: ≤ 180 s", f"{seconds:.0f} s", seconds <= 180)


def ranks(tables: dict[str, Table]) -> Iterator[Bar]:
    """Mean rank in log-loss over the data sets, 1 for the lowest."""
    methods = next(iter(tables.values())).methods
    losses = [[table.mean("nll", method) for method in methods] for table in tables.values()]
    means = dict(zip(methods, rankdata(losses, axis=1).mean(axis=0), strict=True))
    for other in TABLE_BASELINES:
        what = f"{len(tables)} tables: mean rank in log-loss better than {other}"
        yield Bar(
            what, f"{means[LEARNED]:.2f} against {means[other]:.2f}", means[LEARNED] < means[other]
        )
    gap, low, high = means[LEARNED] - means[BOOSTING], *_rank_range(tables, methods)
    what = f"{len(tables)} tables: mean rank in log-loss not behind {BOOSTING} beyond the interval"
    yield Bar(what, f"{gap:+.2f} [{low:+.2f}, {high:+.2f}]", low <= 0)


def _rank_range(tables: dict[str, Table], methods: list[str]) -> tuple[float, float]:
    """The 95 % range of our mean rank minus boosting's, over resampled rows and seeds."""
    ours, boosting = methods.index(LEARNED), methods.index(BOOSTING)
    gaps = []
    for place, table in enumerate(tables.values()):
        losses = {method: np.stack([run.row_nll for run in table.of(method)]) for method in methods}
        drawn = np.stack(list(bootstrap_means(losses, random_state=place).values()))  # (M, R)
        ranked = rankdata(drawn, axis=0)
        gaps.append(ranked[ours] - ranked[boosting])
    low, high = np.quantile(np.mean(gaps, axis=0), [0.025, 0.975])
    return float(low), float(high)


HEAD = "CNN head"
MINUTES = 35


def image_bars(tables: dict[str, Table]) -> Iterator[Bar]:
    """Every bar of the claim `images` whose data were measured."""
    if "cifar10-wide" in tables:
        yield from _cifar_bars(tables["cifar10-wide"])
    for name, least in (("fashion-mnist-wide", 0.935), ("mnist-narrow", 0.994)):
        if name in tables:
            yield at_least(tables[name], name, "accuracy", least)


def _cifar_bars(table: Table) -> Iterator[Bar]:
    where = "cifar10-wide"
    yield at_least(table, where, "accuracy", 0.930)
    gap = table.difference("accuracy", "attnknn", HEAD)
    yield Bar(
        f"{where}: accuracy within 0.3 points of the {HEAD}", f"{gap:+.4f}", gap.mean > -0.003
    )
    ratio = table.mean("nll", "attnknn") / table.mean("nll", HEAD)
    yield Bar(f"{where}: log-loss ≤ 1.05 × the {HEAD}'s", f"{ratio:.3f}", ratio <= 1.05)
    yield at_most(table, where, "ece", 0.010)
    yield at_least(table, f"{where}, views", "accuracy", 0.937, "attnknn, views")
    run = table.of("attnknn")[0]
    minutes = run.chosen.get("encoder_seconds", run.fit_seconds) / 60
    what = f"{where}: trained in ≤ {MINUTES} minutes"
    yield Bar(what, f"{minutes:.1f} minutes", minutes <= MINUTES)
