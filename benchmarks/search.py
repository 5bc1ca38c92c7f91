"""How long searches take, as ratios to the bare matrix product: `python -m benchmarks.search`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import sklearn
import torch
from sklearn.neighbors import NearestNeighbors

from attnknn.memory import FaissMemory, TorchMemory, make_entries

RESULTS = Path(__file__).parent / "results" / "search.json"
LARGEST_INDEX = 100_000  # beyond, lists take minutes to train
Work = dict[str, Callable[[], object]]


def main() -> None:
    """Time everything, print the ratios, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    parser.add_argument("--repeats", type=int, default=0, help="interleaved repeats of each")
    options = parser.parse_args()
    repeats = options.repeats or (2 if options.quick else 7)
    n = 2_000 if options.quick else 50_000
    growth = (1_000, 2_000) if options.quick else (10_000, 100_000, 1_000_000)
    report: dict[str, Any] = {"machine": machine(), "repeats": repeats}
    entries = f"{n:,} entries of 256 columns"

    def part(title: str, work: Work, turns: int, yardstick: str = "bare product") -> None:
        report[title] = show(title, timed(work, turns), yardstick)

    part(f"1,000 queries at once, {entries}, K = 16", batch(n), repeats)
    part(f"10 queries, one after the other, {entries}, K = 16", single(n), 3 * repeats, "torch")
    part(f"the 17 nearest others of each of {entries}", table(n), 3)
    for size in growth:
        part(f"256 queries at once, {size:,} entries of 64 columns, K = 16", grown(size), 3)
    if not options.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def batch(n: int, width: int = 256, k: int = 16) -> Work:
    """1,000 queries at once."""
    vectors, queries = drawn(n, width), drawn(1000, width, seed=1)
    memory, index = remembered(vectors), flat(vectors)
    brute = NearestNeighbors(algorithm="brute", n_jobs=-1).fit(vectors)
    buffer = torch.empty(len(queries), n)
    return {
        "bare product": lambda: torch.from_numpy(queries) @ torch.from_numpy(vectors).T,
        "bare product, no allocation": lambda: torch.mm(
            torch.from_numpy(queries), torch.from_numpy(vectors).T, out=buffer
        ),
        "torch": lambda: memory.search(queries, k),
        "faiss, 1 thread": lambda: on_threads(1, lambda: index.search(queries, k)),
        "faiss, 2 threads": lambda: on_threads(2, lambda: index.search(queries, k)),
        "scikit-learn": lambda: brute.kneighbors(queries, k),
    }


def single(n: int, width: int = 256, k: int = 16) -> Work:
    """Ten queries, one after the other."""
    vectors, queries = drawn(n, width), drawn(10, width, seed=1)
    memory, index = remembered(vectors), flat(vectors)

    def each(search: Callable[[np.ndarray], object]) -> None:
        for row in range(len(queries)):
            search(queries[row : row + 1])

    return {
        "torch": lambda: each(lambda q: memory.search(q, k)),
        "faiss, 1 thread": lambda: on_threads(1, lambda: each(lambda q: index.search(q, k))),
        "faiss, 2 threads": lambda: on_threads(2, lambda: each(lambda q: index.search(q, k))),
    }


def table(n: int, width: int = 256, k: int = 17) -> Work:
    """Every entry against all others, itself excluded."""
    memory = remembered(drawn(n, width))
    vectors, everyone = torch.from_numpy(memory.vectors.all()), np.arange(n)

    def bare() -> None:
        for start in range(0, n, 1000):
            vectors[start : start + 1000] @ vectors.T

    def ours() -> None:
        memory.search_prepared(memory.vectors.all(), k, exclude=everyone)

    return {"bare product": bare, "torch": ours}


def grown(n: int, width: int = 64, k: int = 16) -> Work:
    """256 queries; how time grows with the entries, and what an index changes."""
    vectors, queries = drawn(n, width), drawn(256, width, seed=1)
    memory, index = remembered(vectors), flat(vectors)
    work: Work = {
        "bare product": lambda: [
            torch.from_numpy(part) @ torch.from_numpy(vectors).T for part in np.split(queries, 4)
        ],
        "torch": lambda: memory.search(queries, k),
        "faiss, 1 thread": lambda: on_threads(1, lambda: index.search(queries, k)),
        "faiss, 2 threads": lambda: on_threads(2, lambda: index.search(queries, k)),
    }
    if n <= LARGEST_INDEX:
        lists = FaissMemory("ivf", n_probe=16).remember(make_entries(vectors, np.zeros(n)))
        recall = lists.recall(queries, k)
        work[f"faiss, 16 lists probed, recall {recall:.2f}"] = lambda: lists.search(queries, k)
    return work


def timed(work: Work, repeats: int) -> dict[str, list[float]]:
    """Seconds of each, all in turn, so that a busy moment hits everyone; the first is not kept."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats + 1):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}


def show(title: str, seconds: dict[str, list[float]], yardstick: str) -> dict[str, Any]:
    """Print medians, and the median ratio to the yardstick of the same turn."""
    print(f"\n{title}\n{'':32s} {'median':>10s} {'fastest':>10s} {'ratio':>7s}")
    rows = {}
    for name, values in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(values, seconds[yardstick], strict=True))
        rows[name] = {
            "median_ms": round(1e3 * statistics.median(values), 2),
            "fastest_ms": round(1e3 * min(values), 2),
            "ratio": round(ratio, 3),
        }
        row = rows[name]
        print(f"{name:32s} {row['median_ms']:8.1f}ms {row['fastest_ms']:8.1f}ms {ratio:7.2f}")
    return rows


def drawn(n: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, width), dtype=np.float32)


def remembered(vectors: np.ndarray) -> TorchMemory:
    return TorchMemory().remember(make_entries(vectors, np.zeros(len(vectors))))


def flat(vectors: np.ndarray) -> Any:
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors)
    return index


def on_threads(n_threads: int, run: Callable[[], object]) -> None:
    """FAISS and torch may share one OpenMP, so the number is put back."""
    usual = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    run()
    faiss.omp_set_num_threads(usual)


def machine() -> dict[str, Any]:
    model = [line for line in _cpuinfo() if line.startswith(("model name", "cpu family"))]
    return {
        "processor": sorted({line.split(":")[1].strip() for line in model}),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {m.__name__: m.__version__ for m in (torch, faiss, np, sklearn)},
        "torch threads": torch.get_num_threads(),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return (
        path.read_text().splitlines() if path.exists() else [f"model name:{platform.processor()}"]
    )


if __name__ == "__main__":
    main()
