"""What attention must do: score the neighbors of a query and the prior; the weights follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from attnknn.records import Booleans, Floats, Integers, Neighbors


@dataclass(frozen=True)
class NeighborBatch:
    """What attention looks at: queries and their neighbors.

    Parameters
    ----------
    queries : (B, D) prepared by the memory
    neighbors : the K nearest entries of each
    squared : (B, K) squared distances (for cosine and inner product: the same up to a constant)
    sample_weight : (B, K)
    entries : (N, D) all prepared embeddings of the memory; `neighbors.positions` are its rows
    trust : (B, K) how far the surroundings of each neighbor agree with its label, or None
    is_relative : whether `squared` is measured from the nearest, as of inner products it is
    """

    queries: NDArray[np.float32]
    neighbors: Neighbors
    squared: Floats
    sample_weight: Floats
    entries: NDArray[np.float32]
    trust: Floats | None = None
    is_relative: bool = False

    def rows(self, chosen: Any) -> NeighborBatch:
        """The situation of some of the queries."""
        return replace(
            self,
            queries=self.queries[chosen],
            neighbors=self.neighbors.rows(chosen),
            squared=self.squared[chosen],
            sample_weight=self.sample_weight[chosen],
            trust=None if self.trust is None else self.trust[chosen],
        )

    def nearest(self, k: int) -> NeighborBatch:
        """The situation with the `k` nearest neighbors only."""
        return replace(
            self,
            neighbors=self.neighbors.nearest(k),
            squared=self.squared[:, :k],
            sample_weight=self.sample_weight[:, :k],
            trust=None if self.trust is None else self.trust[:, :k],
        )

    def asking(self, may_answer: Booleans) -> NeighborBatch:
        """The situation with those neighbors only that `may_answer` (B, K), nearest first."""
        has_say = self.neighbors.mask & may_answer
        order = np.argsort(~has_say, axis=1, kind="stable")

        def moved(array: NDArray[Any], empty: Any = 0) -> NDArray[Any]:
            kept = np.where(has_say, array, array.dtype.type(empty))
            return np.take_along_axis(kept, order, axis=1)

        found = self.neighbors
        squared = moved(self.squared, np.inf)
        if self.is_relative and squared.shape[1]:
            nearest = squared[:, :1]
            squared = squared - np.where(np.isfinite(nearest), nearest, 0.0)
        return replace(
            self,
            neighbors=Neighbors(
                moved(found.positions),
                moved(found.labels),
                moved(found.distances, np.inf),
                moved(has_say),
            ),
            squared=squared,
            sample_weight=moved(self.sample_weight, 1.0),
            trust=None if self.trust is None else moved(self.trust),
        )


@dataclass(frozen=True)
class Scores:
    """Numbers before the softmax: (B, H, K) for the neighbors, (B, H) for the prior.

    A neighbor at minus infinity has no say in that head. `mixing` (B, H) is the say of the heads,
    one in sum per row; None: all alike.
    """

    neighbors: Floats
    prior: Floats
    mixing: Floats | None = None


@dataclass(frozen=True)
class Weights:
    """The say of the neighbors (B, K) and of the prior (B,); not negative, one in sum per row."""

    neighbors: Floats
    prior: Floats

    @property
    def effective_neighbors(self) -> Floats:
        """How many equal voters each row of weights is worth, the prior being one of them."""
        return 1.0 / (np.square(self.neighbors).sum(axis=1) + np.square(self.prior))


class Attention(ABC, BaseEstimator):
    """Turns neighbors into weights: a softmax over the scores of the neighbors and the prior.

    Every attention has a `temperature_`, which divides the neighbors' scores, and a
    `prior_score_`, which is added to the prior's: calibration fits these two.
    """

    temperature_: float = 1.0
    prior_score_: float = 0.0
    needs_trust: bool = False

    @abstractmethod
    def scores(self, batch: NeighborBatch) -> Scores:
        """Scores before temperature, sample weight and the prior's score are applied."""

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        """Make room for one more class, whose first entries have these embeddings."""

    def reorder_classes(self, order: Integers) -> None:
        """Class `order[i]` becomes class i."""

    def forget_copies(self, embeddings: NDArray[np.float32]) -> None:
        """Forget what is a copy of one of these embeddings (n, D); most attentions keep none."""

    def copy(self) -> Self:
        """A copy that an edit may change."""
        return copy(self)

    def weigh(self, batch: NeighborBatch) -> Weights:
        """The weights of the neighbors and of the prior, heads averaged, in float64."""
        return self.weights(self.scores(batch), batch)

    def weights(self, scores: Scores, batch: NeighborBatch) -> Weights:
        """The weights that these scores give."""
        neighbors = scores.neighbors / self.temperature_
        neighbors = neighbors + np.log(batch.sample_weight)[:, None, :]
        neighbors = np.where(batch.neighbors.mask[:, None, :], neighbors, -np.inf)
        heads = softmax_weights(neighbors, scores.prior + self.prior_score_)
        return mixed(*heads, scores.mixing)


def softmax_weights(neighbors: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Softmax over the K + 1 scores of each head: weights (B, H, K) and (B, H)."""
    top = np.maximum(neighbors.max(axis=2, initial=-np.inf), prior)
    nobody = np.isneginf(top)  # no neighbor found and a prior that does not vote
    top = np.where(nobody, 0.0, top)
    neighbor_mass = np.exp(neighbors - top[:, :, None])
    prior_mass = np.where(nobody, 1.0, np.exp(prior - top))  # then the prior is all there is
    total = neighbor_mass.sum(axis=2) + prior_mass
    return neighbor_mass / total[:, :, None], prior_mass / total


def mixed(neighbors: Floats, prior: Floats, mixing: Floats | None) -> Weights:
    """Heads into one: their mean, or the sum weighed by `mixing` (B, H)."""
    if prior.shape[1] == 1 and mixing is None:
        return Weights(neighbors[:, 0], prior[:, 0])
    if mixing is None:
        return Weights(neighbors.mean(axis=1), prior.mean(axis=1))
    return Weights((neighbors * mixing[:, :, None]).sum(axis=1), (prior * mixing).sum(axis=1))
