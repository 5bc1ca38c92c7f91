"""Jackknife+: sets with a guarantee from leave-one-out scores, by answering without each entry.

For a query x, a class c and each held-out entry i let S_i be the score of entry i's own label and
S_−i(x, c) the score of c for x, both by the memory *without* entry i. The class is in the set if

    #{i : S_i < S_−i(x, c)} < coverage · (n + 1).

**Guarantee.** If query and held-out entries are exchangeable and the fitted parts do not depend on
them, the set contains the label with a probability of at least 1 − 2 (1 − coverage). The argument
is that of Barber et al. (2021), for labels by Romano et al. (2020): put the query among the entries
as entry n + 1, and let R_ij be the score of entry i by the memory without i and j. Entry i loses to
j if R_ij > R_ji. The label is left out only if entry n + 1 loses to at least coverage · (n + 1)
others. In a tournament of n + 1 at most 2 (1 − coverage) (n + 1) can lose that often, and by
exchangeability each entry is equally likely to be one of these.

**Cost.** Removing entry i changes the neighbors of x only if i is one of them. All other entries of
one label change the answer alike, through the class frequencies of the prior: one of them is
removed, and its answer stands for all. So a query costs at most K + C answers, not n.

With trust an entry also matters if it contributes to the trust of a neighbor, which is accounted
for. But the lists of contributing entries are not filled up when one is removed, and entries of one
group are removed together: with trust or groups the guarantee holds up to such effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnknn.attention.base import NeighborBatch
from attnknn.conformal.scores import SetScore
from attnknn.conformal.sets import ROUNDING
from attnknn.leave_one_out import LeaveOneOutPredictions, Trust
from attnknn.memory.entries import NO_GROUP, Exclusion
from attnknn.model import FittedModel
from attnknn.records import Booleans, Floats, Integers, Neighbors
from attnknn.vote import class_prior

PLACES = 1 << 22  # pairs of answers and neighbors held at once


@dataclass(frozen=True)
class Jackknife:
    """Leave-one-out scores of held-out entries, ready for queries.

    Parameters
    ----------
    left_out : the entries that are left out in turn, with their leave-one-out predictions
    own_scores : (n,) the score of the own label of each
    trust : of all entries, if the attention uses it
    """

    parts: FittedModel
    left_out: LeaveOneOutPredictions
    own_scores: Floats
    score: SetScore
    trust: Trust | None = None

    def members(
        self,
        queries: NDArray[np.float32],
        coverage: float,
        *,
        by_class: bool = False,
        uniform: Floats | None = None,
    ) -> Booleans:
        """Which labels (B, C) are in the sets of prepared queries (B, D)."""
        wins = self.wins(queries, by_class=by_class, uniform=uniform)
        counts = np.full(wins.shape[1], len(self.left_out))
        if by_class:
            counts = np.bincount(self.left_out.own, minlength=wins.shape[1])
        return wins < coverage * (counts + 1) - ROUNDING

    def wins(
        self, queries: NDArray[np.float32], *, by_class: bool = False, uniform: Floats | None = None
    ) -> Integers:
        """Count the entries (B, C) with a lower score than the query with each label.

        By class, only entries of that label count.
        """
        memory, n_classes = self.parts.memory, len(self.parts.counts)
        extra = int(Exclusion(memory.entries.groups).sizes(self.left_out.rows).max(initial=1))
        found = memory.search_prepared(queries, self.parts.n_neighbors + extra)
        wins = np.zeros((len(queries), n_classes), dtype=np.int64)
        for pairs in self._blocks(found):
            scores = self._scores(queries, found, pairs, uniform)
            for pair, of_labels in zip(pairs, scores, strict=True):
                won = self._won(pair, of_labels)
                if by_class:
                    won = np.where(np.arange(n_classes) == pair.label, won, 0)
                wins[pair.query] += won
        return wins

    def _won(self, pair: _Pair, of_labels: Floats) -> Integers:
        """How many of the entries that a pair stands for score less, for each label (C,)."""
        limits = of_labels - ROUNDING
        if not pair.stands_for_all:
            return (self.own_scores[pair.place] < limits).astype(np.int64)
        of_label = self._sorted_scores[pair.label]
        others = self.own_scores[pair.not_these][:, None] < limits
        return np.searchsorted(of_label, limits, side="left") - others.sum(axis=0)

    @cached_property
    def _sorted_scores(self) -> list[Floats]:
        own, scores = self.left_out.own, self.own_scores
        return [np.sort(scores[own == c]) for c in range(len(self.parts.counts))]

    def _blocks(self, found: Neighbors) -> Iterator[list[_Pair]]:
        """Pairs of a query and an entry to leave out, in blocks of bounded size."""
        most = max(1, PLACES // max(1, found.positions.shape[1]))
        block: list[_Pair] = []
        for query in range(len(found)):
            block += self._pairs(query, found)
            if len(block) >= most:
                yield block
                block = []
        if block:
            yield block

    def _pairs(self, query: int, found: Neighbors) -> list[_Pair]:
        touching = np.isin(self.left_out.rows, self._touching(query, found))
        own, near, far = self.left_out.own, np.flatnonzero(touching), np.flatnonzero(~touching)
        labels, first = np.unique(own[far], return_index=True)
        alone = [_Pair(query, int(place), int(own[place])) for place in near]
        together = [
            _Pair(query, int(far[place]), int(label), True, near[own[near] == label])
            for label, place in zip(labels, first, strict=True)
        ]
        return alone + together

    def _touching(self, query: int, found: Neighbors) -> Integers:
        """Entries whose removal changes the neighbors of the query, or their trust."""
        k, groups = self.parts.n_neighbors, self.parts.memory.entries.groups
        near = found.positions[query, :k][found.mask[query, :k]]
        if self.trust is not None:
            contributing = self.trust.table.positions[near][self.trust.table.mask[near]]
            near = np.unique(np.concatenate([near, contributing]))
        return Exclusion(groups).pairs(near)[1] if (groups[near] != NO_GROUP).any() else near

    def _scores(
        self,
        queries: NDArray[np.float32],
        found: Neighbors,
        pairs: list[_Pair],
        uniform: Floats | None,
    ) -> Floats:
        """Scores (P, C) of the query of each pair by the memory without its entry."""
        parts = self.parts
        asked = np.array([pair.query for pair in pairs])
        left_out = self.left_out.rows[[pair.place for pair in pairs]]
        neighbors = self._without(queries[asked], found.rows(asked), left_out)
        trust = None if self.trust is None else self.trust.without(left_out, neighbors)
        batch = NeighborBatch.of(queries[asked], neighbors, parts.memory, trust)
        own = parts.memory.entries.labels[left_out]
        probabilities = parts.answer_batch(batch, class_prior(parts.counts, own)).probabilities
        return self.score.of_all(probabilities, None if uniform is None else uniform[asked])

    def _without(
        self, queries: NDArray[np.float32], found: Neighbors, left_out: Integers
    ) -> Neighbors:
        """The K nearest (P, K) that are neither the entry left out nor of its group."""
        memory = self.parts.memory
        groups = memory.entries.groups
        is_gone = found.positions == left_out[:, None]
        group = groups[left_out][:, None]
        is_gone |= (groups[found.positions] == group) & (group != NO_GROUP)
        asked = NeighborBatch.of(queries, found, memory).restricted(~is_gone)
        return asked.neighbors.nearest(self.parts.n_neighbors)


@dataclass(frozen=True)
class _Pair:
    """A query and the position of a held-out entry, without which it is answered.

    If it stands for all entries of its label, then for all but those at `not_these`.
    """

    query: int
    place: int
    label: int
    stands_for_all: bool = False
    not_these: Integers | None = None
