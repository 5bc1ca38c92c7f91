"""The bars that the core is held to, each with the figure that was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    found = [run.chosen["label_noise_"] for run in table.of(OURS)]
    shown = ", ".join(f"{value:.3f}" for value in found)
    worst = max(abs(value - 0.30) for value in found)
    return Bar(f"{where}: label_noise_ within 0.03 of 0.30", shown, worst <= 0.03)


def clean_labels(table: Table, where: str) -> Bar:
    """No noise where there is none; then the noise model changes nothing, and costs nothing."""
    most = max(run.chosen["label_noise_"] for run in table.of(OURS))
    return Bar(f"{where}: label_noise_ ≤ 0.01 with clean labels", f"{most:.3f}", most <= 0.01)
