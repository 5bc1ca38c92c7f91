"""Where sets end: the score that the labels of enough judged rows stay below.

With n judged rows the threshold is their ⌈(n + 1)·coverage⌉-th smallest score: then a further row,
exchangeable with them, has its label in its set with at least the chance `coverage`.

Observed labels may be wrong, while sets are about the true ones. If T is the chance of each
observed label (column) for each true one (row), and annotators go by the true label only, then

    P(score of the true label ≤ t) = E[ Σ_c T⁻¹[observed, c] · [score of c ≤ t] ],

so each judged row counts for every label c with the weight T⁻¹[observed, c] (Sesia, Wang and Tong
2024). Without noise that is one for its own label. To take the observed labels for true would ask
sets to hold wrong labels too, and make them far too large.

Fresh rows may be too few for thresholds by class. Then all rows, fresh or not, say how scores are
spread within each class, and the held-out ones of all classes together say how far to go: the
level of
a row is the share of its class that scores at most as much, and the threshold of each class stands
where enough held-out rows stay below in level. Rows that attention was trained on score too well,
but alike in all classes; over all rows coverage is that of held-out rows alone, by class nearly so.

A class of held-out rows alone, such as one that was added, needs no others and goes by its own
rows.
The level may exceed `coverage`, and a class of few rows may not reach so far. Its threshold is then
its largest score, if enough of its rows are fresh: of m held-out rows and one more, each is as
likely
as any other to score most, so the one more stays below with a chance of m / (m + 1) at least.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.records import Booleans, Floats, Integers

TOLERANCE = 1e-9  # in rows: a coverage such as 0.07 is no exact binary number


def fewest_examples(coverage: float) -> int:
    """How many examples a threshold below infinity takes.

    >>> fewest_examples(0.99), fewest_examples(0.9)
    (99, 9)
    """
    share = Fraction(str(float(coverage)))
    return math.ceil(share / (1 - share))


def threshold(scores: Floats, coverage: float, weights: Floats | None = None) -> float:
    """The score at and beyond which judged rows of `coverage` (n + 1) stay below.

    Infinity where they are too few: the set is then everything.

    Parameters
    ----------
    scores : (m,)
    weights : (m,) how much each counts, n in sum; negative ones are allowed, and then the
        threshold is the least from which on there is always enough. None: one each

    >>> threshold(np.arange(1.0, 10.0), 0.8), threshold(np.arange(1.0, 10.0), 0.95)
    (8.0, inf)
    """
    if weights is None:
        weights = np.ones(len(scores))
    level = (weights.sum() + 1) * coverage - TOLERANCE
    order = np.argsort(scores, kind="stable")
    rising, mass = scores[order], weights[order].cumsum()
    is_last = np.append(rising[1:] != rising[:-1], True)[: len(rising)]  # of equal ones
    short = np.flatnonzero(is_last & (mass < level))
    first = int(short[-1]) + 1 if len(short) else 0
    return float(rising[first]) if first < len(rising) else math.inf


def thresholds(
    scores: Floats,
    own: Integers,
    coverage: float,
    *,
    by_class: bool = False,
    confusions: Floats | None = None,
    held_out: Booleans | None = None,
) -> Floats:
    """The threshold (C,) of each class: one for all, or each by the rows of that class.

    Parameters
    ----------
    scores : (n, C) of judged rows
    own : (n,) their observed labels
    confusions : (C, C) chance of each observed label (column) for each true one (row); None takes
        the observed labels for true
    held_out : (n,) by class only: rows that say how far to go, where the others only say how scores
        are spread; None: all are. A class that is too small to go so far, and has too few fresh
        rows of its own, gets infinity

    >>> scores = np.array([[0.1, 0.9], [0.3, 0.7], [0.6, 0.4], [0.8, 0.2]])
    >>> thresholds(scores, np.array([0, 0, 1, 1]), 0.6).tolist()
    [0.3, 0.3]
    >>> thresholds(scores, np.array([0, 0, 1, 1]), 0.6, by_class=True).tolist()
    [0.3, 0.4]
    """
    n_classes = scores.shape[1]
    weights = label_weights(own, n_classes, confusions)
    if not by_class:
        return np.full(n_classes, _of_those_that_count(scores, weights, coverage))
    if held_out is None:
        of_class = [(scores[:, c], weights[:, c]) for c in range(n_classes)]
        return np.array([_of_those_that_count(*those, coverage) for those in of_class])
    return _with_help(scores, weights, own, coverage, held_out)


def _with_help(
    scores: Floats, weights: Floats, own: Integers, coverage: float, held_out: Booleans
) -> Floats:
    """The thresholds (C,) by class where rows that are not fresh help those that are."""
    n_classes = scores.shape[1]
    has_help = np.bincount(own[~held_out], minlength=n_classes) > 0
    level = _level(scores[:, has_help], weights[:, has_help], coverage, held_out)
    found = np.array(
        [
            _of_those_that_count(scores[:, c], weights[:, c], level)
            if has_help[c]
            else _of_those_that_count(scores[held_out, c], weights[held_out, c], coverage)
            for c in range(n_classes)
        ]
    )
    has_enough = weights[held_out].sum(axis=0) > fewest_examples(coverage) - TOLERANCE
    largest = np.where(weights > 0, scores, -math.inf).max(axis=0)
    return np.where(has_enough, np.minimum(found, largest), found)


def _of_those_that_count(scores: Floats, weights: Floats, coverage: float) -> float:
    counts = weights != 0
    return threshold(scores[counts], coverage, weights[counts])


def _level(scores: Floats, weights: Floats, coverage: float, held_out: Booleans) -> float:
    """The level within its class that enough held-out rows of all classes stay below."""
    levels = [_levels(scores[:, c], weights[:, c])[held_out] for c in range(scores.shape[1])]
    if not levels:
        return coverage
    return _of_those_that_count(np.column_stack(levels), weights[held_out], coverage)


def _levels(scores: Floats, weights: Floats) -> Floats:
    """The share (n,) of a class that scores at most as much as each row, which counts half itself.

    Negative weights may make the sum fall again: what counts is what all later ones keep.

    >>> _levels(np.array([0.1, 0.4, 0.2, 0.3]), np.ones(4)).tolist()
    [0.125, 0.875, 0.375, 0.625]
    """
    order = np.argsort(scores, kind="stable")
    mass = weights[order].cumsum()
    kept = np.minimum.accumulate(mass[::-1])[::-1]
    last = np.searchsorted(scores[order], scores, side="right") - 1  # of equal ones
    return (kept[last] - weights / 2) / max(float(mass[-1]), TOLERANCE)


def label_weights(own: Integers, n_classes: int, confusions: Floats | None = None) -> Floats:
    """How much each judged row (n, C) counts for each label; one in sum per row.

    >>> label_weights(np.array([1]), 2, np.array([[0.75, 0.25], [0.25, 0.75]]))
    array([[-0.5,  1.5]])
    """
    if confusions is None:
        return np.eye(n_classes)[own]
    try:
        inverse: Floats = np.linalg.inv(confusions).astype(np.float64)
    except np.linalg.LinAlgError:
        inverse = np.full_like(confusions, np.inf)
    if not np.abs(inverse).max() < 1 / TOLERANCE:
        raise InvalidInputError(
            "The label noise is so strong that observed labels say nothing of true ones. Use "
            "`method='jackknife+'`, which is about observed labels, or fit with `label_noise=None`."
        )
    return inverse[own]
