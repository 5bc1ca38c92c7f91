"""The columns of each row that may hold its largest numbers, found by the maxima of groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.memory.preparation import Vectors
from attnknn.records import Booleans, Integers

if TYPE_CHECKING:
    from torch import Tensor

WIDEST_GROUP = 128  # a row that is to be searched by groups has a multiple of this many columns
CROWD = 4  # a row may keep so many times the number asked for; ties could be without end


@dataclass(frozen=True)
class Candidates:
    """The columns with the largest numbers of each row, and what the others stay below.

    Parameters
    ----------
    columns : (B, M), -1 where there is none
    values : (B, M) the numbers in these columns, minus infinity where there is none
    rest : (B,) no other number of the row is larger; minus infinity where there is none
    """

    columns: Integers
    values: Vectors
    rest: Vectors


def largest(values: Vectors, m: int) -> Candidates:
    """At least the `m` largest numbers of each row that are finite, on one thread.

    The `m`-th largest of the maxima of groups is at most the `m`-th largest number. So all numbers
    above it are taken, and they are in the groups whose maximum is above it. A group is a column
    of the row folded into (size, n_groups), so that the maxima are taken of long rows.

    >>> found = largest(np.arange(1024, dtype=np.float32)[None], 2)
    >>> found.columns.tolist(), found.rest.tolist()
    ([[1022, 1023]], [1022.0])
    """
    size = group_size(values.shape[1], m)
    groups = values.reshape(len(values), size, -1)
    maxima = groups.max(axis=1)  # (B, n_groups)
    n_groups = maxima.shape[1]
    place = max(0, n_groups - m)
    level = np.partition(maxima, place, axis=1)[:, place] if m <= n_groups else _nothing(values)
    hot = (maxima >= level[:, None]) & (maxima > -np.inf)
    is_crowded = _thinned(hot, CROWD * m)
    row, group = np.nonzero(hot)
    inside = groups[row, :, group]  # (P, size)
    pair, member = np.nonzero((inside >= level[row, None]) & (inside > -np.inf))
    found = _packed(row[pair], member * n_groups + group[pair], inside[pair, member], len(values))
    if found.columns.shape[1] > CROWD * m:
        is_crowded |= found.columns[:, CROWD * m] >= 0
    rest = np.where(is_crowded, np.float32(np.inf), level)
    return Candidates(found.columns[:, : CROWD * m], found.values[:, : CROWD * m], rest)


def largest_of_one(values: Vectors, m: int) -> Candidates:
    """`largest` for a single row (N,)."""
    size = group_size(padded(len(values)), m)
    n_groups = len(values) // size
    whole, remainder = values[: n_groups * size], values[n_groups * size :]
    maxima = np.concatenate([whole.reshape(size, n_groups).max(axis=0), remainder])
    place = len(maxima) - m
    level = np.partition(maxima, place)[place] if place >= 0 else np.float32(-np.inf)
    columns = np.flatnonzero((values >= level) & (values > -np.inf))
    rest = level if len(columns) <= CROWD * m else np.float32(np.inf)
    columns = columns[None, : CROWD * m]
    return Candidates(columns, values[columns], np.array([rest], dtype=np.float32))


def largest_on_device(values: Tensor, m: int) -> Candidates:
    """Exactly the `m` largest numbers of each row, on the device that holds them."""
    top, columns = values.topk(min(m, values.shape[1]), sorted=False)
    found, rest = top.cpu().numpy(), top.amin(dim=1).cpu().numpy()
    return Candidates(np.where(found > -np.inf, columns.cpu().numpy(), -1), found, rest)


def merged(parts: list[Candidates], m: int) -> Candidates:
    """The candidates for rows that were searched in several parts."""
    if len(parts) == 1:
        return parts[0]
    columns = np.concatenate([part.columns for part in parts], axis=1)
    best = largest(np.concatenate([part.values for part in parts], axis=1), m)
    chosen = np.take_along_axis(columns, np.maximum(best.columns, 0), axis=1)
    rest = np.max([best.rest, *(part.rest for part in parts)], axis=0)
    return Candidates(np.where(best.columns < 0, -1, chosen), best.values, rest)


def stacked(parts: list[Candidates]) -> Candidates:
    """The candidates of several sets of rows, one below the other."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.columns.shape[1] for part in parts)

    def filled(array: NDArray[Any], filling: float) -> NDArray[Any]:
        missing = ((0, 0), (0, width - array.shape[1]))
        return np.pad(array, missing, constant_values=filling)

    return Candidates(
        np.concatenate([filled(part.columns, -1) for part in parts]),
        np.concatenate([filled(part.values, -np.inf) for part in parts]),
        np.concatenate([part.rest for part in parts]),
    )


def group_size(width: int, m: int) -> int:
    """The size that makes the two selections cost about the same; 1 where groups do not pay."""
    size = 1 << round(math.log2(max(1.0, math.sqrt(width / m))))
    return 1 if size < 4 or width % WIDEST_GROUP else min(size, WIDEST_GROUP)


def padded(width: int) -> int:
    """`width` rounded up to whole groups."""
    return -(-width // WIDEST_GROUP) * WIDEST_GROUP


def _nothing(values: Vectors) -> Vectors:
    return np.full(len(values), -np.inf, dtype=np.float32)


def _thinned(hot: Booleans, most: int) -> Booleans:
    """Keep the first `most` of each row, in place; say which rows had more."""
    is_crowded = hot.sum(axis=1) > most
    if is_crowded.any():
        hot[is_crowded] &= np.cumsum(hot[is_crowded], axis=1) <= most
    return np.asarray(is_crowded)


def _packed(row: Integers, column: Integers, value: Vectors, n_rows: int) -> Candidates:
    """Single finds, in order of row, side by side."""
    counts = np.bincount(row, minlength=n_rows)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.full((n_rows, counts.max(initial=0)), -1, dtype=np.int64)
    values = np.full(columns.shape, -np.inf, dtype=np.float32)
    columns[row, slot], values[row, slot] = column, value
    return Candidates(columns, values, _nothing(columns))
