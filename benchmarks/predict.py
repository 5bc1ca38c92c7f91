"""How long fit and predict take, as ratios inside one run: `python -m benchmarks.predict`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier

from attnknn import AttnKNNClassifier, LearnedAttention
from attnknn.errors import MissingDataError
from attnknn.research import datasets
from attnknn.training import TrainConfig
from benchmarks.search import Work, drawn, flat, machine, on_threads, show, timed

RESULTS = Path(__file__).parent / "results" / "predict.json"
LARGE = 1_000_000


def main() -> None:
    """Time everything, print the ratios, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    parser.add_argument("--large-fit", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large_fit:
        print(json.dumps(large_fit()))
        return
    n, repeats = (2_000, 2) if options.quick else (50_000, 7)
    report: dict[str, Any] = {"machine": machine(), "repeats": repeats}
    entries = f"{n:,} entries of 256 columns, K = 16"
    at_once = f"predict_proba of 1,000 queries at once, {entries}"
    report[at_once] = show(at_once, timed(batch(n), repeats), "bare product")
    in_turn = f"predict_proba of 10 queries, one after the other, {entries}"
    report[in_turn] = show(in_turn, timed(single(n), 3 * repeats), "ours")
    if not options.quick:
        report["fit of banking77"] = banking77_fit()
        report["fit of 1,000,000 rows of 64 columns"] = in_new_process()
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def batch(n: int, width: int = 256, k: int = 16) -> Work:
    """1,000 queries at once, K = 16."""
    rows, labels, queries = drawn(n, width), labels_of(n), drawn(1000, width, seed=1)
    index = flat(rows)
    distance = AttnKNNClassifier(k, attention="distance", random_state=0).fit(rows, labels)
    distance.model_ = replace(distance.model_, n_neighbors=k)  # the fit may choose fewer
    quick = LearnedAttention(max_rows=2000, training=TrainConfig(epochs=1))
    learned = AttnKNNClassifier(k, attention=quick, random_state=0).fit(rows, labels)
    learned.predict_proba(queries[:1])  # trust and projections are computed on the first call
    brute = KNeighborsClassifier(k, algorithm="brute", n_jobs=-1).fit(rows, labels)
    return {
        "bare product": lambda: torch.from_numpy(queries) @ torch.from_numpy(rows).T,
        "distance attention": lambda: distance.predict_proba(queries),
        "learned attention": lambda: learned.predict_proba(queries),
        "bare FAISS search, 1 thread": lambda: on_threads(1, lambda: index.search(queries, k)),
        "bare FAISS search, 2 threads": lambda: on_threads(2, lambda: index.search(queries, k)),
        "scikit-learn brute": lambda: brute.predict_proba(queries),
    }


def single(n: int, width: int = 256, k: int = 16) -> Work:
    """Ten queries, one after the other."""
    rows, queries = drawn(n, width), drawn(10, width, seed=1)
    model = AttnKNNClassifier(k, attention="distance", random_state=0).fit(rows, labels_of(n))
    model.model_ = replace(model.model_, n_neighbors=k)
    index = flat(rows)
    each = [queries[i : i + 1] for i in range(len(queries))]
    return {
        "ours": lambda: [model.predict_proba(query) for query in each],
        "ours, search only": lambda: [model.memory_.search(query, k) for query in each],
        "bare FAISS, 1 thread": lambda: on_threads(1, lambda: [index.search(q, k) for q in each]),
        "bare FAISS, 2 threads": lambda: on_threads(2, lambda: [index.search(q, k) for q in each]),
    }


def banking77_fit() -> dict[str, float]:
    """Seconds to fit learned attention on banking77."""
    try:
        data = datasets.load("banking77")
    except MissingDataError as error:
        print(f"banking77 is not timed: {error}")
        return {}
    started = time.perf_counter()
    AttnKNNClassifier(attention="learned", random_state=0).fit(data.X_train, data.y_train)
    seconds = time.perf_counter() - started
    print(f"fit, learned attention, banking77: {seconds:.1f} s")
    return {"seconds": seconds}


def large_fit(n: int = LARGE, width: int = 64) -> dict[str, float]:
    """Seconds and peak memory of a fit with distance attention; to be run in a new process."""
    rows, labels = drawn(n, width), labels_of(n)
    AttnKNNClassifier(attention="distance").fit(rows[:2000], labels[:2000])  # imports, once
    before = peak_bytes()
    started = time.perf_counter()
    AttnKNNClassifier(attention="distance", memory="torch", random_state=0).fit(rows, labels)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "memory over vectors": (peak_bytes() - before) / rows.nbytes}


def in_new_process() -> dict[str, float]:
    """`large_fit` where no earlier peak hides its memory."""
    command = [sys.executable, "-m", "benchmarks.predict", "--large-fit"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    print(
        f"fit, distance attention, 1M x 64: {report['seconds']:.1f} s, "
        f"{report['memory over vectors']:.2f} x the memory of the vectors"
    )
    return report


def peak_bytes() -> int:
    """The most memory this process has held; unlike `getrusage`, not that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def labels_of(n: int, n_classes: int = 10) -> np.ndarray:
    """Labels at random: the time does not depend on them."""
    return np.random.default_rng(2).integers(0, n_classes, n)


if __name__ == "__main__":
    main()
