"""Abstention: the confidence that bounds the risk, and p-values of novelty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn import _display
from attnknn.errors import InvalidInputError
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from attnknn.leave_one_out import LeaveOneOutPredictions

CONFIDENCE_LEVEL = 0.95  # of the bound on the risk
N_THRESHOLDS = 20  # minimum confidences that are tried
N_RISKS = 60  # that are tried to suggest one if `max_risk` is too low
MAX_SHOWN = 10  # rows in HTML
NOVEL = "unlike anything remembered"


@dataclass(frozen=True)
class Decisions:
    """The result of `AttnKNNClassifier.decide`: for each row a label, or the reason to abstain.

    Attributes
    ----------
    predicted : ndarray of shape (n_rows,)
        Most probable label of each row, also for rows on which the classifier abstains.
    is_answered : ndarray of shape (n_rows,)
        True for rows that get a label, False for rows on which the classifier abstains.
    reasons : list of str
        Why the classifier abstains: 'unsure between A and B' or 'unlike anything remembered';
        an empty string for rows that get a label.
    confidence : ndarray of shape (n_rows,)
        Probability of `predicted`.
    novelty_p_values : ndarray of shape (n_rows,)
        Conformal p-value of each row for the hypothesis that it is like the held-out entries. It
        is the share of held-out entries whose distance to their nearest other entries is at least
        that of the row, with the row itself counted among them. Novel rows have small p-values.
    min_confidence : float
        Confidence below which the classifier abstains.

    Examples
    --------
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
        """List the labels.

        Returns
        -------
        list
            The label of each row, None where the classifier abstains.
        """
        given = zip(self.predicted.tolist(), self.is_answered.tolist(), strict=True)
        return [label if is_given else None for label, is_given in given]

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per decision.

        Returns
        -------
        pandas.DataFrame
            Columns label (None where the classifier abstains), predicted, confidence,
            novelty_p_value and reason.
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "label": pd.Series(self.labels(), dtype=object),
                "predicted": self.predicted,
                "confidence": self.confidence,
                "novelty_p_value": self.novelty_p_values,
                "reason": self.reasons,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the confidence of each row over its novelty p-value.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes; rows without an answer have a different color.
        """
        ax = _display.axes(ax, "`Decisions.plot`")
        for chosen, color, name in (
            (self.is_answered, "C0", "answered"),
            (~self.is_answered, "C3", "abstained"),
        ):
            x, y = self.novelty_p_values[chosen], self.confidence[chosen]
            ax.scatter(x, y, s=8, color=color, label=f"{name} ({int(chosen.sum()):,})")
        ax.axhline(self.min_confidence, color="gray", linewidth=0.8)
        ax.set_xlabel("novelty p-value")
        ax.set_ylabel("confidence")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        n_answered = int(self.is_answered.sum())
        rows = [
            [
                row,
                "abstains" if label is None else str(label),
                _display.bar(self.confidence[row]),
                f"{self.novelty_p_values[row]:.3g}",
                self.reasons[row],
            ]
            for row, label in enumerate(self.labels()[:MAX_SHOWN])
        ]
        more = f"… and {len(self) - MAX_SHOWN:,} more rows" if len(self) > MAX_SHOWN else ""
        return _display.page(
            f"Decisions: {n_answered:,} of {len(self):,} rows answered",
            f"minimum confidence {self.min_confidence:.3f}",
            _display.table(["row", "label", "confidence", "novelty p-value", "reason"], rows),
            _display.note(more) if more else "",
        )

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
    """Give labels to rows of enough confidence that are not novel, reasons to the others."""
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
    """Conformal p-values (B,) of novelty: the share of held-out entries at least as far away.

    The row itself is counted with the entries. If they are exchangeable, at most a share t of rows
    has a p-value of at most t. Adding the row to the memory could only lower the distances of the
    held-out entries, so this p-value is at least that of full conformal prediction. With the
    distance to the single nearest entry both are equal: no entry is nearer to the row than
    `nearest`, so an entry that is at least as far from the others stays so. With that distance a
    single added example also makes rows near it known at once.

    Parameters
    ----------
    nearest : (B,) distance of each row to the nearest entry, or its mean over several
    known : (n,) the same of each held-out entry to the other entries

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
    confidence_level: float = CONFIDENCE_LEVEL,
) -> float:
    """The lowest confidence at which answers are wrong with a probability of at most `max_risk`.

    Minimum confidences are tried from high to low: those that answer one twentieth of the rows,
    two twentieths, and so on, except those that answer too few rows to pass even without an error.
    For each the risk is bounded by Clopper and Pearson, from the leave-one-out predictions that are
    answered. The bounds hold together with a probability of `confidence_level`: each threshold has
    its share of the allowed error, and passes all of its budget on to the next one if it succeeds
    (Wiens' fallback procedure, fixed-sequence testing that survives a failure). Leave-one-out
    predictions are treated as independent, which they nearly are; this is no strict guarantee.

    With label noise the risk is that of the true label: the bound on disagreement with observed
    labels minus the disagreement that the noise alone causes.
    """
    found = _confidence_for(left_out, max_risk, confusions, confidence_level)
    if math.isfinite(found):
        return found
    risks = np.geomspace(max_risk, 1, N_RISKS)[1:-1]
    possible = (
        risk
        for risk in risks
        if math.isfinite(_confidence_for(left_out, risk, confusions, confidence_level))
    )
    lowest = next(possible, None)
    hint = "no risk can be" if lowest is None else f"{lowest:.2g} can be"
    raise InvalidInputError(
        f"`max_risk={max_risk}` cannot be guaranteed with {len(left_out)} held-out examples; "
        f"{hint}. Raise it, or give `min_confidence`."
    )


