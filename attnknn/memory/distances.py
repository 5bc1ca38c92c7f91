"""Vectors as memories compare them, and exact distances in float64.

All exact memories end here, so they agree to the last bit: the key of a pair depends on nothing
but the two vectors, not on the batch or on the order of the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError
from attnknn.memory.entries import IdLookup
from attnknn.records import Booleans, Floats, Integers

Vectors = NDArray[np.float32]
ROWS = 4096  # rows widened to float64 at a time: never the whole matrix


def center_of(vectors: NDArray[Any]) -> Floats:
    """A point near the middle of `vectors`, on a grid of powers of two.

    Moving the origin there keeps float32 differences exact far from zero; on the grid, whole
    numbers stay whole, so equal distances stay equal and the order of the rows does not matter.

    >>> center_of(np.array([[1000.0], [1001.0], [1007.0]])).tolist()
    [1002.0]
    """
    if not len(vectors):
        return np.zeros(vectors.shape[1])
    middle = sum(part.sum(axis=0) for part in _wide(vectors)) / len(vectors)
    squares = sum(np.square(part - middle).sum(axis=0) for part in _wide(vectors))
    spread = np.sqrt(squares / len(vectors))
    grid = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))))
    return np.asarray(np.round(middle / grid) * grid)


def centered(vectors: NDArray[Any], center: Floats) -> Vectors:
    """`vectors` seen from `center`; the difference is taken in float64, then rounded once."""
    moved = np.empty(vectors.shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        return np.subtract(vectors, center, out=moved, casting="same_kind", dtype=np.float64)


def unit_length(vectors: NDArray[Any]) -> Vectors:
    """`vectors` scaled to length one; a row of zeros has no direction and is an error."""
    scaled = np.empty(vectors.shape, dtype=np.float32)
    for start, part in enumerate(_wide(vectors)):
        lengths = np.sqrt(np.square(part).sum(axis=1, keepdims=True))
        if not lengths.all():
            row = start * ROWS + int(np.argmin(lengths))
            raise InvalidInputError(
                f"`metric='cosine'` needs rows with a direction, row {row} is all zeros."
            )
        scaled[start * ROWS : start * ROWS + len(part)] = part / lengths
    return scaled


def squared_lengths(vectors: NDArray[Any]) -> Floats:
    """|v|² of each row, in float64."""
    parts = [np.square(part).sum(axis=1) for part in _wide(vectors)]
    return np.concatenate(parts) if parts else np.zeros(0)


def refuse_infinite(vectors: Vectors) -> None:
    """An error for NaN, infinities and numbers that float32 cannot hold."""
    if vectors.size and not (np.isfinite(vectors.min()) and np.isfinite(vectors.max())):
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InvalidInputError(
            f"Embeddings must be finite and fit into float32, row {row} does not. "
            "Scale the columns, or fill what is missing."
        )


def _wide(vectors: NDArray[Any]) -> Iterator[Floats]:
    for start in range(0, len(vectors), ROWS):
        yield np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float64)


BLOCK = 1 << 16  # numbers widened at once: they stay in the cache


def keys_between(left: NDArray[Any], right: NDArray[Any], metric: str) -> Floats:
    """Squared Euclidean distance, or minus the inner product, along the last axis.

    >>> keys_between(np.array([3.0, 0.0]), np.array([[0.0, 4.0]]), "euclidean").tolist()
    [25.0]
    """
    if metric == "inner_product":
        return 0.0 - np.multiply(left, right, dtype=np.float64).sum(axis=-1)  # never -0.0
    difference = np.subtract(left, right, dtype=np.float64)
    return np.asarray(np.square(difference, out=difference).sum(axis=-1))


def keys_at(queries: Vectors, vectors: Vectors, positions: Integers, metric: str) -> Floats:
    """The key of each query (B, D) with its own candidates, `vectors[positions]`: (B, M)."""
    keys = np.empty(positions.shape)
    step = max(1, BLOCK // max(1, positions.shape[1] * queries.shape[1]))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        theirs = vectors.take(positions[rows], axis=0)  # (b, M, D)
        keys[rows] = keys_between(queries[rows, None], theirs, metric)
    return keys


def keys_of_pairs(
    queries: Vectors, vectors: Vectors, rows: Integers, positions: Integers, metric: str
) -> Floats:
    """The keys of single pairs: query `rows[i]` with entry `positions[i]`."""
    keys = np.empty(len(rows))
    step = max(1, BLOCK // max(1, queries.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        keys[part] = keys_between(queries[rows[part]], vectors[positions[part]], metric)
    return keys


def in_order(
    positions: Integers, keys: Floats, lookup: IdLookup, k: int
) -> tuple[Integers, Floats]:
    """Candidates (B, M) sorted by key, then id, and cut to the first `k`."""
    order, ordered = order_by(keys, lambda rows: lookup.ranks(positions[rows]))
    return np.take_along_axis(positions, order[:, :k], axis=1), ordered[:, :k]


def order_by(keys: Floats, ranks_of: Callable[[Booleans], Integers]) -> tuple[Integers, Floats]:
    """The order (B, M) of the keys of each row, and the keys in this order.

    Equal keys go by the ranks that `ranks_of` gives for the rows that have some.

    >>> order_by(np.array([[2.0, 1.0, 1.0]]), lambda rows: np.array([[0, 8, 7]]))[0].tolist()
    [[2, 1, 0]]
    """
    order = np.argsort(keys, axis=1)
    ordered = np.take_along_axis(keys, order, axis=1)
    tied = _have_ties(ordered)
    if tied.any():
        order[tied] = np.lexsort((ranks_of(tied), keys[tied]), axis=1)
    return order, ordered


def first_of_each(
    rows: Integers, positions: Integers, keys: Floats, lookup: IdLookup, n_rows: int, k: int
) -> tuple[Integers, Floats]:
    """Pairs sorted by row, key and id, the first `k` of each row; missing places have key inf."""
    order = np.lexsort((lookup.ranks(positions), keys, rows))
    starts = np.searchsorted(rows[order], np.arange(n_rows + 1))
    slots = starts[:-1, None] + np.arange(k)
    mask = slots < starts[1:, None]
    chosen = order[np.where(mask, slots, 0)] if len(order) else np.zeros((n_rows, k), np.int64)
    if not len(order):
        return chosen, np.full((n_rows, k), np.inf)
    return np.where(mask, positions[chosen], 0), np.where(mask, keys[chosen], np.inf)


def _have_ties(ordered: Floats) -> Booleans:
    same = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < np.inf)
    return np.asarray(same.any(axis=1))
