"""The stages in order: search, weigh, vote. Who needs an answer calls this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnknn.attention.base import Attention, NeighborBatch, Weights
from attnknn.calibration import Calibration
from attnknn.memory.base import Memory
from attnknn.records import Floats, Integers, Neighbors
from attnknn.value_head import ValueHead
from attnknn.vote import class_prior, vote


@dataclass(frozen=True)
class Answer:
    """Everything that led to the probabilities of B queries."""

    neighbors: Neighbors
    weights: Weights
    prior: Floats  # (C,), or (B, C) where the queries are entries
    shares: Floats  # (B, C)
    probabilities: Floats  # (B, C)
    is_exact: bool = True  # False where a value head gave the probabilities, and not the shares


@dataclass(frozen=True)
class Parts:
    """The fitted parts that an answer needs.

    Parameters
    ----------
    counts : (C,) how many entries each class has
    trust : (N,) per entry, or None where the attention does not ask for it
    value_head : answers in place of the vote, where there is one
    """

    memory: Memory
    attention: Attention
    calibration: Calibration
    n_neighbors: int
    counts: Integers
    trust: Floats | None = None
    value_head: ValueHead | None = None

    def answer(self, queries: NDArray[np.float32]) -> Answer:
        """Answers for prepared queries (B, D) that are not entries."""
        neighbors = self.memory.search_prepared(queries, self.n_neighbors)
        trust = None if self.trust is None else self.trust[neighbors.positions]
        batch = make_neighbor_batch(queries, neighbors, self.memory, trust)
        return self.finish(batch, class_prior(self.counts))

    def finish(self, batch: NeighborBatch, prior: Floats) -> Answer:
        """Weigh and vote, the search being done."""
        weights = self.attention.weigh(batch)
        shares = vote(batch.neighbors.labels, weights, prior)
        probabilities = self.calibration.probabilities(shares)
        head = self.value_head
        if head is not None:
            probabilities = head.probabilities(batch, weights, shares, probabilities)
        return Answer(batch.neighbors, weights, prior, shares, probabilities, head is None)


def make_neighbor_batch(
    queries: NDArray[np.float32], neighbors: Neighbors, memory: Memory, trust: Floats | None = None
) -> NeighborBatch:
    """What attention looks at when `memory` gave these `neighbors`."""
    return NeighborBatch(
        queries=queries,
        neighbors=neighbors,
        squared=squared(neighbors.distances, memory.metric_),
        sample_weight=memory.entries.effective_weight[neighbors.positions],
        entries=memory.entries.embeddings,
        trust=trust,
        is_relative=memory.metric_ == "inner_product",
    )


def squared(distances: Floats, metric: str) -> Floats:
    """Squared Euclidean distances (B, K), or what stands for them.

    Between unit vectors 2 (1 − cosine) is the squared distance. Of inner products only differences
    mean anything, so they are taken to the nearest; the prior then weighs against that one.
    """
    if metric == "euclidean":
        return np.square(distances)
    if metric == "cosine" or not distances.shape[1]:
        return 2.0 * distances
    nearest = distances[:, :1]
    return 2.0 * (distances - np.where(np.isfinite(nearest), nearest, 0.0))
