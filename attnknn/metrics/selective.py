"""How often one is wrong when only the surest answers are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.metrics.checking import checked
from attnknn.records import Booleans, Floats, Integers


@dataclass(frozen=True)
class RiskCoverage:
    """What happens if only rows of at least some confidence are answered, most confident first.

    Parameters
    ----------
    threshold : (m,) the different confidences, falling
    coverage : (m,) share of rows with at least that confidence
    risk : (m,) share of those that are wrong
    """

    threshold: Floats
    coverage: Floats
    risk: Floats


def risk_coverage(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> RiskCoverage:
    """Coverage and risk at every confidence that occurs.

    >>> found = risk_coverage([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> found.coverage.round(2).tolist(), found.risk.round(2).tolist()
    ([0.33, 0.67, 1.0], [0.0, 0.0, 0.33])
    """
    codes, table = checked(y_true, probabilities, classes)
    return curve_of(table.max(axis=1), table.argmax(axis=1) != codes)


def curve_of(confidence: Floats, is_wrong: Booleans) -> RiskCoverage:
    """The same from confidences (n,) and whether each was wrong, which is what reports keep."""
    threshold, counts, wrong = _groups(confidence, is_wrong)
    answered = counts.cumsum()
    return RiskCoverage(threshold, answered / answered[-1], wrong.cumsum() / answered)


def aurc(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Area under the risk-coverage curve. Lower is better, 0..1.

    The mean over k = 1..n of the share of wrong answers among the k most confident (Geifman and
    El-Yaniv 2017). Of rows with equal confidence any may come first: their errors count evenly.

    >>> round(aurc([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.1111
    """
    codes, table = checked(y_true, probabilities, classes)
    _, counts, wrong = _groups(table.max(axis=1), table.argmax(axis=1) != codes)
    # Inside a group of equal confidence errors rise on a line.
    errors = np.repeat(wrong / counts, counts).cumsum()
    return float((errors / np.arange(1, len(errors) + 1)).mean())


def _groups(confidence: Floats, is_wrong: Booleans) -> tuple[Floats, Integers, Floats]:
    """The different confidences, falling, how many rows have each, how many of these are wrong."""
    rising, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    wrong = np.bincount(place, weights=is_wrong.astype(np.float64), minlength=len(rising))
    return rising[::-1], counts[::-1].astype(np.int64), wrong[::-1].astype(np.float64)
