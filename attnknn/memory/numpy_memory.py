"""The plain memory: every distance by its definition, in float64. The reference for the others."""

from __future__ import annotations

import numpy as np

from attnknn.memory.base import Memory
from attnknn.memory.distances import Vectors, in_order, keys_between
from attnknn.records import Floats, Integers
from attnknn.registry import register

BLOCK = 1 << 24  # numbers held at once


@register("memory", "numpy")
class NumpyMemory(Memory):
    """Exact search without an index.

    >>> from attnknn.memory import make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    def _index(self) -> None:
        """Nothing to build: the entries are the index."""

    def _nearest(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        step = max(1, BLOCK // max(1, self.entries.embeddings.size))
        blocks = [
            self._nearest_block(
                queries[start : start + step],
                k,
                None if exclude is None else exclude[start : start + step],
            )
            for start in range(0, len(queries), step)
        ]
        return np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])

    def _nearest_block(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        keys = keys_between(queries[:, None], self.entries.embeddings[None], self.metric_)
        if exclude is not None:
            keys[self._left_out(exclude)] = np.inf
        everyone = np.broadcast_to(np.arange(keys.shape[1]), keys.shape)
        return in_order(everyone, keys, self._lookup, k)
