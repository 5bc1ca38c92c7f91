"""The record of prediction sets, and how scores become members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.records import Booleans, Floats, Integers

ROUNDING = 1e-9  # votes of equal neighbors, added in another order, differ by less


@dataclass(frozen=True)
class PredictionSets:
    """For each row the classes that it may well have. A set may be empty, or hold all of them.

    Parameters
    ----------
    members : (n, C) True where a class is in the set of a row
    classes : (C,) in the order of the columns
    coverage : the share of sets that are to hold the right class
    by_class : whether that is meant for the rows of each class
    method : 'leave_one_out', 'split' or 'jackknife+'; see `AttnKNNClassifier.predict_set`
    thresholds : (C,) largest score of a member; None for 'jackknife+', which has none

    >>> sets = PredictionSets(np.array([[True, False], [True, True]]), np.array(["a", "b"]), 0.9)
    >>> sets.labels(), sets.sizes.tolist()
    ([['a'], ['a', 'b']], [1, 2])
    """

    members: Booleans
    classes: NDArray[Any]
    coverage: float
    by_class: bool = False
    method: str = "leave_one_out"
    thresholds: Floats | None = None

    def labels(self) -> list[list[Any]]:
        """The labels in the set of each row, in the order of `classes`."""
        return [self.classes[row].tolist() for row in self.members]

    @property
    def sizes(self) -> Integers:
        """(n,) how many classes each set holds."""
        return self.members.sum(axis=1).astype(np.int64)

    def __len__(self) -> int:
        return len(self.members)


def members(scores: Floats, thresholds: Floats) -> Booleans:
    """Which labels (n, C) are in the sets: those whose score is at most their threshold (C,).

    >>> members(np.array([[0.1, 0.9], [0.5, 0.5]]), np.array([0.5, 0.5])).tolist()
    [[True, False], [True, True]]
    """
    return scores <= thresholds + ROUNDING
