"""Indexes by the time they take to build and to search, by recall and by memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnknn._optional import require
from attnknn.evaluation.sheet import Row
from attnknn.experiments.measures.timing import medians
from attnknn.experiments.methods import Stage
from attnknn.memory import FaissMemory, TorchMemory, make_entries
from attnknn.memory.base import Memory

QUERIES, REPEATS = 512, 5
NOTES = (
    f"Build in seconds; search in milliseconds for each of {QUERIES} queries asked at once, and of "
    "one asked alone, medians in turns; recall of the nearest; MB of embeddings and index.",
)


def memories() -> dict[str, tuple[Memory, str]]:
    """The indexes that are compared, with their metrics; FAISS is an extra."""
    require("faiss", extra="faiss", needed_by="The claim 'index'")
    return {
        "ours, exact, Euclidean": (TorchMemory(), "euclidean"),
        "ours, exact, inner product": (TorchMemory(), "inner_product"),
        "FAISS flat, Euclidean": (FaissMemory("flat"), "euclidean"),
        "FAISS flat, inner product": (FaissMemory("flat"), "inner_product"),
        "FAISS HNSW": (FaissMemory("hnsw"), "euclidean"),
        "FAISS IVF": (FaissMemory("ivf"), "euclidean"),
    }


def index_rows(stage: Stage, settings: Mapping[str, Any]) -> list[Row]:
    """One row for each index over the entries of a scene."""
    scene, k = stage.scene, int(settings["neighbors"])
    entries = make_entries(scene.entries, scene.codes)
    queries = scene.asked[0][:QUERIES]
    built: dict[str, tuple[Memory, float]] = {}
    for name, (memory, metric) in memories().items():
        started = time.perf_counter()
        memory.remember(entries, metric)
        memory.search(queries[:1], k)  # some indexes are finished by the first question
        built[name] = (memory, time.perf_counter() - started)
    at_once = medians({n: _search(m, queries, k) for n, (m, _) in built.items()}, REPEATS)
    alone = medians({n: _search(m, queries[:1], k) for n, (m, _) in built.items()}, 9)
    return [
        {
            "what": name,
            "build s": seconds,
            "ms per query": 1000 * at_once[name] / len(queries),
            "one query ms": 1000 * alone[name],
            "recall": _recall(memory, queries, k),
            "MB": memory.n_bytes / 1e6,
        }
        for name, (memory, seconds) in built.items()
    ]


def _search(memory: Memory, queries: np.ndarray, k: int) -> Any:
    return lambda: memory.search(queries, k)


def _recall(memory: Memory, queries: np.ndarray, k: int) -> float:
    return memory.recall(queries, k) if isinstance(memory, FaissMemory) else 1.0
