"""Attentions that find their voters themselves, and the voters of a sparse matrix of weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from attnknn.attention.base import Head, Voters
from attnknn.memory.base import Memory
from attnknn.memory.distances import keys_of_pairs
from attnknn.memory.entries import Entries
from attnknn.records import Booleans, Floats, Integers, Neighbors, Weights

if TYPE_CHECKING:
    from attnknn.model import FittedModel


class DirectFit(Protocol):
    """What `DirectAttention.fit_entries` receives."""

    memory: Memory
    random_state: int
    blocks: dict[str, tuple[int, int]]  # first and last column + 1 of each block of the embeddings
    score_blocks: frozenset[str]  # blocks that are class scores of a cross-fitted classifier
    held_out: Booleans | None  # entries that nothing was trained on so far; None is all

    def fit_head(
        self, head: Head, memory: Memory | None = None, *, are_scores: bool = False
    ) -> int:
        """Fit another attention to the entries; returns the number of neighbors it uses.

        `memory` holds the same entries in another space; None is the given one. `are_scores` says
        that this is the space of a classifier's scores, in which more neighbors may vote.
        """

    def fit_mixing(
        self, attention: DirectAttention, shares_of: Callable[..., list[Floats]]
    ) -> Floats:
        """Weights (H,) of votes in their mixture, by the likelihood of leave-one-out rows.

        `shares_of(model, rows)` gives the shares (B, C) of each vote.
        """


class DirectAttention(Head):
    """Base class of attentions that find their voters themselves, without a search of the memory.

    The methods receive the fitted model, whose `memory.entries` vote. They may cache results for
    this model with `model.cached`. The weights of the entries and of the prior sum to one for each
    query.

    Examples
    --------
    >>> from attnknn.attention import ForestAttention
    >>> issubclass(ForestAttention, DirectAttention)
    True
    """

    fitted_by = "entries"

    @abstractmethod
    def fit_entries(self, problem: DirectFit) -> None:
        """Fit to the entries of a memory; the prior's weight is fitted afterwards.

        Parameters
        ----------
        problem : attnknn.attention.direct.DirectFit
            The entries, and fits of attentions that search.
        """

    @abstractmethod
    def shares(self, model: FittedModel, queries: NDArray[np.float32]) -> Floats:
        """Compute the vote shares of queries.

        Parameters
        ----------
        model : FittedModel
            The model whose entries vote.
        queries : ndarray of shape (B, D)
            Queries prepared by the memory.

        Returns
        -------
        ndarray of shape (B, C)
            Vote shares; each row sums to one.
        """

    @abstractmethod
    def left_out_shares(
        self,
        model: FittedModel,
        rows: Integers,
        queries: NDArray[np.float32] | None = None,
    ) -> Floats:
        """Compute the vote shares of entries by leave-one-out, also without their groups.

        Parameters
        ----------
        model : FittedModel
            The model of the entries.
        rows : ndarray of shape (B,)
            Positions of the entries.
        queries : ndarray of shape (B, D), default=None
            Other views of the entries; None is their embeddings.

        Returns
        -------
        ndarray of shape (B, C)
            Vote shares; each row sums to one.
        """

    @abstractmethod
    def voters(self, model: FittedModel, queries: NDArray[np.float32]) -> Voters:
        """Find the entries that vote for queries.

        Parameters
        ----------
        model : FittedModel
            The model whose entries vote.
        queries : ndarray of shape (B, D)
            Queries prepared by the memory.

        Returns
        -------
        Voters
            Entries by decreasing weight, and the weight of the prior.
        """

    @abstractmethod
    def left_out_voters(self, model: FittedModel, rows: Integers) -> Voters:
        """Find the entries that vote for entries by leave-one-out, also without their groups.

        Parameters
        ----------
        model : FittedModel
            The model of the entries.
        rows : ndarray of shape (B,)
            Positions of the entries that are predicted.

        Returns
        -------
        Voters
            Entries by decreasing weight, and the weight of the prior.
        """

    @abstractmethod
    def voters_of_forgotten(self, model: FittedModel, entries: Entries) -> Voters:
        """Find the entries that vote for entries that the memory no longer has.

        Parameters
        ----------
        model : FittedModel
            The model without the entries.
        entries : Entries
            The forgotten entries; their groups do not vote.

        Returns
        -------
        Voters
            Entries by decreasing weight, and the weight of the prior.
        """

    @property
    def prior_weight(self) -> float:
        """Weight of the prior, in addition to the weight that no entry has."""
        return float(1.0 / (1.0 + np.exp(-self.prior_score_)))

    def with_prior(self, shares: Floats, prior: Floats) -> Floats:
        """Add the prior to the votes of the entries.

        Parameters
        ----------
        shares : ndarray of shape (B, C)
            Shares of the classes in the vote of the entries; they sum to at most one.
        prior : ndarray of shape (C,) or (B, C)
            Class frequencies.

        Returns
        -------
        ndarray of shape (B, C)
            Shares of the whole vote. The prior gets its weight and the weight that no entry has.
        """
        shares = shares * (1.0 - self.prior_weight)
        left = np.maximum(1.0 - shares.sum(axis=1, keepdims=True), 0.0)  # the sum is rounded
        return shares + left * prior


def padded_voters(
    memory: Memory, queries: NDArray[np.float32], weights: sparse.csr_array
) -> Voters:
    """Voters of queries from a sparse (B, N) matrix of weights; the prior has the rest.

    Entries with the largest weight come first, ties by position.
    """
    sizes = np.diff(weights.indptr)
    shape = (len(queries), int(sizes.max(initial=0)))
    row = np.repeat(np.arange(len(queries)), sizes)
    order = np.lexsort((weights.indices, -weights.data, row))
    place = np.arange(len(row)) - np.repeat(weights.indptr[:-1], sizes)
    positions, values = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    mask = np.zeros(shape, dtype=bool)
    positions[row, place] = weights.indices[order]
    values[row, place], mask[row, place] = weights.data[order], True
    keys = np.full(shape, np.inf)
    vectors, places = memory.vectors.gather(positions[row, place])
    keys[row, place] = keys_of_pairs(queries, vectors, row, places, memory.metric_)
    distances = memory.distances_of(keys)
    labels = np.where(mask, memory.entries.labels[positions], 0) if len(memory) else positions
    prior = np.maximum(1.0 - values.sum(axis=1), 0.0)
    return Voters(Neighbors(positions, labels, distances, mask), Weights(values, prior))


def sparse_weights(voters: Voters, n_entries: int) -> sparse.csr_array:
    """The weights of voters as a sparse matrix (B, N)."""
    row, place = np.nonzero(voters.neighbors.mask)
    columns = voters.neighbors.positions[row, place]
    shape = (len(voters.neighbors), n_entries)
    values = voters.weights.neighbors[row, place]
    return sparse.csr_array((values, (row, columns)), shape=shape)
