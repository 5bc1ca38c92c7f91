"""Losses row by row, of which metrics are means and intervals are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.metrics.checking import checked
from attnknn.records import Booleans, Floats

FLOOR = float(np.finfo(np.float64).eps)  # 2.2e-16, as in scikit-learn's log_loss


def row_correct(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Booleans:
    """For each row whether its most probable class is the true one.

    >>> row_correct([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    array([ True, False])
    """
    codes, table = checked(y_true, probabilities, classes)
    return table.argmax(axis=1) == codes


def row_nll(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Floats:
    """For each row −log p(true class), with the floor of `nll`.

    >>> row_nll([0, 1], [[0.9, 0.1], [0.6, 0.4]]).round(3)
    array([0.105, 0.916])
    """
    codes, table = checked(y_true, probabilities, classes)
    return -np.log(np.maximum(table[np.arange(len(codes)), codes], FLOOR))


def row_brier(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Floats:
    """For each row Σ_c (p_c − [c is true])².

    >>> row_brier([0, 1], [[0.9, 0.1], [0.6, 0.4]]).round(3)
    array([0.02, 0.72])
    """
    codes, table = checked(y_true, probabilities, classes)
    errors = table.copy()
    errors[np.arange(len(codes)), codes] -= 1.0
    return np.square(errors).sum(axis=1)
