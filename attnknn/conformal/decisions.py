"""Label or abstain, with the reason: how sure is sure enough, and what is unlike all remembered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError
from attnknn.leave_one_out import LeaveOneOutPredictions
from attnknn.records import Booleans, Floats, Integers

SURE = 0.95  # of a bound on the risk
N_THRESHOLDS = 20  # confidences tried
N_RISKS = 60  # tried where the one asked for cannot be promised
NOVEL = "unlike anything remembered"


@dataclass(frozen=True)
class Decisions:
    """For each row its label or None, and why there is none.

    Parameters
    ----------
    predicted : (n,) the most probable labels, given or not
    is_answered : (n,) whether the label is given
    reasons : (n,) empty where it is; else 'unsure between A and B' or 'unlike anything remembered'
    confidence : (n,) probability of `predicted`
    novelty_p_values : (n,) share of the held-out entries that are at least as far from all others;
        small for a row unlike anything remembered. The conformal p-value of the distance
    min_confidence : below it the classifier abstains

    >>> decisions = Decisions(
    ...     np.array(["a", "b"]), np.array([True, False]), ["", "unsure between b and a"],
    ...     np.array([0.9, 0.6]), np.array([0.5, 0.5]), 0.8)
    >>> decisions.labels()
    ['a', None]
    """

    predicted: NDArray[Any]
    is_answered: Booleans
    reasons: list[str]
    confidence: Floats
    novelty_p_values: Floats
    min_confidence: float

    def labels(self) -> list[Any]:
        """The label of each row, None where the classifier abstains."""
        given = zip(self.predicted.tolist(), self.is_answered.tolist(), strict=True)
        return [label if is_given else None for label, is_given in given]

    def __len__(self) -> int:
        return len(self.predicted)


def decide(
    probabilities: Floats,
    novelty_p_values: Floats,
    classes: NDArray[Any],
    *,
    min_confidence: float,
    novelty_level: float,
) -> Decisions:
    """Answer rows of enough confidence and familiarity."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    confidence = probabilities.max(axis=1)
    is_novel = novelty_p_values <= novelty_level
    is_answered = (confidence >= min_confidence) & ~is_novel
    reasons = [
        "" if answered else NOVEL if novel else _unsure(classes[best[:2]])
        for answered, novel, best in zip(is_answered, is_novel, order, strict=True)
    ]
    return Decisions(
        classes[order[:, 0]], is_answered, reasons, confidence, novelty_p_values, min_confidence
    )


def _unsure(best: NDArray[Any]) -> str:
    return "unsure" if len(best) < 2 else f"unsure between {best[0]} and {best[1]}"


def novelty_p_values(nearest: Floats, known: Floats) -> Floats:
    """Share (B,) of held-out entries, the row counted with them, at least as far from all others.

    Of rows like the held-out entries at most a share t has a familiarity of t or less, if row and
    held-out entries are exchangeable. Were the row remembered too, the distance of a held-out
    entry could
    only fall; so this share is at least the p-value of the full conformal test. With the *nearest*
    entry alone the two are equal: no entry is nearer to the row than `nearest`, so whoever is at
    least that far from the others stays so. And it is the distance by which one added example makes
    its surroundings familiar at once.

    Parameters
    ----------
    nearest : (B,) distance of each row to the nearest entry, or its mean over some of them
    known : (n,) the same of each held-out entry to the others

    >>> novelty_p_values(np.array([0.5, 3.0]), np.array([1.0, 2.0, 2.0, 4.0])).tolist()
    [1.0, 0.4]
    """
    as_far = len(known) - np.searchsorted(np.sort(known), nearest, side="left")
    return (1 + as_far) / (1 + len(known))


def novelty_p_values_of_entries(known: Floats) -> Floats:
    """The same (n,) for each held-out entry among the others.

    >>> novelty_p_values_of_entries(np.array([1.0, 2.0, 4.0])).round(2).tolist()
    [1.0, 0.67, 0.33]
    """
    return (len(known) - np.searchsorted(np.sort(known), known, side="left")) / len(known)