def _confidence_for(
    left_out: LeaveOneOutPredictions,
    max_risk: float,
    confusions: Floats | None,
    confidence_level: float,
) -> float:
    """The same, or infinity if no confidence passes."""
    probabilities = left_out.probabilities
    confidence, predicted = probabilities.max(axis=1), probabilities.argmax(axis=1)
    limits = _limits(confidence, max_risk, 1 - confidence_level)
    found, budget = math.inf, 0.0
    for limit in limits:
        budget += (1 - confidence_level) / len(limits)
        answered = confidence >= limit
        n_wrong = int((predicted != left_out.own)[answered].sum())
        bound = clopper_pearson_bound(n_wrong, int(answered.sum()), budget)
        bound = _bound_for_true_labels(bound, predicted[answered], confusions)
        if bound <= max_risk:
            found = float(limit)
        else:
            budget = 0.0
    return found


def _limits(confidence: Floats, max_risk: float, error: float) -> Floats:
    """Confidences to try, falling, each with enough rows to pass if all were right."""
    falling = np.sort(confidence)[::-1]
    enough = math.log(error / N_THRESHOLDS) / math.log1p(-max_risk)
    counts = np.ceil(np.arange(1, N_THRESHOLDS + 1) / N_THRESHOLDS * len(falling)).astype(int)
    return falling[counts[counts >= enough] - 1]


def clopper_pearson_bound(n_wrong: int, n: int, error: float) -> float:
    """The upper confidence bound of a rate at level 1 − `error`, after `n_wrong` of `n`.

    >>> round(clopper_pearson_bound(0, 59, 0.05), 4)
    0.0495
    """
    from scipy.stats import beta

    return 1.0 if n_wrong >= n else float(beta.ppf(1 - error, n_wrong + 1, n - n_wrong))


def _bound_for_true_labels(bound: float, predicted: Integers, confusions: Floats | None) -> float:
    """Turn a bound on disagreement with observed labels into one for true labels.

    A right answer k disagrees with the observed label with the probability 1 − T_kk. A wrong one
    agrees with it at most with the largest probability of k given another true label.
    """
    if confusions is None:
        return bound
    right = confusions.diagonal()
    confirmed = np.where(np.eye(len(right), dtype=bool), 0.0, confusions).max(axis=0)
    margin = float((right - confirmed).min())
    if margin <= 0:
        return 1.0
    by_noise = float(1 - right[predicted].mean()) if len(predicted) else 0.0
    return min(1.0, max(0.0, bound - by_noise) / margin)
