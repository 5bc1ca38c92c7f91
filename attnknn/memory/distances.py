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
Ranking = tuple[Integers, Floats]  # positions and keys (B, k) of the nearest, sorted
ROWS = 4096  # rows converted to float64 at a time: never the whole matrix
SMALLEST = 1e-36  # float32 holds smaller numbers with few digits, or none
FEW_COLUMNS = 8
BLOCK = 1 << 16  # numbers converted to float64 at once: they stay in the cache


def center_of(vectors: NDArray[Any]) -> Floats:
    """The mean of `vectors`, rounded to a grid of powers of two.

    With the origin there, float32 differences stay exact far from zero. On the grid, integers
    stay integers, so equal distances stay equal and the order of the rows does not matter.

    >>> center_of(np.array([[1000.0], [1001.0], [1007.0]])).tolist()
    [1002.0]
    """
    if not len(vectors):
        return np.zeros(vectors.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # `refuse_infinite` finds what overflows
        middle = sum(part.sum(axis=0) for part in _float64_blocks(vectors)) / len(vectors)
        squares = sum(np.square(part - middle).sum(axis=0) for part in _float64_blocks(vectors))
        spread = np.sqrt(squares / len(vectors))
        grid = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))))
        return np.asarray(np.round(middle / grid) * grid)


def centered(vectors: NDArray[Any], center: Floats) -> Vectors:
    """`vectors` minus `center`, computed in float64 and rounded once."""
    moved = np.empty(vectors.shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        return np.subtract(vectors, center, out=moved, casting="same_kind", dtype=np.float64)


def unit_length(vectors: NDArray[Any]) -> Vectors:
    """`vectors` scaled to unit length; a row of zeros is an error."""
    scaled = np.empty(vectors.shape, dtype=np.float32)
    for start, part in enumerate(_float64_blocks(vectors)):
        part = _without_extremes(part)
        lengths = np.sqrt(np.square(part).sum(axis=1, keepdims=True))
        if not lengths.all():
            row = start * ROWS + int(np.argmin(lengths))
            raise InvalidInputError(
                f"`metric='cosine'` needs rows with a direction, row {row} is all zeros."
            )
        scaled[start * ROWS : start * ROWS + len(part)] = part / lengths
    return scaled


def _without_extremes(vectors: Floats) -> Floats:
    """`vectors` with rows whose squares float64 cannot hold divided by their largest number."""
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    is_extreme = (largest > 0) & ~((largest > 1e-150) & (largest < 1e150))
    return vectors / np.where(is_extreme, largest, 1.0) if is_extreme.any() else vectors


def refuse_vanishing(vectors: NDArray[Any], prepared: Vectors) -> None:
    """Raise for rows whose differences are too small for float32."""
    if not prepared.size or max(prepared.max(), -prepared.min()) >= SMALLEST:
        return
    if (vectors.max(axis=0) > vectors.min(axis=0)).any():
        raise InvalidInputError(
            f"Embeddings must differ by at least {SMALLEST:g} to be compared in float32, but "
            "these differ by less. Scale the columns."
        )


def squared_lengths(vectors: NDArray[Any]) -> Floats:
    """|v|² of each row, in float64."""
    parts = [np.square(part).sum(axis=1) for part in _float64_blocks(vectors)]
    return np.concatenate(parts) if parts else np.zeros(0)


def refuse_infinite(vectors: Vectors) -> None:
    """Raise for NaN, infinities and numbers that float32 cannot hold."""
    if vectors.size and not (np.isfinite(vectors.min()) and np.isfinite(vectors.max())):
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InvalidInputError(
            f"Embeddings must be finite and fit into float32, row {row} does not. "
            "Scale the columns, or fill in missing values."
        )


def _float64_blocks(vectors: NDArray[Any]) -> Iterator[Floats]:
    for start in range(0, len(vectors), ROWS):
        yield np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float64)


def keys_between(left: NDArray[Any], right: NDArray[Any], metric: str) -> Floats:
    """Squared Euclidean distance, or minus the inner product, along the last axis.

    >>> keys_between(np.array([3.0, 0.0]), np.array([[0.0, 4.0]]), "euclidean").tolist()
    [25.0]
    """
    if metric == "inner_product":
        return 0.0 - _row_sums(np.multiply(left, right, dtype=np.float64))  # never -0.0
    difference = np.subtract(left, right, dtype=np.float64)
    return _row_sums(np.square(difference, out=difference))


def _row_sums(values: Floats) -> Floats:
    """Sums along the last axis, in an order that only its length decides."""
    n_columns = values.shape[-1]
    if not 1 <= n_columns <= FEW_COLUMNS:
        return np.asarray(values.sum(axis=-1))
    total = np.array(values[..., 0])
    for column in range(1, n_columns):  # NumPy's sum of short rows takes several times as long
        total += values[..., column]
    return total


def keys_at(queries: Vectors, vectors: Vectors, positions: Integers, metric: str) -> Floats:
    """The key of each query (B, D) with its own candidates, `vectors[positions]`: (B, M)."""
    keys = np.empty(positions.shape)
    step = max(1, BLOCK // max(1, positions.shape[1] * queries.shape[1]))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        candidates = vectors.take(positions[rows], axis=0)  # (b, M, D)
        keys[rows] = keys_between(queries[rows, None], candidates, metric)
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


def in_order(positions: Integers, keys: Floats, lookup: IdLookup, k: int) -> Ranking:
    """Candidates (B, M) sorted by key, then id, and cut to the first `k`."""
    order, ordered = order_by(keys, lambda rows: lookup.ranks(positions[rows]))
    return _in_places(positions, order[:, :k]), ordered[:, :k]


def order_by(keys: Floats, ranks_of: Callable[[Booleans], Integers]) -> tuple[Integers, Floats]:
    """The order (B, M) of the keys of each row, and the keys in this order.

    Equal keys are ordered by the ranks that `ranks_of` returns for the rows with ties.

    >>> order_by(np.array([[2.0, 1.0, 1.0]]), lambda rows: np.array([[0, 8, 7]]))[0].tolist()
    [[2, 1, 0]]
    """
    order = np.argsort(keys, axis=1)
    ordered = _in_places(keys, order)
    tied = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < np.inf)).any(axis=1)
    if tied.any():
        order[tied] = np.lexsort((ranks_of(tied), keys[tied]), axis=1)
    return order, ordered


def _in_places(array: NDArray[Any], order: Integers) -> NDArray[Any]:
    """`take_along_axis`, which takes longer to begin than to do for a single row."""
    if len(order) == 1:
        return array[:, order[0]]
    return np.take_along_axis(array, order, axis=1)


def first_of_each(
    rows: Integers, positions: Integers, keys: Floats, lookup: IdLookup, n_rows: int, k: int
) -> Ranking:
    """The first `k` pairs of each row, sorted by key and id; missing places have key infinity."""
    if not len(rows):
        return np.zeros((n_rows, k), np.int64), np.full((n_rows, k), np.inf)
    order = np.lexsort((lookup.ranks(positions), keys, rows))
    starts = np.searchsorted(rows[order], np.arange(n_rows + 1))
    slots = starts[:-1, None] + np.arange(k)
    mask = slots < starts[1:, None]
    chosen = order[np.where(mask, slots, 0)]
    return np.where(mask, positions[chosen], 0), np.where(mask, keys[chosen], np.inf)
