"""Which queries lie within the reach of which entries: who would take a newcomer in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnknn.memory.distances import Vectors, keys_between, squared_lengths
from attnknn.memory.error_bounds import SMALLEST, Slack
from attnknn.records import Booleans, Floats, Integers

BLOCK = 1 << 24  # numbers held at once
ROWS_AT_ONCE = 32  # queries whose largest value is looked at first
MARGIN = 2.0**-22  # what float32 may lose when two numbers are subtracted, and some more


@dataclass(frozen=True)
class RangeMatches:
    """Pairs of queries and entries, (P,) each: which query, which entry, and their key."""

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

    def part(self, chosen: Booleans) -> RangeMatches:
        """Some of the pairs."""
        return RangeMatches(self.queries[chosen], self.positions[chosen], self.keys[chosen])


def range_search_reference(
    queries: Vectors, vectors: Vectors, reach: Floats, metric: str
) -> RangeMatches:
    """Every key by its definition: the reference."""
    parts = []
    step = max(1, BLOCK // max(1, vectors.size))
    for start in range(0, len(queries), step):
        keys = keys_between(queries[start : start + step, None], vectors[None], metric)
        rows, positions = np.nonzero(keys <= reach)
        parts.append(RangeMatches(rows + start, positions, keys[rows, positions]))
    return RangeMatches.joined(parts)


def lowest_bounds(queries: Vectors, reach: Floats, slack: Slack) -> tuple[Vectors, Vectors]:
    """A (B,) and h (N,): a pair whose product minus penalty is below A − h is out of reach.

    A pair is in reach where its similarity (see `rounding`) is at least (|q|² − reach)/2; the
    product may be too small by its slack, and the difference A − h by its rounding.
    """
    squares = squared_lengths(queries)
    with np.errstate(over="ignore"):
        if slack.is_inner_product:
            lowest, half = -slack.share * np.sqrt(squares) * slack.reach, reach.copy()
        else:
            lowest, half = squares * (0.5 - slack.share / 2), reach / 2
        lowest = lowest - MARGIN * np.abs(lowest) - SMALLEST
        half = half + MARGIN * np.where(np.isfinite(half), np.abs(half), 0.0)
        down, up = np.float32(-np.inf), np.float32(np.inf)
        return (
            np.nextafter(lowest.astype(np.float32), down),
            np.nextafter(half.astype(np.float32), up),
        )


def pairs_above(values: Vectors, lowest: Vectors, half: Vectors) -> tuple[Integers, Integers]:
    """Where `values` (B, N) are at least `lowest` (B,) − `half` (N,); `lowest` rises.

    The largest value of some rows rules most columns out for all of them at once.
    """
    rows, columns = [], []
    for start in range(0, len(values), ROWS_AT_ONCE):
        block, least = values[start : start + ROWS_AT_ONCE], lowest[start : start + ROWS_AT_ONCE]
        some = np.flatnonzero(block.max(axis=0) >= least[0] - half)
        row, column = np.nonzero(block[:, some] >= least[:, None] - half[some])
        rows.append(row + start)
        columns.append(some[column])
    return np.concatenate(rows), np.concatenate(columns)
