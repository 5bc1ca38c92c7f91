"""What an answer costs by hierarchical attention and by distance attention, as memories grow.

`python -m benchmarks.hierarchy`. Processor time of one thread, medians of interleaved repeats.
"Weight in the visited cells" is the share of the weight that one softmax over all entries would
give to the entries of the visited cells: what a search of all entries would add.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy and torch start their threads

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn import AttnKNNClassifier, HierarchicalAttention
from attnknn.attention.cells import Cells
from benchmarks.search import machine

RESULTS = Path(__file__).parent / "results" / "hierarchy.json"
SIZES, WIDTH, N_CLASSES, CLUMPS = (10_000, 100_000, 1_000_000), 64, 20, 400
QUERIES, PROBES, SINGLES = 1_000, 50, 20
MAX_ENTRIES_OF_CLASSES = 10_000  # a few classes hold most entries: nothing is saved
WAYS: dict[str, Any] = {
    "distance": "distance",
    "clusters": HierarchicalAttention(),
    "classes": HierarchicalAttention("classes"),
}


def main() -> None:
    """Time all ways at all sizes, print the table, write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    quick = parser.parse_args().quick
    report: dict[str, Any] = {"machine": machine()}
    for n in (1_000,) if quick else SIZES:
        name = f"{n:,} entries of {WIDTH} columns"
        report[name] = compared(n, 1 if quick else 3)
        print(name)
        for way, row in report[name].items():
            print(f"  {way:10}", ", ".join(f"{what} {value}" for what, value in row.items()))
        if not quick:
            RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def compared(n: int, repeats: int) -> dict[str, dict[str, str]]:
    """Seconds, log-loss and reach of all ways among `n` entries."""
    (rows, labels), (queries, truth) = drawn(n), drawn(QUERIES, seed=1)
    fitted, seconds = {}, {}
    for way, attention in WAYS.items():
        if way == "classes" and n > MAX_ENTRIES_OF_CLASSES:
            continue
        started = time.process_time()
        clf = AttnKNNClassifier(
            attention=attention, encoder="identity", memory="torch", random_state=0
        )
        fitted[way] = clf.fit(rows, labels)
        fitted[way].predict_proba(queries[:1])  # cells of the entries are computed once
        seconds[way] = time.process_time() - started
    times = {way: ([], []) for way in fitted}
    for _ in range(repeats):
        for way, clf in fitted.items():
            times[way][0].append(taken(clf, [queries]) / len(queries))
            singles = [queries[i : i + 1] for i in range(SINGLES)]
            times[way][1].append(taken(clf, singles) / len(singles))
    found = {}
    for way, clf in fitted.items():
        together, single = (1000 * float(np.median(each)) for each in times[way])
        p = clf.predict_proba(queries)[np.arange(len(truth)), truth]
        found[way] = {
            "ms per query of 1,000": f"{together:.3f}",
            "ms per single query": f"{single:.2f}",
            "cells visited": visited(clf),
            "entries compared": f"{share_compared(clf, queries):.1%}",
            "weight in the visited cells": f"{weight_reached(clf, queries[:PROBES]):.2%}",
            "log-loss": f"{-np.log(p).mean():.4f}",
            "fit, s": f"{seconds[way]:.1f}",
        }
    return found


def drawn(n: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of overlapping clumps; each class has several of them."""
    places = np.random.default_rng(7)
    centers = places.normal(size=(CLUMPS, 12)) @ places.normal(size=(12, WIDTH))
    generator = np.random.default_rng(seed)
    clump = generator.integers(CLUMPS, size=n)
    spread = generator.normal(size=(n, 12)) @ places.normal(size=(12, WIDTH))
    rows = centers[clump] + 0.6 * spread + 0.2 * generator.normal(size=(n, WIDTH))
    return rows.astype(np.float32), clump % N_CLASSES


def taken(clf: AttnKNNClassifier, batches: list[NDArray[np.float32]]) -> float:
    """Processor seconds to predict all batches."""
    started = time.process_time()
    for batch in batches:
        clf.predict_proba(batch)
    return time.process_time() - started


def cells_of(clf: AttnKNNClassifier) -> Cells | None:
    """The cells of the entries, if the attention has any."""
    attention: Any = clf.attention_
    if not isinstance(attention, HierarchicalAttention):
        return None
    return clf.model_.known(attention.centers_)


def visited(clf: AttnKNNClassifier) -> str:
    """How many of the cells are visited."""
    cells = cells_of(clf)
    attention: Any = clf.attention_
    return "" if cells is None else f"{attention.n_visited_} of {len(cells.counts):,}"


def share_compared(clf: AttnKNNClassifier, queries: NDArray[np.float32]) -> float:
    """Share of the entries that are compared with a query."""
    cells = cells_of(clf)
    if cells is None:
        return 1.0
    attention: Any = clf.attention_
    visits = cells.visit(clf.memory_.prepare(queries[:PROBES]), attention.n_visited_)
    return float(visits.sizes.sum() / PROBES / len(cells.cell))


def weight_reached(clf: AttnKNNClassifier, queries: NDArray[np.float32]) -> float:
    """Weight of the visited cells in one softmax over all entries, mean over queries."""
    cells = cells_of(clf)
    if cells is None:
        return 1.0
    attention: Any = clf.attention_
    levels, reached = replace(attention.levels_, detail=1.0, prior=-np.inf), []
    for query in clf.memory_.prepare(queries):
        log_mass = []
        for n_visited in (attention.n_visited_, len(cells.counts)):
            visits = cells.visit(query[None], n_visited)
            masses, top = levels.masses(visits, np.zeros(len(visits.positions)))
            log_mass.append(np.logaddexp.reduce(top + np.log(visits.summed(masses))))
        reached.append(np.exp(log_mass[0] - log_mass[1]))
    return float(np.mean(reached))


if __name__ == "__main__":
    main()
