"""Metrics of abstention and of prediction sets: risk-coverage curve, set coverage and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import InvalidInputError
from attnknn.metrics.validation import check_inputs, check_labels
from attnknn.records import Booleans, Floats, Integers


@dataclass(frozen=True)
class RiskCoverage:
    """The result of `risk_coverage`: coverage and risk at each confidence threshold.

    Attributes
    ----------
    threshold : ndarray of shape (n_thresholds,)
        The distinct confidences, in descending order.
    coverage : ndarray of shape (n_thresholds,)
        Share of rows whose confidence is at least the threshold.
    risk : ndarray of shape (n_thresholds,)
        Share of wrong predictions among these rows.

    Examples
    --------
    >>> risk_coverage([0, 1], [[0.9, 0.1], [0.6, 0.4]]).threshold.tolist()
    [0.9, 0.6]
    """

    threshold: Floats
    coverage: Floats
    risk: Floats


def risk_coverage(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> RiskCoverage:
    """Compute coverage and risk at every distinct confidence.

    A classifier that abstains below a confidence threshold answers only the rows whose largest
    probability is at least the threshold. Coverage is the share of rows that it answers, and risk
    is the error rate on these rows.

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
    RiskCoverage
        The risk-coverage curve.

    Examples
    --------
    >>> found = risk_coverage([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> found.coverage.round(2).tolist(), found.risk.round(2).tolist()
    ([0.33, 0.67, 1.0], [0.0, 0.0, 0.33])
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    return curve_of(table.max(axis=1), table.argmax(axis=1) != codes)


def curve_of(confidence: Floats, is_wrong: Booleans) -> RiskCoverage:
    """`risk_coverage` from confidences (n,) and whether each prediction is wrong."""
    threshold, counts, wrong = _groups(confidence, is_wrong)
    answered = counts.cumsum()
    return RiskCoverage(threshold, answered / answered[-1], wrong.cumsum() / answered)


def aurc(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the area under the risk-coverage curve.

    It is the mean over k = 1..n of the share of wrong predictions among the k most confident rows
    (Geifman and El-Yaniv 2017). The order of rows of equal confidence does not matter.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `risk_coverage`.

    Returns
    -------
    float
        Area between 0 and 1; lower is better.

    Examples
    --------
    >>> round(aurc([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.1111
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    _, counts, wrong = _groups(table.max(axis=1), table.argmax(axis=1) != codes)
    # Inside a group of equal confidence errors rise linearly.
    errors = np.repeat(wrong / counts, counts).cumsum()
    return float((errors / np.arange(1, len(errors) + 1)).mean())


def _groups(confidence: Floats, is_wrong: Booleans) -> tuple[Floats, Integers, Floats]:
    """Distinct confidences, falling, with the number of rows and of wrong predictions of each."""
    rising, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    wrong = np.bincount(place, weights=is_wrong.astype(np.float64), minlength=len(rising))
    return rising[::-1], counts[::-1].astype(np.int64), wrong[::-1].astype(np.float64)


def set_coverage(
    y_true: ArrayLike, sets: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the share of rows whose set contains the true class.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        True labels: integer codes from 0 in the order of the columns, or values of `classes`.
    sets : array-like of shape (n_rows, n_classes)
        True where a class is in the set of a row.
    classes : sequence, default=None
        Label of each column; None if `y_true` contains integer codes.

    Returns
    -------
    float
        Coverage between 0 and 1; the closer to the nominal coverage the better.

    Examples
    --------
    >>> set_coverage([0, 1, 1], [[True, False], [True, True], [True, False]])
    0.6666666666666666
    """
    members = _check_members(sets)
    codes = check_labels(y_true, members.shape, classes)
    return float(members[np.arange(len(codes)), codes].mean())


def set_size(sets: ArrayLike) -> float:
    """Compute the mean number of classes in a set.

    Parameters
    ----------
    sets : array-like of shape (n_rows, n_classes)
        True where a class is in the set of a row.

    Returns
    -------
    float
        Mean size between 0 and the number of classes; at the same coverage, lower is better.

    Examples
    --------
    >>> set_size([[True, False], [True, True], [True, False]])
    1.3333333333333333
    """
    return float(_check_members(sets).sum(axis=1).mean())


def _check_members(sets: ArrayLike) -> Booleans:
    members = np.asarray(sets)
    if members.dtype != bool or members.ndim != 2 or not members.size:
        raise InvalidInputError(
            "`sets` must be booleans of the shape (rows, classes) with at least one of each, got "
            f"{members.dtype} of the shape {members.shape}."
        )
    return members
