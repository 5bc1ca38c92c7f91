"""How good labels and probabilities are, without bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.metrics.checking import checked
from attnknn.metrics.rows import row_brier, row_correct, row_nll
from attnknn.records import Integers


def accuracy(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Share of rows whose most probable class is the true one. Higher is better, 0..1.

    >>> accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    return float(row_correct(y_true, probabilities, classes=classes).mean())


def balanced_accuracy(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean over the classes that occur in `y_true` of their recall. Higher is better, 0..1.

    >>> balanced_accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.75
    """
    counts = confusion_matrix(y_true, probabilities, classes=classes)
    occurring = counts.sum(axis=1) > 0
    return float((np.diag(counts)[occurring] / counts.sum(axis=1)[occurring]).mean())


def macro_f1(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean F1 over the classes that occur or are predicted. Higher is better, 0..1.

    F1 of a class is 2·hits / (rows of the class + rows predicted as the class).

    >>> macro_f1([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    counts = confusion_matrix(y_true, probabilities, classes=classes)
    totals = counts.sum(axis=0) + counts.sum(axis=1)
    seen = totals > 0
    return float((2 * np.diag(counts)[seen] / totals[seen]).mean())


def confusion_matrix(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Integers:
    """Rows counted by true class (down) and predicted class (across), (C, C).

    >>> confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    array([[1, 0],
           [1, 1]])
    """
    codes, table = checked(y_true, probabilities, classes)
    n_classes = table.shape[1]
    cells = codes * n_classes + table.argmax(axis=1)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


def nll(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean of −log p(true class), in nats. Lower is better, 0..36.04.

    A probability of zero counts as 2.2e-16, as in scikit-learn's `log_loss`, so that one row costs
    at most 36.04: dear, but the mean stays a number that tables can hold.

    >>> round(nll([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.4149
    """
    return float(row_nll(y_true, probabilities, classes=classes).mean())


def brier(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean of Σ_c (p_c − [c is true])². Lower is better, 0..2.

    >>> round(brier([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.2733
    """
    return float(row_brier(y_true, probabilities, classes=classes).mean())
