"""CoverageSpec: the coverage that is asked for, and the thresholds of scores that give it.

With n calibration rows the threshold is their ⌈(n + 1)·coverage⌉-th smallest score. A further
row that is exchangeable with them then has its label in its set with a probability of at least
`coverage`.

**Label noise.** Observed labels may be wrong, while sets are about the true ones. Let T be the
probability of each observed label (column) for each true one (row). If the observed label depends
on the true one only, then

    P(score of the true label ≤ t) = E[ Σ_c T⁻¹[observed, c] · [score of c ≤ t] ],

so each calibration row counts for every label c with the weight T⁻¹[observed, c] (Sesia, Wang and
Tong 2024). Without noise that is one for its own label. Ignoring the noise would ask sets to
contain wrong labels too, and make them far too large.

**Few held-out rows per class.** Then all rows, held out or not, estimate how the scores of each
class are distributed, and the held-out rows of all classes together give the quantile: the level of
a row is the share of its class with a score at most as high, and the threshold of each class is its
quantile at the level that covers enough held-out rows. Rows that attention was trained on score too
well, but alike in all classes. Over all rows the coverage is that of the held-out rows alone; by
class it is nearly so. A class whose rows are all held out, such as an added one, uses its own rows
only. The level may exceed `coverage`, and a small class may not reach it. Its threshold is then its
largest score, if enough of its rows are held out: of m held-out rows and a further one each is
equally likely to score highest, so the further one is covered with a probability of at least
m / (m + 1).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from attnknn._validation import Limits, check_flag
from attnknn.conformal.scores import SetScore, make_score
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Booleans, Floats, Integers

COVERAGE = Limits(above=0, below=1)
TOLERANCE = 1e-9  # in rows: a coverage such as 0.07 has no exact binary representation


@dataclass(frozen=True)
class CoverageSpec:
    """The coverage of prediction sets, over all rows or for each class, and their score.

    `seed` randomizes the score; None does not.
    """

    coverage: float
    by_class: bool
    score: SetScore
    seed: int | None = None

    def scores_of_queries(self, probabilities: Floats, queries: NDArray[np.float32]) -> Floats:
        """Scores (n, C) of queries with embeddings (n, D)."""
        return self.score.of_all(probabilities, self.uniform_of_queries(queries))

    def scores_of_examples(self, probabilities: Floats, ids: NDArray[Any] | None = None) -> Floats:
        """Scores (n, C) of calibration rows, randomized by their ids and not by their order."""
        if self.seed is None:
            return self.score.of_all(probabilities)
        uniform = np.random.default_rng(self.seed).random(len(probabilities))
        if ids is not None:
            uniform = uniform[np.argsort(np.argsort(ids))]
        return self.score.of_all(probabilities, uniform)

    def uniform_of_queries(self, queries: NDArray[np.float32]) -> Floats | None:
        """(n,) numbers in [0, 1) that randomize the scores of queries (n, D), or None.

        They are a hash of the query: numbers by position would give rows that are predicted one at
        a time all the same number.
        """
        if self.seed is None:
            return None
        key = self.seed.to_bytes(8, "big")
        return np.array([_hash_to_uniform(query.tobytes(), key) for query in queries])

    def thresholds(
        self,
        scores: Floats,
        own: Integers,
        classes: NDArray[Any],
        confusions: Floats | None = None,
        held_out: Booleans | None = None,
    ) -> Floats:
        """The threshold (C,) of each class, or an error for too few calibration rows."""
        self.check_examples(own, classes, confusions, held_out)
        found = thresholds(
            scores,
            own,
            self.coverage,
            by_class=self.by_class,
            confusions=confusions,
            held_out=held_out,
        )
        if held_out is not None and not np.isfinite(found).all():
            code = int(np.isinf(found).argmax())
            is_own = own == code
            raise InvalidInputError(
                f"`coverage={self.coverage}` by class needs {min_examples(self.coverage)} held-out "
                f"examples of `{classes[code]}`, or more examples of it in all, got "
                f"{int((is_own & held_out).sum())} held-out ones of {int(is_own.sum())}. Add "
                "some, lower the coverage, or use `by_class=False`."
            )
        return found

    def check_examples(
        self,
        own: Integers,
        classes: NDArray[Any],
        confusions: Floats | None = None,
        held_out: Booleans | None = None,
    ) -> None:
        """Raise an error where calibration rows with these labels are too few for the coverage.

        Parameters
        ----------
        held_out : (n,) which of them are held out; None: all
        """
        needed = min_examples(self.coverage)
        if self.by_class:
            counts = label_weights(own, len(classes), confusions).sum(axis=0)
            rarest = int(counts.argmin())
            examples = "held-out examples of" if held_out is None else "examples of"
            if counts[rarest] < needed:
                raise InvalidInputError(
                    f"`coverage={self.coverage}` by class needs at least {needed} {examples} each "
                    f"class; `{classes[rarest]}` has {max(counts[rarest], 0):.0f}. Lower the "
                    "coverage, or use `by_class=False`."
                )
        n_held_out = len(own) if held_out is None else int(held_out.sum())
        if n_held_out < needed:
            raise InvalidInputError(
                f"`coverage={self.coverage}` needs at least {needed} held-out examples; there are "
                f"{n_held_out}. Lower the coverage."
            )


def _hash_to_uniform(content: bytes, key: bytes) -> float:
    """A pseudo-random number in [0, 1), the same for the same content and key."""
    digest = hashlib.blake2b(content, digest_size=8, key=key).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def make_coverage_spec(
    coverage: float, by_class: bool, score: str | SetScore, random_state: Any
) -> CoverageSpec:
    """The specification with these settings, or an error that names an invalid one.

    >>> make_coverage_spec(0.9, False, "lac", None)
    CoverageSpec(coverage=0.9, by_class=False, score=Lac(), seed=None)
    """
    if not COVERAGE.allow(coverage):
        raise InvalidSettingError(f"`coverage` must be {COVERAGE}, got {coverage!r}.")
    check_flag("by_class", by_class)
    seed = None if random_state is None else check_random_state(random_state).randint(2**31 - 1)
    return CoverageSpec(float(coverage), bool(by_class), make_score(score), seed)


def min_examples(coverage: float) -> int:
    """Compute the smallest number of calibration rows for prediction sets of a coverage.

    With fewer rows, every prediction set of this coverage contains all classes.

    Parameters
    ----------
    coverage : float
        Share of sets that should contain the true class, between 0 and 1.

    Returns
    -------
    int
        Number of rows, ⌈coverage / (1 − coverage)⌉.

    Examples
    --------
    >>> min_examples(0.99), min_examples(0.9)
    (99, 9)
    """
    share = Fraction(str(float(coverage)))
    return math.ceil(share / (1 - share))


def threshold(scores: Floats, coverage: float, weights: Floats | None = None) -> float:
    """The score that `coverage` (n + 1) of n calibration rows do not exceed.

    Infinity where rows are too few: the set then holds all classes.

    Parameters
    ----------
    scores : (m,)
    weights : (m,) how much each score counts, n in sum; None: one each. With negative weights the
        threshold is the lowest from which on there is always enough

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
    """Compute the largest score of a set member, one for all classes or one per class.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_classes)
        Scores of the labels of calibration rows; higher fits worse.
    own : ndarray of shape (n_rows,)
        Codes of their observed labels.
    coverage : float
        Share of sets that should contain the true class, between 0 and 1.
    by_class : bool, default=False
        Whether to reach the coverage for the rows of each class.
    confusions : ndarray of shape (n_classes, n_classes), default=None
        Probability of each observed label (column) for each true one (row). None takes the
        observed labels for true.
    held_out : ndarray of shape (n_rows,), default=None
        By class only: the rows that give the quantile, where the others only estimate how scores
        are distributed. None: all rows are held out. A class that is too small, with too few
        held-out rows of its own, gets infinity.

    Returns
    -------
    ndarray of shape (n_classes,)
        The threshold of each class.

    Examples
    --------
    >>> scores = np.array([[0.1, 0.9], [0.3, 0.7], [0.6, 0.4], [0.8, 0.2]])
    >>> thresholds(scores, np.array([0, 0, 1, 1]), 0.6).tolist()
    [0.3, 0.3]
    >>> thresholds(scores, np.array([0, 0, 1, 1]), 0.6, by_class=True).tolist()
    [0.3, 0.4]
    """
    n_classes = scores.shape[1]
    weights = label_weights(own, n_classes, confusions)
    if not by_class:
        return np.full(n_classes, _weighted_threshold(scores, weights, coverage))
    if held_out is None:
        of_class = [(scores[:, c], weights[:, c]) for c in range(n_classes)]
        return np.array([_weighted_threshold(*those, coverage) for those in of_class])
    return _thresholds_by_level(scores, weights, own, coverage, held_out)


