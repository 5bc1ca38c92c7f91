"""Array types, and the record of neighbors that a search returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Neighbors:
    """Neighbors of each query: nearest first, ties by id.

    Where a query has fewer than K neighbors, `mask` is False and the distance infinite; position
    and label are then 0 and meaningless.

    Parameters
    ----------
    positions : (B, K) rows of the memory, valid until its next edit
    labels : (B, K) label codes
    distances : (B, K) smaller is closer; what they measure is the memory's `metric`
    mask : (B, K) True for a neighbor, False for padding
    """

    positions: Integers
    labels: Integers
    distances: Floats
    mask: Booleans

    def nearest(self, k: int) -> Neighbors:
        """The `k` nearest neighbors only."""
        if k >= self.positions.shape[1]:
            return self
        return Neighbors(
            self.positions[:, :k], self.labels[:, :k], self.distances[:, :k], self.mask[:, :k]
        )

    def rows(self, chosen: Any) -> Neighbors:
        """The neighbors of some of the queries."""
        return Neighbors(
            self.positions[chosen], self.labels[chosen], self.distances[chosen], self.mask[chosen]
        )

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Weights:
    """Weights of the neighbors and of the prior in a vote.

    Weights are not negative; those of a row sum to one.

    Parameters
    ----------
    neighbors : ndarray of shape (B, K)
        Weights of the neighbors.
    prior : ndarray of shape (B,)
        Weights of the prior.

    Examples
    --------
    >>> Weights(np.array([[0.5, 0.5]]), np.array([0.0])).effective_neighbors
    array([2.])
    """

    neighbors: Floats
    prior: Floats

    @property
    def effective_neighbors(self) -> Floats:
        """Number (B,) of equally weighted voters with the same concentration, prior included."""
        return 1.0 / (np.square(self.neighbors).sum(axis=1) + np.square(self.prior))