def confidence_for_risk(
    left_out: LeaveOneOutPredictions,
    max_risk: float,
    confusions: Floats | None = None,
    *,
    sure: float = SURE,
) -> float:
    """The least confidence at which answers are wrong with a chance of at most `max_risk`.

    Confidences are tried from high to low: those of the surest twentieth, of two twentieths, and so
    on, without those that have too few rows even if all were right. For each the risk is bounded
    by Clopper and Pearson from the judged rows that are answered, and the bounds hold together
    with a chance of `sure`: every confidence has its share of the allowed error, and hands on to
    the next one all it had if it passes (Wiens' fallback procedure: fixed-sequence testing that
    survives a failure). Judged rows are taken for independent, which leave-one-out rows nearly
    are: no guarantee by itself.

    Where observed labels are wrong the risk is that of the true label: the bound on disagreement
    with observed ones, less what annotators alone would cause.
    """
    found = _confidence_for(left_out, max_risk, confusions, sure)
    if math.isfinite(found):
        return found
    risks = np.geomspace(max_risk, 1, N_RISKS)[1:-1]
    shown = (r for r in risks if math.isfinite(_confidence_for(left_out, r, confusions, sure)))
    least = next(shown, None)
    told = "no risk can be shown" if least is None else f"{least:.2g} could be"
    raise InvalidInputError(
        f"`max_risk={max_risk}` cannot be promised from {len(left_out)} held-out examples; {told}. "
        "Allow more, or give `min_confidence`."
    )


def _confidence_for(
    left_out: LeaveOneOutPredictions, max_risk: float, confusions: Floats | None, sure: float
) -> float:
    """The same, or infinity where no confidence passes."""
    confidence, predicted = (
        left_out.probabilities.max(axis=1),
        left_out.probabilities.argmax(axis=1),
    )
    limits = _limits(confidence, max_risk, 1 - sure)
    found, budget = math.inf, 0.0
    for limit in limits:
        budget += (1 - sure) / len(limits)
        answered = confidence >= limit
        n_wrong = int((predicted != left_out.own)[answered].sum())
        bound = upper_bound(n_wrong, int(answered.sum()), budget)
        bound = _of_true_labels(bound, predicted[answered], confusions)
        if bound <= max_risk:
            found = float(limit)
        else:
            budget = 0.0
    return found


def _limits(confidence: Floats, max_risk: float, error: float) -> Floats:
    """Confidences to try, falling, each with rows enough to pass if all were right."""
    falling = np.sort(confidence)[::-1]
    enough = math.log(error / N_THRESHOLDS) / math.log1p(-max_risk)
    counts = np.ceil(np.arange(1, N_THRESHOLDS + 1) / N_THRESHOLDS * len(falling)).astype(int)
    return falling[counts[counts >= enough] - 1]


def upper_bound(n_wrong: int, n: int, error: float) -> float:
    """What a rate is below with a chance of 1 − `error`, after `n_wrong` of `n` (Clopper, Pearson).

    >>> round(upper_bound(0, 59, 0.05), 4)
    0.0495
    """
    from scipy.stats import beta

    return 1.0 if n_wrong >= n else float(beta.ppf(1 - error, n_wrong + 1, n - n_wrong))


def _of_true_labels(bound: float, predicted: Integers, confusions: Floats | None) -> float:
    """A bound on disagreement with observed labels made one on disagreement with true ones.

    An answer k that is right is contradicted with the chance 1 − T_kk, one that is wrong is
    confirmed at most with the largest chance of k for another true label.
    """
    if confusions is None:
        return bound
    right = confusions.diagonal()
    confirmed = np.where(np.eye(len(right), dtype=bool), 0.0, confusions).max(axis=0)
    told = float((right - confirmed).min())
    if told <= 0:
        return 1.0
    by_noise = float(1 - right[predicted].mean()) if len(predicted) else 0.0
    return min(1.0, max(0.0, bound - by_noise) / told)
