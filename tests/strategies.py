"""Small data sets, neighbors and shares: by hand, and as Hypothesis draws them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnknn import (
    AdaptiveAttention,
    AttnKNNClassifier,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    PowerDistanceAttention,
    UniformAttention,
)
from attnknn.attention import NeighborBatch
from attnknn.memory import NumpyMemory, make_entries
from attnknn.training import TrainConfig

ATTENTIONS = {  # quick ones of every kind
    "uniform": UniformAttention(),
    "distance": DistanceAttention(),
    "power": PowerDistanceAttention(),
    "learned": LearnedAttention(training=TrainConfig(epochs=1, batch_size=64)),
    "k-ensemble": KEnsembleAttention(),
    "adaptive": AdaptiveAttention(),
}


def blobs(
    n: int = 120, n_features: int = 4, n_classes: int = 3, *, spread: float = 0.7, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows around one corner per class, a little mixed; classes take turns."""
    generator = np.random.default_rng(seed)
    corners = np.random.default_rng(99).normal(size=(n_classes, n_features))
    y = np.arange(n) % n_classes
    return corners[y] + spread * generator.normal(size=(n, n_features)), y


@dataclass(frozen=True)
class Table:
    """Rows, their labels, and rows to ask about."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    queries: NDArray[np.float64]
    sample_weight: NDArray[np.float64]


@st.composite
def tables(draw: Any, *, least_rows: int = 2, most_rows: int = 24, ties: bool = True) -> Table:
    """Few rows in few places, so that ties, duplicates and rare classes are common."""
    n = draw(st.integers(least_rows, most_rows))
    width = draw(st.integers(1, 3))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    n_classes = draw(st.integers(1, 4))
    is_tied = ties and draw(st.booleans())

    def rows(count: int) -> NDArray[np.float64]:
        if is_tied:
            return generator.integers(-2, 3, size=(count, width)).astype(float)
        return generator.normal(size=(count, width))

    sample_weight = generator.uniform(0.5, 3.0, n) if draw(st.booleans()) else np.ones(n)
    return Table(rows(n), generator.integers(0, n_classes, n), rows(5), sample_weight)


def swap(clf: AttnKNNClassifier, **changes: Any) -> AttnKNNClassifier:
    """The classifier with other parts in its fitted model, and without caches."""
    clf.model_ = replace(clf.model_, **changes)
    return clf


def batch(
    n_entries: int = 40,
    n_queries: int = 7,
    k: int = 6,
    *,
    width: int = 3,
    n_classes: int = 3,
    seed: int = 0,
    metric: str = "euclidean",
    leaves_out: bool = False,
) -> NeighborBatch:
    """What attention would see; with `leaves_out` the queries are entries, and some places empty.

    Then the entries are in few groups and some queries have fewer others than `k`.
    """
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(n_entries, width))
    labels = generator.integers(0, n_classes, n_entries)
    groups = np.minimum(np.arange(n_entries), n_entries // 2) if leaves_out else None
    sample_weight = generator.uniform(0.5, 2.0, n_entries)
    entries = make_entries(vectors, labels, groups=groups, sample_weight=sample_weight)
    memory = NumpyMemory().remember(entries, metric)
    if leaves_out:
        rows = np.arange(n_entries - n_queries, n_entries)
        queries = memory.vectors[rows]
        found = memory.search_prepared(queries, k, exclude=rows)
    else:
        queries = memory.prepare(generator.normal(size=(n_queries, width)))
        found = memory.search_prepared(queries, k)
    trust = generator.uniform(size=found.positions.shape)
    return NeighborBatch.of(queries, found, memory, trust)
