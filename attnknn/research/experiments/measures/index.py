"""Indexes by the time they take to build and to search, by recall and by memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from attnknn._optional import require
from attnknn.memory import FaissMemory, TorchMemory, make_entries
from attnknn.memory.base import Memory
from attnknn.research.evaluation.measurements import Row
from attnknn.research.experiments.measures.measured import Measured
from attnknn.research.experiments.measures.timing import medians
from attnknn.research.experiments.methods import Stage

QUERIES, BUILDS, REPEATS, REPEATS_ALONE = 512, 3, 5, 9

NOTES = (
    "Build in seconds, with one question since some indexes are finished by it; search in "
    "milliseconds for each of {n} queries asked at once, and of one asked alone; medians in turns "
    "after a first time that does not count; recall of the nearest; MB of embeddings and index."
)


def indexes() -> dict[str, tuple[Callable[[], Memory], str]]:
    """What makes the indexes that are compared, with their metrics; FAISS is an extra."""
    require("faiss", extra="faiss", needed_by="The claim 'index'")
    return {
        "ours, exact, Euclidean": (TorchMemory, "euclidean"),
        "ours, exact, inner product": (TorchMemory, "inner_product"),
        "FAISS flat, Euclidean": (partial(FaissMemory, "flat"), "euclidean"),
        "FAISS flat, inner product": (partial(FaissMemory, "flat"), "inner_product"),
        "FAISS HNSW": (partial(FaissMemory, "hnsw"), "euclidean"),
        "FAISS IVF": (partial(FaissMemory, "ivf"), "euclidean"),
    }


def index_numbers(stage: Stage, settings: Mapping[str, Any]) -> Measured:
    """One row for each index over the entries of a scene."""
    scene, k = stage.scene, int(settings["neighbors"])
    entries = make_entries(scene.entries, scene.codes)
    queries = scene.asked[0][:QUERIES]
    built: dict[str, Memory] = {}

    def build(name: str, make: Callable[[], Memory], metric: str) -> None:
        built[name] = make().remember(entries, metric)
        built[name].search(queries[:1], k)

    builds = {name: partial(build, name, *made) for name, made in indexes().items()}
    building = medians(builds, BUILDS)
    at_once = medians({n: partial(m.search, queries, k) for n, m in built.items()}, REPEATS)
    alone = medians({n: partial(m.search, queries[:1], k) for n, m in built.items()}, REPEATS_ALONE)
    rows: list[Row] = [
        {
            "what": name,
            "build s": building[name],
            "ms per query": 1000 * at_once[name] / len(queries),
            "one query ms": 1000 * alone[name],
            "recall": _recall(memory, queries, k),
            "MB": memory.n_bytes / 1e6,
        }
        for name, memory in built.items()
    ]
    return Measured(tuple(rows), (NOTES.format(n=len(queries)),))


def _recall(memory: Memory, queries: np.ndarray, k: int) -> float:
    return memory.recall(queries, k) if isinstance(memory, FaissMemory) else 1.0
