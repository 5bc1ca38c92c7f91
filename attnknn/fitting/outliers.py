"""Warn of single values that are so far from all others that they dominate distances.

Scaling by the variance is undone by one wrong value: all other rows look alike in its column. With
1,000 in one of 400 rows of a standard normal column, that column no longer tells classes apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.records import Floats

MIN_ROWS = 20  # with fewer, a value that is far from the others may be usual
ROWS_PER_OUTLIER = 1000  # so many rows may have one outlier in a column
MAX_SHARE = 0.05  # of the variance that is left without the outliers
ENORMOUS = 1e6  # beside values that are all alike, where the share says nothing
COLUMNS_AT_ONCE = 16  # more would copy more of a large table


def warn_of_outliers(
    embeddings: NDArray[Any], names: Sequence[Any] | None, ids: Sequence[Any], stacklevel: int
) -> None:
    """Name row and column of values that hold nearly all of the variance of their column.

    `embeddings` (n, D), `names` of the columns (None numbers them) and `ids` of the rows.
    """
    found = [] if len(embeddings) < MIN_ROWS else _outliers(embeddings)
    if not found:
        return
    row, position, times = found[0]
    column = position if names is None else repr(str(names[position]))
    deviations = f"{times:.2g} median absolute deviations from the median of its column"
    far = deviations if times < np.inf else "enormous beside the other values of its column"
    more = f" There are outliers in {len(found) - 1:,} more columns." if len(found) > 1 else ""
    warnings.warn(
        f"Row {ids[row]!r} has an outlier in column {column}: the value is {far}.{more} Outliers "
        "dominate the distances and the scaling. Correct them, or use "
        "`encoder=TableEncoder(scaling='quantile')`, which limits their effect.",
        stacklevel=stacklevel + 1,
    )


def _outliers(embeddings: NDArray[Any]) -> list[tuple[int, int, float]]:
    """Row, column and distance (in median absolute deviations) of the worst outlier by column."""
    found = []
    for start in range(0, embeddings.shape[1], COLUMNS_AT_ONCE):
        block = embeddings[:, start : start + COLUMNS_AT_ONCE].astype(np.float64)
        peaks = np.abs(block).max(axis=0)
        block /= np.where(peaks > 0, peaks, 1)  # keeps squares from overflow
        centered = np.square(block - block.mean(axis=0))
        # The farthest value alone must hold the share of an outlier; this is quick to compute.
        may_be = centered.max(axis=0) * _n_outliers(len(block)) > 0.9 * centered.sum(axis=0)
        for position in np.flatnonzero(may_be & (peaks > 0)).tolist():
            row, times = _farthest(block[:, position], float(peaks[position]))
            if times:
                found.append((row, start + position, times))
    return found


def _farthest(values: Floats, peak: float) -> tuple[int, float]:
    """Row of the farthest value, and its distance in median absolute deviations (0: no outlier)."""
    median = float(np.median(values))
    distances = np.abs(values - median)
    row, usual = int(distances.argmax()), float(np.median(distances))
    if not usual:  # most values are alike: rare amounts and indicators are no outliers
        is_enormous = distances[row] * peak > ENORMOUS * max(1.0, abs(median) * peak)
        return row, np.inf if is_enormous else 0.0
    squares = np.sort(np.square(distances))
    rest = squares[: -_n_outliers(len(values))].sum()
    return row, float(distances[row]) / usual if rest < MAX_SHARE * squares.sum() else 0.0


def _n_outliers(n_rows: int) -> int:
    return max(1, n_rows // ROWS_PER_OUTLIER)
