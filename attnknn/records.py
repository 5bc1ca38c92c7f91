"""The frozen records that pass between stages."""

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
    """What a search returns: per query its nearest entries, nearest first, ties by id.

    A place for which there was no entry has `mask` False, distance infinity, and position, label
    0 that mean nothing.

    Parameters
    ----------
    positions : (B, K) rows of the memory, valid until its next edit
    labels : (B, K) label codes
    distances : (B, K) smaller is closer; what they measure is the memory's `metric`
    mask : (B, K) True where there is an entry
    """

    positions: Integers
    labels: Integers
    distances: Floats
    mask: Booleans

    def nearest(self, k: int) -> Neighbors:
        """The same record cut to the `k` nearest places."""
        if k >= self.positions.shape[1]:
            return self
        return Neighbors(
            self.positions[:, :k], self.labels[:, :k], self.distances[:, :k], self.mask[:, :k]
        )

    def rows(self, chosen: Any) -> Neighbors:
        """The same record for some of the queries."""
        return Neighbors(
            self.positions[chosen], self.labels[chosen], self.distances[chosen], self.mask[chosen]
        )

    def __len__(self) -> int:
        return len(self.positions)
