"""Exact search by definition, in float64: the reference for the other memories."""

from __future__ import annotations

import numpy as np

from attnknn.memory.base import Memory
from attnknn.memory.distances import Ranking, Vectors, in_order, keys_between
from attnknn.records import Integers
from attnknn.registry import register

BLOCK = 1 << 24  # numbers held at once


@register("memory", "numpy")
class NumpyMemory(Memory):
    """Exact search that computes every distance by its definition, without an index.

    Examples
    --------
    >>> from attnknn.memory import make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    def build_index(self) -> None:
        pass

    def find_nearest(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        positions, ordered = [], []
        step = max(1, BLOCK // max(1, self.vectors.all().size))
        for start in range(0, len(queries), step):
            block = slice(start, start + step)
            keys = keys_between(queries[block, None], self.vectors.all()[None], self.metric_)
            if exclude is not None:
                keys[self.exclusion.pairs(exclude[block])] = np.inf
            candidates = np.broadcast_to(np.arange(keys.shape[1]), keys.shape)
            nearest = in_order(candidates, keys, self.id_lookup, k)
            positions.append(nearest[0])
            ordered.append(nearest[1])
        return np.concatenate(positions), np.concatenate(ordered)
