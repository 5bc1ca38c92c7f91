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
from attnknn.memory.vectors import EntryVectors
from attnknn.records import Booleans, Floats, Integers, Neighbors, Weights
from attnknn.registry import Option

if TYPE_CHECKING:
    from attnknn._stored import Arrays
    from attnknn.model import FittedModel


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
    vectors : EntryVectors
        The prepared vectors of the entries, read by `neighbors.positions`.
    trust : ndarray of shape (B, K), default=None
        How far the surroundings of each neighbor agree with its label.
    is_relative : bool, default=False
        Whether `squared` is measured from the nearest neighbor, as for inner products.

    Examples
    --------
    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> queries = memory.prepare([[4.0]])
    >>> batch = NeighborBatch.of(queries, memory.search_prepared(queries, 2), memory)
    >>> batch.squared.tolist()
    [[1.0, 9.0]]
    """

    queries: NDArray[np.float32]
    neighbors: Neighbors
    squared: Floats
    sample_weight: Floats
    vectors: EntryVectors
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
        """Build the batch of queries whose neighbors were found in a memory.

        Parameters
        ----------
        queries : ndarray of shape (B, D)
            Vectors prepared by the memory.
        neighbors : Neighbors
            What the memory found for them.
        memory : Memory
            The memory, which gives metric, sample weights and embeddings.
        trust : ndarray of shape (B, K), default=None
            Trust of each neighbor, for attentions with `needs_trust`.

        Returns
        -------
        NeighborBatch
            The batch.
        """
        return cls(
            queries=queries,
            neighbors=neighbors,
            squared=squared_distances(neighbors.distances, memory.metric_),
            sample_weight=memory.entries.effective_weight[neighbors.positions],
            vectors=memory.vectors,
            trust=trust,
            is_relative=memory.metric_ == "inner_product",
        )

    def rows(self, chosen: Any) -> NeighborBatch:
        """Select some of the queries.

        Parameters
        ----------
        chosen : slice or ndarray
            Index of the queries.

        Returns
        -------
        NeighborBatch
            The batch of these queries.
        """
        return replace(
            self,
            queries=self.queries[chosen],
            neighbors=self.neighbors.rows(chosen),
            squared=self.squared[chosen],
            sample_weight=self.sample_weight[chosen],
            trust=None if self.trust is None else self.trust[chosen],
        )

    def nearest(self, k: int) -> NeighborBatch:
        """Keep only the nearest neighbors of each query.

        Parameters
        ----------
        k : int
            How many to keep.

        Returns
        -------
        NeighborBatch
            The batch with at most `k` neighbors per query.
        """
        return replace(
            self,
            neighbors=self.neighbors.nearest(k),
            squared=self.squared[:, :k],
            sample_weight=self.sample_weight[:, :k],
            trust=None if self.trust is None else self.trust[:, :k],
        )

    def restricted(self, is_allowed: Booleans) -> NeighborBatch:
        """Keep only the neighbors that are allowed, nearest first.

        Parameters
        ----------
        is_allowed : ndarray of shape (B, K)
            True for the neighbors to keep.

        Returns
        -------
        NeighborBatch
            The batch of the same shape; removed neighbors are masked.
        """
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
    """Scores of B queries, K neighbors and H heads before the softmax.

    Parameters
    ----------
    neighbors : ndarray of shape (B, H, K)
        Scores of the neighbors. Minus infinity means no weight in that head.
    prior : ndarray of shape (B, H)
        Scores of the prior.
    mixing : ndarray of shape (B, H), default=None
        Weights of the heads, which sum to one per row. None weighs them equally.

    Examples
    --------
    >>> Scores(np.zeros((2, 1, 5)), np.zeros((2, 1))).mixing is None
    True
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


@dataclass(frozen=True)
class Voters:
    """The entries that vote for B queries, with their weights."""

    neighbors: Neighbors
    weights: Weights


