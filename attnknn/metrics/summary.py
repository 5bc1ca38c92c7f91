"""All metrics of one set of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import ArrayLike

from attnknn.metrics.bins import debiased_ece, ece
from attnknn.metrics.checking import checked
from attnknn.metrics.labels import accuracy, balanced_accuracy, brier, macro_f1, nll

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
    """All metrics of one set of probabilities.

    `ece` has 15 bins of equal width, `debiased_ece` 15 bins of equal mass. `HIGHER_IS_BETTER` says
    the direction of each field.
    """

    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    nll: float
    brier: float
    ece: float
    debiased_ece: float

    def to_dict(self) -> dict[str, float]:
        """The scores by name, ready for JSON."""
        return asdict(self)


def score_all(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Scores:
    """All metrics at once.

    >>> scores = score_all([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> scores.accuracy, round(scores.brier, 4)
    (0.6666666666666666, 0.2733)
    """
    codes, table = checked(y_true, probabilities, classes)
    return Scores(
        accuracy=accuracy(codes, table),
        balanced_accuracy=balanced_accuracy(codes, table),
        macro_f1=macro_f1(codes, table),
        nll=nll(codes, table),
        brier=brier(codes, table),
        ece=ece(codes, table),
        debiased_ece=debiased_ece(codes, table),
    )
