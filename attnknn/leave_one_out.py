"""Each entry judged by the others: never by itself, never by its own group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnknn.attention.base import Attention, NeighborBatch
from attnknn.calibration import CalibrationBatch
from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.neighbor_graph import NeighborGraph
from attnknn.pipeline import Answer, Parts, make_neighbor_batch
from attnknn.records import Booleans, Floats, Integers, Neighbors
from attnknn.vote import class_prior

BLOCK = 1 << 22  # pairs of entries held at once
TRUST_WIDTH = 32  # nearest others that vouch for an entry
ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class LeaveOneOutBatch:
    """Entries and the others that judge them.

    Parameters
    ----------
    rows : (B,) positions of the entries in the memory
    batch : what attention sees of them, each left out of its own neighbors
    own : (B,) their observed labels
    groups : (B,) theirs; -1 is no group
    counts : (C,) entries per class
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
        """Class frequencies (B, C) as each entry sees them: without itself."""
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
        """The same entries judged by their `k` nearest others only."""
        return replace(self, batch=self.batch.nearest(k))

    def asking(self, may_judge: Booleans) -> LeaveOneOutBatch:
        """The same entries judged by those others only that `may_judge` (N,)."""
        positions = self.batch.neighbors.positions
        return replace(self, batch=self.batch.asking(may_judge[positions]))

    def trusting(self, trust: Trust | None) -> LeaveOneOutBatch:
        """The same with the trust of each judge, the judged entry having no say in it."""
        if trust is None:
            return self
        values = trust.without(self.rows, self.batch.neighbors)
        return replace(self, batch=replace(self.batch, trust=values))

    def calibration_batch(self, attention: Attention) -> CalibrationBatch:
        """These entries as calibration wants them."""
        return CalibrationBatch(
            scores=attention.scores(self.batch),
            log_sample_weight=np.log(self.batch.sample_weight),
            labels=self.batch.neighbors.labels,
            mask=self.batch.neighbors.mask,
            own=self.own,
            prior=self.prior,
        )

    def answer(self, parts: Parts) -> Answer:
        """What the fitted parts say of these entries."""
        return parts.finish(self.batch.nearest(parts.n_neighbors), self.prior)


def judge(
    memory: Memory,
    counts: Integers,
    k: int,
    rows: Integers | None = None,
    others: NeighborGraph | None = None,
) -> LeaveOneOutBatch:
    """The entries at `rows` (default: all) with their `k` nearest others.

    Parameters
    ----------
    others : lists that know them already; without, the memory is searched

    Examples
    --------
    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> judge(memory, np.array([2, 1]), k=1).batch.neighbors.positions.ravel().tolist()
    [1, 0, 1]
    """
    if rows is None:
        rows = np.arange(len(memory), dtype=np.int64)
    queries = memory.entries.embeddings[rows]
    neighbors = None if others is None else others.neighbors(memory, k, rows)
    if neighbors is None:
        neighbors = memory.search_prepared(queries, max(1, min(k, len(memory) - 1)), exclude=rows)
    batch = make_neighbor_batch(queries, neighbors, memory)
    entries = memory.entries
    return LeaveOneOutBatch(rows, batch, entries.labels[rows], entries.groups[rows], counts)


@dataclass(frozen=True)
class LeaveOneOutPredictions:
    """What the others say of some entries.

    Parameters
    ----------
    rows : (n,) positions of the entries in the memory
    own : (n,) their observed labels
    probabilities : (n, C) of the true label
    distances : (n, K) to the nearest others, rising; infinity where there is none
    """

    rows: Integers
    own: Integers
    probabilities: Floats
    distances: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, chosen: Any) -> LeaveOneOutPredictions:
        """The verdicts on some of the entries."""
        return LeaveOneOutPredictions(
            self.rows[chosen], self.own[chosen], self.probabilities[chosen], self.distances[chosen]
        )

    def nearest(self, n: int = 1) -> Floats:
        """The mean distance (n,) to the `n` nearest others."""
        return mean_of_nearest(self.distances, n)


def mean_of_nearest(distances: Floats, n: int) -> Floats:
    """The mean (B,) of the `n` smallest distances (B, K), infinite where there are fewer.

    >>> mean_of_nearest(np.array([[1.0, 2.0, 6.0], [1.0, np.inf, np.inf]]), 2).tolist()
    [1.5, inf]
    """
    if distances.shape[1] < n:
        return np.full(len(distances), np.inf)
    return np.asarray(distances[:, :n].mean(axis=1))


