"""What an edit costs while everyone's nearest others are kept: `python -m benchmarks.editing`.

Processor time, so that a busy machine is fair to all; medians of turns. Durable edits wait for the
disk and are timed apart, on the clock.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from attnknn import AttnKNNClassifier, open_for_editing
from benchmarks.search import drawn, machine

RESULTS = Path(__file__).parent / "results" / "editing.json"
WIDTH, K = 64, 64
BULK_TURNS = 3


def main() -> None:
    """Time single edits and a bulk one, print the ratios, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    options = parser.parse_args()
    n, n_more, repeats = (3_000, 200, 2) if options.quick else (100_000, 10_000, 15)
    rows = drawn(n, WIDTH)
    clf = AttnKNNClassifier(K, attention="distance", calibration=None, random_state=0)
    clf.fit(rows, np.arange(n) % 50)
    clf.model_.neighbor_graph  # noqa: B018  (built when first needed; edits then update it)
    report: dict[str, Any] = {"machine": machine(), "repeats": repeats}
    report[f"one edit of {n:,} rows"] = show(
        "One edit", single(clf, rows, repeats), "one scan, NumPy"
    )
    report[f"{n_more:,} rows added"] = show(
        f"{n_more:,} rows added", bulk(clf, rows, n_more), "bare product"
    )
    report[f"one durable edit of {n:,} rows"] = show(
        "One durable edit, wall time", durable(clf, repeats), "add, in memory"
    )
    if not options.quick:
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def single(clf: AttnKNNClassifier, rows: np.ndarray, repeats: int) -> dict[str, float]:
    """One row added, one forgotten, in turns with a scan of all rows; seconds."""
    new = drawn(repeats + 1, WIDTH, seed=2)
    taken: dict[str, list[float]] = {"one scan, NumPy": [], "add": [], "forget": []}
    for turn in range(repeats + 1):  # the first is a warm-up
        row = new[turn : turn + 1]
        taken["one scan, NumPy"].append(spent(lambda row=row: scan(rows, row)))
        taken["add"].append(spent(lambda row=row: clf.add(row, [0])))
        gone = clf.memory_.entries.ids[[turn * 7]]
        taken["forget"].append(spent(lambda gone=gone: clf.forget(gone)))
    return medians(taken)


def durable(clf: AttnKNNClassifier, repeats: int) -> dict[str, float]:
    """One row added and one forgotten in memory, then on the disk too: seconds on the clock."""
    new = drawn(2 * repeats + 2, WIDTH, seed=4)
    taken: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        clf.save(f"{folder}/model")
        with open_for_editing(f"{folder}/model") as model:
            model.classifier.model_.neighbor_graph  # noqa: B018
            for turn in range(repeats + 1):
                for name, thing in (("in memory", clf), ("on the disk", model)):
                    row = new[2 * turn : 2 * turn + 1]
                    gone = model.classifier.memory_.entries.ids[[turn * 7]]
                    for kind, edit in (
                        ("add", lambda thing=thing, row=row: thing.add(row, [0])),
                        ("forget", lambda thing=thing, gone=gone: thing.forget(gone)),
                    ):
                        started = time.perf_counter()
                        edit()
                        seconds = time.perf_counter() - started
                        taken.setdefault(f"{kind}, {name}", []).append(seconds)
    return medians(taken)


def bulk(clf: AttnKNNClassifier, rows: np.ndarray, n_more: int) -> dict[str, float]:
    """Many rows added at once, in turns with the product of all pairs; seconds."""
    labels = np.arange(n_more) % 50
    taken: dict[str, list[float]] = {"bare product": [], "add": []}
    for turn in range(BULK_TURNS + 1):  # the first is a warm-up
        new = drawn(n_more, WIDTH, seed=5 + turn)  # rows that were there before are ties
        taken["bare product"].append(spent(lambda new=new: product(new, rows)))
        taken["add"].append(spent(lambda new=new: clf.add(new, labels)))
        clf.forget(clf.memory_.entries.ids[-n_more:])
    return medians(taken)


def medians(taken: dict[str, list[float]]) -> dict[str, float]:
    """Of all turns but the first."""
    return {name: float(np.median(seconds[1:])) for name, seconds in taken.items()}


def scan(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The K nearest of one query by every distance, as NumPy computes them."""
    return np.argpartition(np.square(rows - query).sum(axis=1), K)[:K]


def product(new: np.ndarray, rows: np.ndarray) -> None:
    """All inner products, in blocks that are written over."""
    some, everyone = torch.from_numpy(new), torch.from_numpy(rows).T
    room = torch.empty(min(256, len(new)), len(rows))
    for start in range(0, len(new), 256):
        block = some[start : start + 256]
        torch.mm(block, everyone, out=room[: len(block)])


def spent(run: Callable[[], object]) -> float:
    """Processor seconds."""
    started = time.process_time()
    run()
    return time.process_time() - started


def show(title: str, seconds: dict[str, float], unit: str) -> dict[str, dict[str, float]]:
    """Print and give the lines of a table, each beside its unit."""
    print(f"\n{title}")
    lines = {}
    for name, value in seconds.items():
        ratio = value / seconds[unit]
        print(f"  {name:<20} {1000 * value:10.2f} ms  {ratio:6.2f} x", flush=True)
        lines[name] = {"median_ms": round(1000 * value, 2), "ratio": round(ratio, 3)}
    return lines


if __name__ == "__main__":
    main()
