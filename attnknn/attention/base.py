"""The protocol of an attention: scores of neighbors and prior become weights by a softmax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from attnknn.memory.base import Memory
from attnknn.records import Booleans, Floats, Integers, Neighbors, Weights
from attnknn.registry import Option

if TYPE_CHECKING:
    from attnknn._stored import Fields, Tensors


@dataclass(frozen=True)
class NeighborBatch:
    """Queries with their neighbors: the input of an attention.

    Parameters
    ----------
    queries : ndarray of shape (B, D)
        Vectors prepared by the memory.
    neighbors : Neighbors
        The K nearest entries of each query.
    squared : ndarray of shape (B, K)
        Squared distances (for cosine and inner product: the same up to a constant).
    sample_weight : ndarray of shape (B, K)
        Effective sample weight of each neighbor.
    entries : ndarray of shape (N, D)
        All prepared embeddings of the memory; `neighbors.positions` are its rows.
    trust : ndarray of shape (B, K), default=None
        How far the surroundings of each neighbor agree with its label.
    is_relative : bool, default=False
        Whether `squared` is measured from the nearest neighbor, as for inner products.
    """

    queries: NDArray[np.float32]
    neighbors: Neighbors
    squared: Floats
    sample_weight: Floats
    entries: NDArray[np.float32]
    trust: Floats | None = None
    is_relative: bool = False

    @classmethod
    def of(
        cls,
        queries: NDArray[np.float32],
        neighbors: Neighbors,
        memory: Memory,
        trust: Floats | None = None,
    ) -> NeighborBatch:
        """The batch for queries (B, D) whose `neighbors` were found in `memory`."""
        return cls(
            queries=queries,
            neighbors=neighbors,
            squared=squared_distances(neighbors.distances, memory.metric_),
            sample_weight=memory.entries.effective_weight[neighbors.positions],
            entries=memory.entries.embeddings,
            trust=trust,
            is_relative=memory.metric_ == "inner_product",
        )

    def rows(self, chosen: Any) -> NeighborBatch:
        """The batch of some of the queries."""
        return replace(
            self,
            queries=self.queries[chosen],
            neighbors=self.neighbors.rows(chosen),
            squared=self.squared[chosen],
            sample_weight=self.sample_weight[chosen],
            trust=None if self.trust is None else self.trust[chosen],
        )

    def nearest(self, k: int) -> NeighborBatch:
        """The batch with the `k` nearest neighbors of each query only."""
        return replace(
            self,
            neighbors=self.neighbors.nearest(k),
            squared=self.squared[:, :k],
            sample_weight=self.sample_weight[:, :k],
            trust=None if self.trust is None else self.trust[:, :k],
        )

    def restricted(self, is_allowed: Booleans) -> NeighborBatch:
        """The batch with the neighbors that are allowed (B, K) only, nearest first."""
        is_kept = self.neighbors.mask & is_allowed
        order = np.argsort(~is_kept, axis=1, kind="stable")

        def moved(array: NDArray[Any], empty: Any = 0) -> NDArray[Any]:
            kept = np.where(is_kept, array, array.dtype.type(empty))
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
                moved(is_kept),
            ),
            squared=squared,
            sample_weight=moved(self.sample_weight, 1.0),
            trust=None if self.trust is None else moved(self.trust),
        )


def squared_distances(distances: Floats, metric: str) -> Floats:
    """Squared Euclidean distances (B, K), or their equivalent for other metrics.

    Between unit vectors 2 (1 − cosine) is the squared distance. Inner products have no absolute
    scale, so they are taken relative to the nearest neighbor.
    """
    if metric == "euclidean":
        return np.square(distances)
    if metric == "cosine" or not distances.shape[1]:
        return 2.0 * distances
    nearest = distances[:, :1]
    return 2.0 * (distances - np.where(np.isfinite(nearest), nearest, 0.0))


@dataclass(frozen=True)
class Scores:
    """Scores before the softmax: (B, H, K) for the neighbors, (B, H) for the prior.

    A neighbor at minus infinity gets no weight in that head. `mixing` (B, H) weighs the heads and
    sums to one per row; None weighs them equally.
    """

    neighbors: Floats
    prior: Floats
    mixing: Floats | None = None


class ScalarFit(Protocol):
    """What `Attention.fit_parameters` receives: leave-one-out rows, and a fit of the scalars."""

    batch: NeighborBatch
    labels: Integers  # (B,) observed labels of the rows
    prior: Floats  # (B, C) class frequencies without the row itself

    def sample(self, n_rows: int, n_neighbors: int) -> ScalarFit:
        """A random part of the rows, with fewer neighbors."""

    def fit_scalars(self) -> Any:
        """Fit temperature, prior score and probability map; returns the fit with its `loss`."""

    def set_scalars(self) -> None:
        """Fit temperature and prior score on all rows and set them on the attention."""

    def is_better(self, simple: Any, rich: Any) -> bool:
        """Whether the fit `rich` is better than `simple` beyond chance."""


class Attention(ABC, BaseEstimator):
    """Base class of attentions: weights of the neighbors and the prior by a softmax over scores.

    Every attention has a `temperature_`, which divides the neighbors' scores, and a
    `prior_score_`, which is added to the prior's: calibration fits these two. A subclass gives
    `scores`; decorated with `attnknn.registry.register("attention", name)` it is known by that
    name everywhere.

    Attributes
    ----------
    temperature_ : float
    prior_score_ : float
    fitted_by : {'nothing', 'scalars', 'training'}
        What `fit` does: nothing, fit the scalars by leave-one-out, or train by gradient.
    chooses_n_neighbors : bool
        Whether `fit` chooses the number of neighbors by leave-one-out.
    needs_trust : bool
        Whether the batch must carry the trust of each neighbor.
    options : tuple of Option
        Command-line options of `attnknn fit` for this attention.
    """

    registered_name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    fitted_by: ClassVar[Literal["nothing", "scalars", "training"]] = "scalars"
    chooses_n_neighbors: ClassVar[bool] = True
    temperature_: float = 1.0
    prior_score_: float = 0.0
    needs_trust: bool = False

    @abstractmethod
    def scores(self, batch: NeighborBatch) -> Scores:
        """Scores before temperature, sample weight and prior score are applied."""

    def prepare_fit(self, n_neighbors: int) -> None:
        """Check the settings before a fit that searches at most `n_neighbors`."""

    def fit_parameters(self, problem: ScalarFit) -> None:
        """Fit what the attention has beyond temperature and prior score; by default nothing."""

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Fitted values that JSON can hold, and tensors, for a model folder.

        The scalars are stored by the caller. Whatever is returned comes back through `restore`.
        """
        return {}, {}

    def restore(self, stored: Fields, tensors: Tensors, dim: int, n_classes: int) -> None:
        """Set what `state` gave; values that cannot be right raise `ModelFolderError`."""

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        """Make room for one more class, whose first entries have these embeddings."""

    def reorder_classes(self, order: Integers) -> None:
        """Class `order[i]` becomes class i."""

    def forget_copies(self, embeddings: NDArray[np.float32]) -> None:
        """Erase parameters that are copies of one of these embeddings (n, D)."""

    def copy(self) -> Self:
        """A copy that an edit may change."""
        return copy(self)

    def weigh(self, batch: NeighborBatch) -> Weights:
        """Weights of the neighbors and of the prior, averaged over heads, in float64."""
        return self.weights(self.scores(batch), batch)

    def weights(self, scores: Scores, batch: NeighborBatch) -> Weights:
        """The weights for these scores."""
        neighbors = scores.neighbors / self.temperature_
        neighbors = neighbors + np.log(batch.sample_weight)[:, None, :]
        neighbors = np.where(batch.neighbors.mask[:, None, :], neighbors, -np.inf)
        heads = softmax_weights(neighbors, scores.prior + self.prior_score_)
        return mix_heads(*heads, scores.mixing)


def softmax_weights(neighbors: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Softmax over the K + 1 scores of each head: weights (B, H, K) and (B, H)."""
    top = np.maximum(neighbors.max(axis=2, initial=-np.inf), prior)
    is_empty = np.isneginf(top)  # no neighbor was found, and the prior does not vote
    top = np.where(is_empty, 0.0, top)
    neighbor_mass = np.exp(neighbors - top[:, :, None])
    prior_mass = np.where(is_empty, 1.0, np.exp(prior - top))  # then the prior gets all weight
    total = neighbor_mass.sum(axis=2) + prior_mass
    return neighbor_mass / total[:, :, None], prior_mass / total


def mix_heads(neighbors: Floats, prior: Floats, mixing: Floats | None) -> Weights:
    """Average the heads, or sum them weighted by `mixing` (B, H)."""
    if prior.shape[1] == 1 and mixing is None:
        return Weights(neighbors[:, 0], prior[:, 0])
    if mixing is None:
        return Weights(neighbors.mean(axis=1), prior.mean(axis=1))
    return Weights((neighbors * mixing[:, :, None]).sum(axis=1), (prior * mixing).sum(axis=1))