def leave_one_out_predictions(left_out: LeaveOneOutBatch, parts: Parts) -> LeaveOneOutPredictions:
    """The verdicts of the fitted parts on judged entries, block by block."""
    blocks = range(0, max(1, len(left_out)), ROWS_AT_ONCE)
    found = [left_out.part(slice(b, b + ROWS_AT_ONCE)).answer(parts).probabilities for b in blocks]
    distances = left_out.batch.neighbors.distances
    return LeaveOneOutPredictions(left_out.rows, left_out.own, np.concatenate(found), distances)


class Trust:
    """How far the surroundings of each entry agree with its label.

    The leave-one-out share of an entry's own label under distance attention: an entry that its
    surroundings contradict has little trust. A row can be taken out of the trust of others, with
    its group: a row being judged must not vouch for its judges.

    Parameters
    ----------
    everyone : all N entries, judged
    first_look : fitted distance attention
    """

    def __init__(self, everyone: LeaveOneOutBatch, first_look: Attention) -> None:
        batch = everyone.batch.nearest(TRUST_WIDTH)
        weights = first_look.weigh(batch)
        self.table: Neighbors = batch.neighbors
        self.weights = weights.neighbors  # (N, K)
        self.prior_weight = weights.prior  # (N,)
        self.own, self.groups, self.counts = everyone.own, everyone.groups, everyone.counts
        n_classes = len(self.counts)
        self.agrees = np.where(self.table.labels == self.own[:, None], self.weights, 0.0).sum(
            axis=1
        )
        without_itself = (self.counts[self.own] - 0.5) / (self.counts.sum() + 0.5 * n_classes - 1.0)
        trust = self.agrees + self.prior_weight * without_itself
        self.of_all = np.clip(trust, 0.0, 1.0)  # (N,); sums of weights may round past one
        self.has_groups = bool((self.groups != NO_GROUP).any())

    def without(self, rows: Integers, neighbors: Neighbors) -> Floats:
        """Trust (B, K) of the neighbors of the entries at `rows`, those entries taken out."""
        judges = neighbors.positions
        say, vouched = self._say_of(rows, judges)
        is_alike = self.own[judges] == self.own[rows][:, None]
        smoothed = self.counts[self.own[judges]] + 0.5 - 1.0 - is_alike  # neither judge nor row
        prior = smoothed / max(self.counts.sum() + 0.5 * len(self.counts) - 2.0, 0.5)
        left = 1.0 - say
        trust = self.agrees[judges] - vouched + self.prior_weight[judges] * prior
        trust = trust / np.maximum(left, 1e-12)
        return np.where(left > 1e-9, np.clip(trust, 0.0, 1.0), 0.5)  # 0.5: nobody else to ask

    def _say_of(self, rows: Integers, judges: Integers) -> tuple[Floats, Floats]:
        """The weight (B, K) of each row and its group among the neighbors of its judges.

        And the part of it that agrees with the label of the judge.
        """
        say, vouched = np.zeros(judges.shape), np.zeros(judges.shape)
        step = max(1, BLOCK // max(1, judges.shape[1] * self.weights.shape[1]))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            who = self.table.positions[judges[part]]  # (b, K, K)
            is_row = who == rows[part, None, None]
            if self.has_groups:
                group = self.groups[rows[part]][:, None, None]
                is_row |= (self.groups[who] == group) & (group != NO_GROUP)
            self._count(np.nonzero(is_row), judges[part], say[part], vouched[part])
        return say, vouched

    def _count(
        self, places: tuple[Integers, ...], judges: Integers, say: Floats, vouched: Floats
    ) -> None:
        """Add to say and vouched (b, K) the weights of the few `places` (row, judge, neighbor)."""
        row, judge, neighbor = places
        who = judges[row, judge]
        weights = np.where(self.table.mask[who, neighbor], self.weights[who, neighbor], 0.0)
        is_alike = self.table.labels[who, neighbor] == self.own[who]
        np.add.at(say, (row, judge), weights)
        np.add.at(vouched, (row, judge), np.where(is_alike, weights, 0.0))