def _thresholds_by_level(
    scores: Floats, weights: Floats, own: Integers, coverage: float, held_out: Booleans
) -> Floats:
    """Thresholds (C,) by class where rows that are not held out help; see the module."""
    n_classes = scores.shape[1]
    has_help = np.bincount(own[~held_out], minlength=n_classes) > 0
    level = _common_level(scores[:, has_help], weights[:, has_help], coverage, held_out)
    found = np.array(
        [
            _weighted_threshold(scores[:, c], weights[:, c], level)
            if has_help[c]
            else _weighted_threshold(scores[held_out, c], weights[held_out, c], coverage)
            for c in range(n_classes)
        ]
    )
    has_enough = weights[held_out].sum(axis=0) > min_examples(coverage) - TOLERANCE
    largest = np.where(weights > 0, scores, -math.inf).max(axis=0)
    return np.where(has_enough, np.minimum(found, largest), found)


def _weighted_threshold(scores: Floats, weights: Floats, coverage: float) -> float:
    counts = weights != 0
    return threshold(scores[counts], coverage, weights[counts])


def _common_level(scores: Floats, weights: Floats, coverage: float, held_out: Booleans) -> float:
    """The level within a class that covers enough held-out rows of all classes."""
    levels = [_levels(scores[:, c], weights[:, c])[held_out] for c in range(scores.shape[1])]
    if not levels:
        return coverage
    return _weighted_threshold(np.column_stack(levels), weights[held_out], coverage)


def _levels(scores: Floats, weights: Floats) -> Floats:
    """The share (n,) of a class that scores at most as high as each row, itself counted half.

    With negative weights the sum may fall again: the minimum over all later ones counts.

    >>> _levels(np.array([0.1, 0.4, 0.2, 0.3]), np.ones(4)).tolist()
    [0.125, 0.875, 0.375, 0.625]
    """
    order = np.argsort(scores, kind="stable")
    mass = weights[order].cumsum()
    kept = np.minimum.accumulate(mass[::-1])[::-1]
    last = np.searchsorted(scores[order], scores, side="right") - 1  # of equal ones
    return (kept[last] - weights / 2) / max(float(mass[-1]), TOLERANCE)


def label_weights(own: Integers, n_classes: int, confusions: Floats | None = None) -> Floats:
    """How much each calibration row counts for each label (n, C); a row sums to one.

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
            "The label noise is so strong that observed labels say nothing about the true ones. "
            "Use `method='jackknife+'`, which is about observed labels, or fit with "
            "`label_noise=None`."
        )
    return inverse[own]
