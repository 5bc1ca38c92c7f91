"""Range search: the pairs of a query and an entry whose key is at most the radius of the entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnknn.memory.distances import Vectors, keys_between, squared_lengths
from attnknn.memory.error_bounds import MIN_PRODUCT, ErrorBounds
from attnknn.records import Booleans, Floats, Integers

BLOCK = 1 << 24  # numbers held at once
BLOCK_ROWS = 32  # queries whose maximum rules out entries at once
MARGIN = 2.0**-22  # more than the rounding error of a float32 subtraction


@dataclass(frozen=True)
class RangeMatches:
    """Pairs of queries and entries: index of the query, position of the entry, key; (P,) each."""

    queries: Integers
    positions: Integers
    keys: Floats

    @classmethod
    def joined(cls, parts: Sequence[RangeMatches]) -> RangeMatches:
        """All pairs of several parts."""
        none = np.zeros(0, dtype=np.int64)
        return cls(
            np.concatenate([none, *(part.queries for part in parts)]),
            np.concatenate([none, *(part.positions for part in parts)]),
            np.concatenate([none.astype(float), *(part.keys for part in parts)]),
        )

    def shifted(self, n: int) -> RangeMatches:
        """The pairs of a block of entries that begins at position `n`."""
        return RangeMatches(self.queries, self.positions + n, self.keys) if n else self

    def take(self, chosen: Booleans) -> RangeMatches:
        """Some of the pairs."""
        return RangeMatches(self.queries[chosen], self.positions[chosen], self.keys[chosen])


def range_search_reference(
    queries: Vectors, vectors: Vectors, radii: Floats, metric: str
) -> RangeMatches:
    """Every key by its definition: the reference."""
    parts = []
    step = max(1, BLOCK // max(1, vectors.size))
    for start in range(0, len(queries), step):
        keys = keys_between(queries[start : start + step, None], vectors[None], metric)
        rows, positions = np.nonzero(keys <= radii)
        parts.append(RangeMatches(rows + start, positions, keys[rows, positions]))
    return RangeMatches.joined(parts)


class RangeFilter:
    """Collects the pairs of queries (B, D) and entries that float32 products do not rule out.

    Queries are sorted by their bound, so that one comparison serves many of them.
    """

    def __init__(self, queries: Vectors, radii: Floats, bounds: ErrorBounds) -> None:
        lowest, self._half = lower_limits(queries, radii, bounds)
        self.order = np.argsort(lowest)
        self.queries, self.radii, self._lowest = queries[self.order], radii, lowest[self.order]
        self._rows: list[Integers] = []
        self._positions: list[Integers] = []

    def add(self, first: int, similarities: Vectors) -> None:
        """Filter a chunk (B, C) of products minus penalties that begins with entry `first`."""
        half = self._half[first : first + similarities.shape[1]]
        row, column = pairs_above(similarities, self._lowest, half)
        self._rows.append(row)
        self._positions.append(column + first)

    def pairs(self) -> tuple[Integers, Integers]:
        """Index into the sorted queries, and position, of each pair."""
        return np.concatenate(self._rows), np.concatenate(self._positions)


def lower_limits(queries: Vectors, radii: Floats, bounds: ErrorBounds) -> tuple[Vectors, Vectors]:
    """A (B,) and h (N,): a pair whose product minus penalty is below A − h is out of range.

    A pair is in range where its similarity (see `error_bounds`) is at least (|q|² − radius)/2; the
    product may be too small by its error, and the difference A − h by its rounding.
    """
    squares = squared_lengths(queries)
    with np.errstate(over="ignore"):
        if bounds.is_inner_product:
            lowest = -bounds.relative_error * np.sqrt(squares) * bounds.max_length
            half = radii.copy()
        else:
            lowest, half = squares * (0.5 - bounds.relative_error / 2), radii / 2
        lowest = lowest - MARGIN * np.abs(lowest) - MIN_PRODUCT
        half = half + MARGIN * np.where(np.isfinite(half), np.abs(half), 0.0)
        down, up = np.float32(-np.inf), np.float32(np.inf)
        return (
            np.nextafter(lowest.astype(np.float32), down),
            np.nextafter(half.astype(np.float32), up),
        )


def pairs_above(values: Vectors, lowest: Vectors, half: Vectors) -> tuple[Integers, Integers]:
    """Where `values` (B, N) are at least `lowest` (B,) − `half` (N,); `lowest` is ascending.

    The maximum over some rows rules out most columns for all of these rows at once.
    """
    rows, columns = [], []
    for start in range(0, len(values), BLOCK_ROWS):
        block, least = values[start : start + BLOCK_ROWS], lowest[start : start + BLOCK_ROWS]
        some = np.flatnonzero(block.max(axis=0) >= least[0] - half)
        row, column = np.nonzero(block[:, some] >= least[:, None] - half[some])
        rows.append(row + start)
        columns.append(some[column])
    return np.concatenate(rows), np.concatenate(columns)
