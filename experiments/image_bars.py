"""The bars that trained embeddings of images are held to."""

from __future__ import annotations

from collections.abc import Iterator

from attnknn.research.evaluation.table import Table
from experiments.bars import Bar, at_least, at_most

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
