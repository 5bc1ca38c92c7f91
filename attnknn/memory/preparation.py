"""Vectors become what a memory compares: float32, near the origin or of unit length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError
from attnknn.records import Floats

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
