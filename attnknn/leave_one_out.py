"""Leave-one-out: each entry predicted by the others, without itself and its group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnknn.attention.base import Attention, NeighborBatch
from attnknn.calibration import CalibrationBatch
from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.neighbor_graph import NeighborGraph
from attnknn.records import Booleans, Floats, Integers, Neighbors
from attnknn.vote import class_prior

BLOCK = 1 << 22  # pairs of entries held at once
TRUST_WIDTH = 32  # nearest others that an entry's trust is computed from


@dataclass(frozen=True)
class LeaveOneOutBatch:
    """Entries as queries, each without itself and its group among its neighbors.

    Parameters
    ----------
    rows : ndarray of shape (B,)
        Positions of the entries in the memory.
    batch : NeighborBatch
        Their neighbors.
    own : ndarray of shape (B,)
        Their observed label codes.
    groups : ndarray of shape (B,)
        Their groups; -1 is no group.
    counts : ndarray of shape (C,)
        Number of entries per class, including the entries themselves.
    """

    rows: Integers
    batch: NeighborBatch
    own: Integers
    groups: Integers
    counts: Integers

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def prior(self) -> Floats:
        """Class frequencies (B, C) without the entry itself."""
        return class_prior(self.counts, self.own)

    def part(self, chosen: Any) -> LeaveOneOutBatch:
        """Some of the entries."""
        return replace(
            self,
            rows=self.rows[chosen],
            batch=self.batch.rows(chosen),
            own=self.own[chosen],
            groups=self.groups[chosen],
        )

    def nearest(self, k: int) -> LeaveOneOutBatch:
        """The same entries with their `k` nearest neighbors only."""
        return replace(self, batch=self.batch.nearest(k))

    def restricted(self, is_allowed: Booleans) -> LeaveOneOutBatch:
        """The same entries with those neighbors only that are allowed (N,)."""
        return replace(
            self, batch=self.batch.restricted(is_allowed[self.batch.neighbors.positions])
        )

    def with_trust(self, trust: Trust | None) -> LeaveOneOutBatch:
        """The same with the trust of each neighbor, computed without the entry itself."""
        if trust is None:
            return self
        values = trust.without(self.rows, self.batch.neighbors)
        return replace(self, batch=replace(self.batch, trust=values))

    def calibration_batch(self, attention: Attention) -> CalibrationBatch:
        """The scores of these entries, as calibration takes them."""
        return CalibrationBatch(
            scores=attention.scores(self.batch),
            log_sample_weight=np.log(self.batch.sample_weight),
            labels=self.batch.neighbors.labels,
            mask=self.batch.neighbors.mask,
            own=self.own,
            prior=self.prior,
        )


def leave_one_out_batch(
    memory: Memory,
    counts: Integers,
    k: int,
    rows: Integers | None = None,
    graph: NeighborGraph | None = None,
) -> LeaveOneOutBatch:
    """The entries at `rows` (default: all) with their `k` nearest others.

    Parameters
    ----------
    memory : Memory
    counts : ndarray of shape (C,)
        Number of entries per class.
    k : int
        Number of neighbors.
    rows : ndarray of shape (B,), default=None
        Positions of the entries; None is all.
    graph : NeighborGraph, default=None
        Precomputed neighbors. Without it, or if it belongs to another state of the memory, the
        memory is searched.

    Returns
    -------
    LeaveOneOutBatch

    Examples
    --------
    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> left_out = leave_one_out_batch(memory, np.array([2, 1]), k=1)
    >>> left_out.batch.neighbors.positions.ravel().tolist()
    [1, 0, 1]
    """
    if rows is None:
        rows = np.arange(len(memory), dtype=np.int64)
    queries = memory.vectors[rows]
    neighbors = None if graph is None else graph.neighbors(memory, k, rows)
    if neighbors is None:
        neighbors = memory.search_prepared(queries, max(1, min(k, len(memory) - 1)), exclude=rows)
    entries = memory.entries
    batch = NeighborBatch.of(queries, neighbors, memory)
    return LeaveOneOutBatch(rows, batch, entries.labels[rows], entries.groups[rows], counts)


@dataclass(frozen=True)
class LeaveOneOutPredictions:
    """Leave-one-out predictions for some entries.

    Parameters
    ----------
    rows : ndarray of shape (n,)
        Positions of the entries in the memory.
    own : ndarray of shape (n,)
        Their observed label codes.
    probabilities : ndarray of shape (n, C)
        Probabilities of the true label.
    distances : ndarray of shape (n, K)
        Distances to the nearest others, increasing; infinity for a missing neighbor.
    """

    rows: Integers
    own: Integers
    probabilities: Floats
    distances: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, chosen: Any) -> LeaveOneOutPredictions:
        """The predictions for some of the entries."""
        return LeaveOneOutPredictions(
            self.rows[chosen], self.own[chosen], self.probabilities[chosen], self.distances[chosen]
        )

    def nearest(self, n: int = 1) -> Floats:
        """The mean distance (n,) to the `n` nearest others."""
        return mean_of_nearest(self.distances, n)


def mean_of_nearest(distances: Floats, n: int) -> Floats:
    """The mean (B,) of the `n` smallest distances (B, K), infinite if there are fewer.

    >>> mean_of_nearest(np.array([[1.0, 2.0, 6.0], [1.0, np.inf, np.inf]]), 2).tolist()
    [1.5, inf]
    """
    if distances.shape[1] < n:
        return np.full(len(distances), np.inf)
    return np.asarray(distances[:, :n].mean(axis=1))


class Trust:
    """How far the surroundings of each entry agree with its label.

    Trust is the leave-one-out vote share of an entry's own label under distance attention: an
    entry whose surroundings contradict it has little. An entry and its group can be removed from
    the trust of others, since an entry must not influence its own leave-one-out prediction.

    Parameters
    ----------
    everyone : LeaveOneOutBatch
        All N entries.
    first_look : Attention
        Fitted distance attention.

    Attributes
    ----------
    of_entries : ndarray of shape (N,)
        Trust of each entry, from 0 to 1.
    """

    def __init__(self, everyone: LeaveOneOutBatch, first_look: Attention) -> None:
        batch = everyone.batch.nearest(TRUST_WIDTH)
        weights = first_look.weigh(batch)
        self.table: Neighbors = batch.neighbors
        self.weights = weights.neighbors  # (N, K)
        self.prior_weight = weights.prior  # (N,)
        self.own, self.groups, self.counts = everyone.own, everyone.groups, everyone.counts
        n_classes = len(self.counts)
        self.agreement = np.where(self.table.labels == self.own[:, None], self.weights, 0.0).sum(
            axis=1
        )
        without_itself = (self.counts[self.own] - 0.5) / (self.counts.sum() + 0.5 * n_classes - 1.0)
        trust = self.agreement + self.prior_weight * without_itself
        self.of_entries = np.clip(trust, 0.0, 1.0)  # (N,); sums of weights may round past one
        self.has_groups = bool((self.groups != NO_GROUP).any())

    def without(self, rows: Integers, neighbors: Neighbors) -> Floats:
        """Trust (B, K) of the neighbors of the entries at `rows`, without those entries."""
        positions = neighbors.positions
        weight, agreeing = self._weight_of(rows, positions)
        is_alike = self.own[positions] == self.own[rows][:, None]
        smoothed = self.counts[self.own[positions]] + 0.5 - 1.0 - is_alike  # without both entries
        prior = smoothed / max(self.counts.sum() + 0.5 * len(self.counts) - 2.0, 0.5)
        left = 1.0 - weight
        trust = self.agreement[positions] - agreeing + self.prior_weight[positions] * prior
        trust = trust / np.maximum(left, 1e-12)
        return np.where(left > 1e-9, np.clip(trust, 0.0, 1.0), 0.5)  # 0.5: no other voter

    def _weight_of(self, rows: Integers, positions: Integers) -> tuple[Floats, Floats]:
        """Weight (B, K) of each row and its group in the trust of its neighbors.

        And the part of that weight which agrees with the neighbor's label.
        """
        weight, agreeing = np.zeros(positions.shape), np.zeros(positions.shape)
        step = max(1, BLOCK // max(1, positions.shape[1] * self.weights.shape[1]))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            voters = self.table.positions[positions[part]]  # (b, K, K)
            is_row = voters == rows[part, None, None]
            if self.has_groups:
                group = self.groups[rows[part]][:, None, None]
                is_row |= (self.groups[voters] == group) & (group != NO_GROUP)
            row, neighbor, voter = np.nonzero(is_row)
            entry = positions[part][row, neighbor]
            found = np.where(self.table.mask[entry, voter], self.weights[entry, voter], 0.0)
            agrees = self.table.labels[entry, voter] == self.own[entry]
            np.add.at(weight[part], (row, neighbor), found)
            np.add.at(agreeing[part], (row, neighbor), np.where(agrees, found, 0.0))
        return weight, agreeing
