"""Four tables in random splits of their file, with a quarter of the rows for testing.

    python -m experiments.quarter_splits          measure what has no result yet
    python -m experiments.quarter_splits bars     print every bar with the figure measured
    python -m experiments.quarter_splits page     write the table of docs/attention.md

The study `small-tables` keeps the fixed split of these tables, in which a fifth of the rows is for
testing. The bounds are of one split, that of seed 1: log-losses of other splits differ by a tenth.
Data is looked for in ATTNKNN_DATA.
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
BOUNDS = {
    "wine-red": 0.42,
    "wine-white": 0.35,
    "satimage": 0.20,
    "churn": 0.14,
}  # of the log-loss, in the split of the first seed
NOTE = """Log-loss / error in % in the first split, then means over three random splits with a \
quarter of the rows for testing (`python -m experiments.quarter_splits`, then `page`)."""


def rows_of(name: str, seed: int) -> Rows:
    """All rows of a table in the order of its file, split by the seed."""
    known = datasets.load(name)
    order = np.argsort(known.file_rows)
    X = pd.concat([pd.DataFrame(known.X_train), pd.DataFrame(known.X_test)], ignore_index=True)
    labels = np.concatenate([known.y_train, known.y_test])[order]
    return split_by_seed(X.iloc[order], labels, known.classes, seed)


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


def _values(reports: list[Report], name: str, method: str, key: str) -> list[float]:
    """What was measured in each split."""
    (found,) = [r for r in reports if r["dataset"] == name and r["method"] == method]
    return list(found[key])


def _measured(reports: list[Report]) -> list[str]:
    """The tables that all methods were measured on."""
    found = {(report["dataset"], report["method"]) for report in reports}
    return [name for name in BOUNDS if found >= {(name, method) for method in METHODS}]


def bars(reports: list[Report]) -> Iterator[Bar]:
    """The bound of each table that was measured, in the first split."""
    for name in _measured(reports):
        losses = {method: _values(reports, name, method, "log_loss") for method in METHODS}
        others = ", ".join(f"{m} {loss[0]:.4f}" for m, loss in losses.items() if m != OURS)
        means = ", ".join(f"{m} {np.mean(loss):.4f}" for m, loss in losses.items())
        shown = f"{losses[OURS][0]:.4f} ({others}); means of {len(SEEDS)} splits: {means}"
        what = f"{name}, a quarter for testing, seed {SEEDS[0]}: log-loss ≤ {BOUNDS[name]}"
        yield Bar(what, shown, losses[OURS][0] <= BOUNDS[name])


def table(reports: list[Report]) -> str:
    """Two lines for each table, a column for each method."""
    lines = []
    for name in _measured(reports):
        for words, summary in ((f"seed {SEEDS[0]}", lambda values: values[0]), ("mean", np.mean)):
            cells = []
            for method in METHODS:
                loss = summary(_values(reports, name, method, "log_loss"))
                error = summary(_values(reports, name, method, "error"))
                cells.append(f"{loss:.4f} / {100 * error:.1f}")
            lines.append([f"{name}, {words}", *cells])
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