class Head(ABC, BaseEstimator):
    """What all attentions share: how they are registered, stored, and follow an edit.

    Derive from `Attention` to weigh the neighbors that the memory finds, and from
    `DirectAttention` to find the voters in another way, as trees do.

    Attributes
    ----------
    prior_score_ : float
        Larger values give the prior more weight.
    options : tuple of Option
        Command-line options of `attnknn fit` for this attention.
    """

    registered_name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    fitted_by: ClassVar[Literal["nothing", "scalars", "training", "entries"]]
    temperature_: float = 1.0
    prior_score_: float = 0.0
    needs_trust: bool = False
    n_scoring_heads: int = 1

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what was fitted, for a model folder; `restore` receives it again.

        Returns
        -------
        values : dict
            Values that JSON can hold. Temperature and prior score are stored by the caller.
        arrays : dict of str to ndarray
            NumPy arrays by name, of types that safetensors can hold.
        """
        return {}, {}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        """Set what `state` returned.

        Parameters
        ----------
        values : dict
            The values as JSON gives them back; they may come from a hostile file.
        arrays : dict of str to ndarray
            The arrays; they may come from a hostile file, too.
        dim : int
            Number of dimensions of the embeddings.
        n_classes : int
            Number of classes.

        Raises
        ------
        KeyError, TypeError, ValueError
            If a value is missing or impossible. The model folder is then refused as damaged.
        """

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        """Extend the parameters to one more class.

        Parameters
        ----------
        embeddings : ndarray of shape (n, D)
            Embeddings of the first entries of the class.
        """

    def reorder_classes(self, order: Integers) -> None:
        """Move the parameters of classes whose codes change.

        Parameters
        ----------
        order : ndarray of shape (C,)
            Class `order[i]` becomes class i.
        """

    def copy(self) -> Self:
        """Copy the attention before an edit changes it.

        Returns
        -------
        Attention
            A shallow copy.
        """
        return copy(self)

    def follow_edit(self, before: FittedModel, after: FittedModel, kept: Integers | None) -> None:
        """Move what was computed for the entries of one model on to the next; by default nothing.

        Parameters
        ----------
        before, after : FittedModel
            The models before and after an edit.
        kept : ndarray of shape (n,) or None
            Positions in `before` of the entries that `after` begins with; None is all.
        """


class Attention(Head):
    """Base class of attentions: weights of the neighbors and the prior by a softmax over scores.

    Every attention has a `temperature_`, which divides the neighbors' scores, and a
    `prior_score_`, which is added to the prior's: calibration fits these two. A subclass implements
    `scores`; decorated with `attnknn.registry.register("attention", name)` it is known by that
    name everywhere. All other methods have defaults.

    Attributes
    ----------
    temperature_ : float
        Larger values make the weights more equal.
    prior_score_ : float
        Larger values give the prior more weight.
    fitted_by : {'nothing', 'scalars', 'training'}
        What `fit` does: nothing, fit the scalars by leave-one-out, or train by gradient.
    chooses_n_neighbors : bool
        Whether `fit` chooses the number of neighbors by leave-one-out.
    needs_trust : bool
        Whether the batch must carry the trust of each neighbor.
    options : tuple of Option
        Command-line options of `attnknn fit` for this attention.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> class LinearAttention(Attention):
    ...     def scores(self, batch):
    ...         distances = np.where(batch.neighbors.mask, batch.neighbors.distances, 0.0)
    ...         return Scores(-distances[:, None, :], np.zeros((len(distances), 1)))
    >>> clf = AttnKNNClassifier(2, attention=LinearAttention())
    >>> clf.fit([[0.0], [1.0], [5.0], [6.0]], ["a", "a", "b", "b"]).predict([[4.0]]).tolist()
    ['b']
    """

    fitted_by: ClassVar[Literal["nothing", "scalars", "training", "entries"]] = "scalars"
    chooses_n_neighbors: ClassVar[bool] = True

    @abstractmethod
    def scores(self, batch: NeighborBatch) -> Scores:
        """Score the neighbors before temperature, sample weight and prior score are applied.

        Parameters
        ----------
        batch : NeighborBatch
            Queries and their neighbors.

        Returns
        -------
        Scores
            Scores of the neighbors and of the prior.
        """

    def prepare_fit(self, n_neighbors: int) -> None:
        """Check the settings before a fit.

        Parameters
        ----------
        n_neighbors : int
            Largest number of neighbors that the fit searches.
        """

    def fit_parameters(self, problem: ScalarFit) -> None:
        """Fit what the attention has beyond temperature and prior score; by default nothing.

        Parameters
        ----------
        problem : attnknn.attention.base.ScalarFit
            Leave-one-out rows, and a fit of temperature and prior score.
        """

    def weigh(self, batch: NeighborBatch) -> Weights:
        """Compute the weights of the neighbors and of the prior, averaged over heads.

        Parameters
        ----------
        batch : NeighborBatch
            Queries and their neighbors.

        Returns
        -------
        Weights
            The weights in float64.
        """
        return self.weights(self.scores(batch), batch)

    def weights(self, scores: Scores, batch: NeighborBatch) -> Weights:
        """Compute the weights that follow from given scores.

        Parameters
        ----------
        scores : Scores
            What `scores` returned for the batch.
        batch : NeighborBatch
            Queries and their neighbors.

        Returns
        -------
        Weights
            The weights in float64.
        """
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
