"""The bars that learned embeddings of tables are held to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from attnknn.research.evaluation.intervals import bootstrap_means
from attnknn.research.evaluation.table import Table
from experiments.bars import Bar, at_least, at_most

OURS = "attnknn, learned encoder"
BOOSTING = "HistGradientBoosting"
OTHERS = ("uniform", "distance", "logistic", "MLP, same encoder")


def table_bars(tables: dict[str, Table]) -> Iterator[Bar]:
    """Every bar of the claim `tables` whose data were measured."""
    if "adult" in tables:
        yield at_least(tables["adult"], "adult, learned encoder", "accuracy", 0.870, OURS)
        yield at_most(tables["adult"], "adult, learned encoder", "nll", 0.281, OURS)
    if "letter" in tables:
        yield at_least(tables["letter"], "letter, learned encoder", "accuracy", 0.975, OURS)
    if tables:
        yield from ranks(tables)
    for name, table in tables.items():
        gap = table.difference("nll", OURS, BOOSTING)
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
    for other in OTHERS:
        what = f"{len(tables)} tables: mean rank in log-loss better than {other}"
        yield Bar(what, f"{means[OURS]:.2f} against {means[other]:.2f}", means[OURS] < means[other])
    gap, low, high = means[OURS] - means[BOOSTING], *_rank_range(tables, methods)
    what = f"{len(tables)} tables: mean rank in log-loss not behind {BOOSTING} beyond the interval"
    yield Bar(what, f"{gap:+.2f} [{low:+.2f}, {high:+.2f}]", low <= 0)


def _rank_range(tables: dict[str, Table], methods: list[str]) -> tuple[float, float]:
    """The 95 % range of our mean rank minus boosting's, over resampled rows and seeds."""
    ours, boosting = methods.index(OURS), methods.index(BOOSTING)
    gaps = []
    for place, table in enumerate(tables.values()):
        losses = {method: np.stack([run.row_nll for run in table.of(method)]) for method in methods}
        drawn = np.stack(list(bootstrap_means(losses, random_state=place).values()))  # (M, R)
        ranked = rankdata(drawn, axis=0)
        gaps.append(ranked[ours] - ranked[boosting])
    low, high = np.quantile(np.mean(gaps, axis=0), [0.025, 0.975])
    return float(low), float(high)
