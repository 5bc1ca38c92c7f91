"""The bars that learned embeddings of tables are held to."""

from __future__ import annotations

from collections.abc import Iterator

from scipy.stats import rankdata

from attnknn.evaluation.table import Table
from experiments.bars import Bar, at_least, at_most

OURS = "attnknn, learned encoder"
BOOSTING = "HistGradientBoosting"
OTHERS = ("uniform", "distance", "logistic", "MLP, same encoder")


def table_bars(tables: dict[str, Table]) -> Iterator[Bar]:
    """Every bar of the claim `tables` whose data were measured."""
    if "adult" in tables:
        yield at_least(tables["adult"], "adult, learned encoder", "accuracy", 0.870, OURS)
        yield at_most(tables["adult"], "adult, learned encoder", "nll", 0.281, OURS)
        slowest = max(run.fit_seconds for run in tables["adult"].of(OURS))
        yield Bar("adult, learned encoder: fit ≤ 180 s", f"{slowest:.0f} s", slowest <= 180)
    if "letter" in tables:
        yield at_least(tables["letter"], "letter, learned encoder", "accuracy", 0.975, OURS)
    if tables:
        yield from ranks(tables)
    for name, table in tables.items():
        gap = table.difference("nll", OURS, BOOSTING)
        what = f"{name}, learned encoder: log-loss not above {BOOSTING} beyond the interval"
        yield Bar(what, f"{gap:+.4f}", gap.lower <= 0)


def ranks(tables: dict[str, Table]) -> Iterator[Bar]:
    """Mean rank in log-loss over the data sets, 1 for the lowest."""
    methods = next(iter(tables.values())).methods
    losses = [[table.mean("nll", method) for method in methods] for table in tables.values()]
    means = dict(zip(methods, rankdata(losses, axis=1).mean(axis=0), strict=True))
    for other in OTHERS:
        what = f"{len(tables)} tables: mean rank in log-loss better than {other}"
        yield Bar(what, f"{means[OURS]:.2f} against {means[other]:.2f}", means[OURS] < means[other])
