"""The demo's comparison: four methods on two data sets, by the protocol of the experiments."""

from __future__ import annotations

from attnknn import AttnKNNClassifier
from attnknn.research import datasets
from attnknn.research.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.research.evaluation.protocol import Method, run
from attnknn.research.evaluation.table import Table

DATASETS = ("breast-cancer", "digits")
METRICS = {"accuracy": "accuracy", "nll": "log-loss", "debiased_ece": "ECE"}
OURS = "AttnKNN"
STRENGTHS = (0.01, 0.1, 1.0)  # three of the usual five, so that the demo is short


def methods() -> list[Method]:
    """The baselines, then ours with its default settings."""
    return [
        Method("uniform kNN", lambda seed: UniformKNN()),  # noqa: ARG005
        Method(
            "distance kNN", lambda seed: AttnKNNClassifier(attention="distance", random_state=seed)
        ),
        Method("logistic regression", lambda seed: LinearProbe(Cs=STRENGTHS, random_state=seed)),
        Method(OURS, lambda seed: AttnKNNClassifier(random_state=seed)),
    ]


def compare() -> list[Table]:
    """A table for each data set, one seed."""
    return [run(datasets.load(name), methods(), seeds=[0]) for name in DATASETS]


def cells_of(table: Table) -> list[list[str]]:
    """A head and a line per method: accuracy up, log-loss and calibration error down."""
    head = [table.dataset, "accuracy ↑", "log-loss ↓", "ECE ↓", "fit s"]
    lines = [
        [
            method,
            *(f"{table.mean(metric, method):.4f}" for metric in METRICS),
            f"{table.of(method)[0].fit_seconds:.1f}",
        ]
        for method in table.methods
    ]
    return [head, *lines]


def lines_of(table: Table) -> list[str]:
    """The same for a terminal."""
    return [
        f"  {name:<22}" + "".join(f"{cell:>12}" for cell in cells)
        for name, *cells in cells_of(table)
    ] + [f"  ({table.n_train} rows to learn from, {table.n_test} to judge by, one seed)"]
