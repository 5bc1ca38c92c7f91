"""Four tables in random splits, with a quarter of the rows for testing.

    python -m experiments.quarter_splits          measure what has no result yet
    python -m experiments.quarter_splits bars     print every bar with the figure measured
    python -m experiments.quarter_splits page     write the table of docs/attention.md

The study `small-tables` keeps the fixed split of these tables, in which a fifth of the rows is for
testing. Data is looked for in ATTNKNN_DATA.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.metrics import nll
from attnknn.research import datasets
from attnknn.research.datasets.base import Rows, split_by_seed
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.methods import TABLE_METHODS
from experiments.pages import ROOT, Report, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "quarter-splits"
OURS = "attnknn"
METHODS = (OURS, "random forest", "CatBoost")
SEEDS = (1, 2, 3)
BOUNDS = {"wine-red": 0.42, "wine-white": 0.35, "satimage": 0.20, "churn": 0.14}  # of the log-loss
NOTE = """Log-loss / error in %, means over three random splits with a quarter of the rows for \
testing (`python -m experiments.quarter_splits`, then `page`)."""


def rows_of(name: str, seed: int) -> Rows:
    """All rows of a table, split by the seed."""
    known = datasets.load(name)
    X = pd.concat([pd.DataFrame(known.X_train), pd.DataFrame(known.X_test)], ignore_index=True)
    labels = np.concatenate([known.y_train, known.y_test])
    return split_by_seed(X, labels, known.classes, seed)


def measure(name: str, method: str) -> Report:
    """Log-loss, error and seconds of a fit in each split."""
    losses, errors, seconds = [], [], []
    for seed in SEEDS:
        rows, model = rows_of(name, seed), TABLE_METHODS[method].make(seed)
        start = time.perf_counter()
        model.fit(rows.X_train, rows.y_train)
        seconds.append(time.perf_counter() - start)
        found = model.predict_proba(rows.X_test)
        losses.append(nll(rows.y_test, found))
        errors.append(float((found.argmax(axis=1) != rows.y_test).mean()))
    return {
        "dataset": name,
        "method": method,
        "versions": environment(),
        "log_loss": [round(loss, 5) for loss in losses],
        "error": [round(error, 5) for error in errors],
        "seconds": round(float(np.mean(seconds)), 2),
    }


def _mean(reports: list[Report], name: str, method: str, key: str) -> float:
    (found,) = [r for r in reports if r["dataset"] == name and r["method"] == method]
    return float(np.mean(found[key]))


def bars(reports: list[Report]) -> Iterator[Bar]:
    """The bound of each table that was measured."""
    for name, bound in BOUNDS.items():
        if all(any(r["dataset"] == name and r["method"] == m for r in reports) for m in METHODS):
            losses = {method: _mean(reports, name, method, "log_loss") for method in METHODS}
            others = ", ".join(f"{m} {loss:.4f}" for m, loss in losses.items() if m != OURS)
            shown = f"{losses[OURS]:.4f} ({others})"
            yield Bar(f"{name}, quarters: log-loss ≤ {bound}", shown, losses[OURS] <= bound)


def table(reports: list[Report]) -> str:
    """A line for each table, a column for each method."""
    lines = [
        [
            name,
            *(
                f"{_mean(reports, name, method, 'log_loss'):.4f} / "
                f"{100 * _mean(reports, name, method, 'error'):.1f}"
                for method in METHODS
            ),
        ]
        for name in BOUNDS
    ]
    return f"{NOTE}\n\n{markdown(['table', *METHODS], lines)}"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.quarter_splits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    place = (ROOT / "docs" / "attention.md", "quarter-splits")
    return run_command(options, _run, place, table, bars)


def _run(options: argparse.Namespace) -> None:
    for name in BOUNDS:
        for method in METHODS:
            add_report(options.folder, f"{name}-{method}", partial(measure, name, method))


if __name__ == "__main__":
    sys.exit(main())
