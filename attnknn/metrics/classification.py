"""Metrics of labels and probabilities: accuracy, log-loss, Brier score, per row and in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.metrics.calibration import debiased_ece, ece
from attnknn.metrics.validation import check_inputs
from attnknn.records import Booleans, Floats, Integers

FLOOR = float(np.finfo(np.float64).eps)  # 2.2e-16, as in scikit-learn's log_loss
HIGHER_IS_BETTER = {
    "accuracy": True,
    "balanced_accuracy": True,
    "macro_f1": True,
    "nll": False,
    "brier": False,
    "ece": False,
    "debiased_ece": False,
}


@dataclass(frozen=True)
class Scores:
    """The usual metrics of one set of probabilities; `HIGHER_IS_BETTER` has their directions.

    Attributes
    ----------
    accuracy, balanced_accuracy, macro_f1, nll, brier : float
        As the functions of these names return them.
    ece : float
        Expected calibration error with 15 bins of equal width.
    debiased_ece : float
        Debiased expected calibration error with 15 bins of equal mass.

    Examples
    --------
    >>> score_all([0, 1], [[0.9, 0.1], [0.2, 0.8]]).to_dict()["accuracy"]
    1.0
    """

    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    nll: float
    brier: float
    ece: float
    debiased_ece: float

    def to_dict(self) -> dict[str, float]:
        """Convert to a dict, ready for JSON.

        Returns
        -------
        dict
            The scores by name.
        """
        return asdict(self)


def score_all(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Scores:
    """Compute the usual metrics at once.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        True labels: integer codes from 0 in the order of the columns, or values of `classes`.
    probabilities : array-like of shape (n_rows, n_classes)
        Class probabilities.
    classes : sequence, default=None
        Label of each column; None if `y_true` contains integer codes.

    Returns
    -------
    Scores
        Seven metrics.

    Examples
    --------
    >>> scores = score_all([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> scores.accuracy, round(scores.brier, 4)
    (0.6666666666666666, 0.2733)
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    return Scores(
        accuracy=accuracy(codes, table),
        balanced_accuracy=balanced_accuracy(codes, table),
        macro_f1=macro_f1(codes, table),
        nll=nll(codes, table),
        brier=brier(codes, table),
        ece=ece(codes, table),
        debiased_ece=debiased_ece(codes, table),
    )


def accuracy(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the share of rows whose most probable class is the true one.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    float
        Accuracy between 0 and 1; higher is better.

    Examples
    --------
    >>> accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    return float(row_correct(y_true, probabilities, classes=classes).mean())


def balanced_accuracy(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the mean recall of the classes that occur in `y_true`.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    float
        Balanced accuracy between 0 and 1; higher is better.

    Examples
    --------
    >>> balanced_accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.75
    """
    return mean_recall(confusion_matrix(y_true, probabilities, classes=classes))


def macro_f1(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the mean F1 score of the classes that occur or are predicted.

    F1 of a class is 2·hits / (rows of the class + rows predicted as the class).

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    float
        Macro F1 between 0 and 1; higher is better.

    Examples
    --------
    >>> macro_f1([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    return mean_f1(confusion_matrix(y_true, probabilities, classes=classes))


def confusion_matrix(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Integers:
    """Count rows by true class and predicted class.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    ndarray of shape (n_classes, n_classes)
        Counts, with true classes in rows and predicted classes in columns.

    Examples
    --------
    >>> confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    array([[1, 0],
           [1, 1]])
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    n_classes = table.shape[1]
    cells = codes * n_classes + table.argmax(axis=1)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


def mean_recall(counts: Integers) -> float:
    """`balanced_accuracy` of a confusion matrix."""
    occurring = counts.sum(axis=1) > 0
    return float((np.diag(counts)[occurring] / counts.sum(axis=1)[occurring]).mean())


def mean_f1(counts: Integers) -> float:
    """`macro_f1` of a confusion matrix."""
    totals = counts.sum(axis=0) + counts.sum(axis=1)
    seen = totals > 0
    return float((2 * np.diag(counts)[seen] / totals[seen]).mean())


def nll(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the mean negative log-likelihood −log p(true class), the log-loss.

    A probability of zero counts as 2.2e-16, as in scikit-learn's `log_loss`: one row adds at most
    36.04, and the mean stays finite.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    float
        Log-loss in nats, between 0 and 36.04; lower is better.

    Examples
    --------
    >>> round(nll([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.4149
    """
    return float(row_nll(y_true, probabilities, classes=classes).mean())


def brier(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the Brier score, the mean of Σ_c (p_c − [c is true])².

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    float
        Brier score between 0 and 2; lower is better. For two classes it is twice the usual score,
        which counts one class only.

    Examples
    --------
    >>> round(brier([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.2733
    """
    return float(row_brier(y_true, probabilities, classes=classes).mean())


def row_correct(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Booleans:
    """Check for each row whether its most probable class is the true one.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    ndarray of shape (n_rows,)
        True where the prediction is right.

    Examples
    --------
    >>> row_correct([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    array([ True, False])
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    return table.argmax(axis=1) == codes


def row_nll(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Floats:
    """Compute −log p(true class) of each row, with the floor of `nll`.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    ndarray of shape (n_rows,)
        Log-losses in nats; lower is better.

    Examples
    --------
    >>> row_nll([0, 1], [[0.9, 0.1], [0.6, 0.4]]).round(3)
    array([0.105, 0.916])
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    return -np.log(np.maximum(table[np.arange(len(codes)), codes], FLOOR))


def row_brier(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Floats:
    """Compute Σ_c (p_c − [c is true])² of each row.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `score_all`.

    Returns
    -------
    ndarray of shape (n_rows,)
        Brier scores between 0 and 2; lower is better.

    Examples
    --------
    >>> row_brier([0, 1], [[0.9, 0.1], [0.6, 0.4]]).round(3)
    array([0.02, 0.72])
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    errors = table.copy()
    errors[np.arange(len(codes)), codes] -= 1.0
    return np.square(errors).sum(axis=1)
