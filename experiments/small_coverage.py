"""`python -m experiments.small_coverage` measures prediction sets of tables with few rows.

Tables of 20 to 100 rows are drawn again and again from several distributions with 2 and 10 classes,
and default prediction sets for 90 % are measured on new rows of the same distribution: as they are,
by the plain order statistic without the correction for the fit, and by jackknife+. New rows of a
class that the table does not contain are left out. Runs are resumable; `page` writes the table of
docs/sets.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.conformal.coverage_spec import make_coverage_spec
from attnknn.conformal.prediction import predict_sets
from attnknn.records import Booleans, Floats, Integers
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "small-coverage"
COVERAGE = 0.9
SIZES = (20, 30, 50, 80, 100)
N_NEW = 200
METHODS = ("default", "uncorrected", "jackknife+")
Rows = tuple[NDArray[Any], Integers]
Draw = Callable[[int], Rows]


def blobs(rng: np.random.Generator, n_classes: int, spread: float) -> Draw:
    """Gaussian classes of this spread around random centers in eight dimensions."""
    centers = rng.normal(size=(n_classes, 8))

    def draw(n: int) -> Rows:
        y = rng.integers(0, n_classes, n)
        return centers[y] + spread * rng.normal(size=(n, 8)), y

    return draw


def imbalanced(rng: np.random.Generator) -> Draw:
    """Two overlapping classes, one of them with a fifth of the rows."""

    def draw(n: int) -> Rows:
        y = (rng.random(n) < 0.2).astype(np.int64)
        return 1.5 * y[:, None] + rng.normal(size=(n, 3)), y

    return draw


def digits(rng: np.random.Generator) -> Draw:
    """Images of digits, no image twice."""
    X, y = load_digits(return_X_y=True)
    order = iter(rng.permutation(len(y)))

    def draw(n: int) -> Rows:
        rows = [next(order) for _ in range(n)]
        return X[rows], y[rows]

    return draw


TABLES: dict[str, Callable[[np.random.Generator], Draw]] = {
    "2 classes": partial(blobs, n_classes=2, spread=1.5),
    "2 classes, overlapping": partial(blobs, n_classes=2, spread=3.0),
    "2 classes, imbalanced": imbalanced,
    "10 classes": partial(blobs, n_classes=10, spread=0.7),
    "10 classes, overlapping": partial(blobs, n_classes=10, spread=1.5),
    "10 digits": digits,
}


def measure(name: str, n: int, n_draws: int) -> dict[str, Any]:
    """Coverage by each method, the mean over many tables of `n` rows and its standard error."""
    found = np.array(list(_coverages(name, n, n_draws)))
    means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return {
        "table": name,
        "rows": n,
        "draws": len(found),
        "coverage": dict(zip(METHODS, means[:, 0].tolist(), strict=True)),
        "error": dict(zip(METHODS, errors[:, 0].tolist(), strict=True)),
        "size": dict(zip(METHODS, means[:, 1].tolist(), strict=True)),
    }


def _coverages(name: str, n: int, n_draws: int) -> Iterator[Floats]:
    """Coverage and size (M, 2) of the sets by each method, for one table after the other."""
    for seed in range(n_draws):
        draw = TABLES[name](np.random.default_rng([seed, n]))
        X, y = draw(n)
        new, labels = draw(N_NEW)
        clf = AttnKNNClassifier(random_state=0).fit(X, y)
        is_known = np.isin(labels, clf.classes_)
        own = np.searchsorted(clf.classes_, labels[is_known])
        sets = [_members(clf, new[is_known], method) for method in METHODS]
        yield np.array([[s[np.arange(len(own)), own].mean(), s.sum(axis=1).mean()] for s in sets])


def _members(clf: AttnKNNClassifier, X: NDArray[Any], method: str) -> Booleans:
    if method != "uncorrected":
        chosen = "leave_one_out" if method == "default" else method
        return clf.predict_set(X, COVERAGE, method=chosen).members
    model, spec = clf.model_, make_coverage_spec(COVERAGE, False, "lac", None)
    found = model.held_out_predictions()
    scores = spec.scores_of_examples(found.probabilities)
    plain = spec.thresholds(scores, found.own, model.classes, model.confusions())
    return predict_sets(model, model.queries(X), spec, plain).members


def bars(reports: list[dict[str, Any]]) -> Iterator[Bar]:
    """Whether the mean coverage of each cell is at least what was asked for, within its error."""
    for report in reports:
        found, error = (report[key]["default"] for key in ("coverage", "error"))
        what = f"{report['table']}, {report['rows']} rows: coverage of at least {COVERAGE:.0%}"
        yield Bar(what, f"{found:.2%} ± {error:.2%}", found >= COVERAGE - 2 * error)


def table(reports: list[dict[str, Any]]) -> str:
    """Coverage ± its standard error and size by table and method, a column for each size."""
    head = ["table", "sets", *(f"{n} rows" for n in SIZES)]
    cells = {(report["table"], report["rows"]): report for report in reports}
    lines = [
        [name, method, *(_cell(cells.get((name, n)), method) for n in SIZES)]
        for name in TABLES
        for method in METHODS
        if any((name, n) in cells for n in SIZES)
    ]
    return markdown(head, lines)


def _cell(report: dict[str, Any] | None, method: str) -> str:
    if report is None:
        return ""
    coverage, error, size = (report[key][method] for key in ("coverage", "error", "size"))
    return f"{100 * coverage:.1f} ± {100 * error:.1f} / {size:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.small_coverage", description=__doc__
    )
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--draws", type=int, default=150, help="tables of each kind and size")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (ROOT / "docs" / "sets.md", "small-coverage"), table, bars)


def _run(options: argparse.Namespace) -> None:
    for name in TABLES:
        for n in SIZES:
            make = partial(measure, name, n, options.draws)
            add_report(options.folder, f"{name}-{n:03}", make)


if __name__ == "__main__":
    sys.exit(main())
