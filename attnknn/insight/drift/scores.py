"""How strange a row is to a classifier, and its label: what is watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import check_same_kind, is_missing
from attnknn.errors import InvalidInputError
from attnknn.records import Floats

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Scores:
    """Of each row the distance to the nearest entry, and one minus the probability of its label.

    Parameters
    ----------
    rows : (n,)
    labels : (n,) NaN for a row without a label; 1 for a label that is no remembered class
    """

    rows: Floats
    labels: Floats


def scores_of_entries(clf: AttnKNNClassifier) -> Scores:
    """Those of the held-out entries, each judged by the others, where it has others."""
    left_out = clf._leave_one_out_predictions()
    left_out = left_out.part(np.isfinite(left_out.nearest()))
    return Scores(
        left_out.nearest(), 1.0 - left_out.probabilities[np.arange(len(left_out)), left_out.own]
    )


def scores_of_rows(clf: AttnKNNClassifier, X: Any, y: Any = None) -> Scores:
    """Those of rows that are not remembered.

    Entries are seen in one view and with the calibration of one, so rows are too: whatever differs
    between the two would be taken for drift.
    """
    queries, parts = clf._queries(X, "watch"), clf._parts()
    labels = _labels(y, len(queries), clf.classes_)
    nearest, probabilities = [np.zeros(0)], [np.zeros((0, len(clf.classes_)))]
    for start in range(0, len(queries), ROWS_AT_ONCE):
        answer = parts.answer(queries[start : start + ROWS_AT_ONCE])
        nearest.append(answer.neighbors.distances[:, 0])
        probabilities.append(answer.probabilities)
    of_labels = _scores_of_labels(labels, np.concatenate(probabilities), clf.classes_)
    return Scores(np.concatenate(nearest), of_labels)


def _labels(y: Any, n_rows: int, classes: NDArray[Any]) -> list[Any]:
    """A label or None for each row."""
    if y is None:
        return [None] * n_rows
    if np.ndim(y) != 1:
        raise InvalidInputError(
            f"`y` must be a list of labels, one for each row, got {np.ndim(y)} dimensions."
        )
    labels = [None if is_missing(label) else label for label in _listed(y)]
    if len(labels) != n_rows:
        raise InvalidInputError(f"`X` has {n_rows} rows but `y` has {len(labels)} labels.")
    known = classes.tolist()
    for label in set(labels) - {None, *known}:
        check_same_kind(label, known[0])
    return labels


def _listed(y: Any) -> list[Any]:
    return list(y.tolist() if hasattr(y, "tolist") else y)


def _scores_of_labels(
    labels: Sequence[Any], probabilities: Floats, classes: NDArray[Any]
) -> Floats:
    place = {label: code for code, label in enumerate(classes.tolist())}
    scores = np.full(len(labels), np.nan)
    for row, label in enumerate(labels):
        if label is not None:
            code = place.get(label)
            scores[row] = 1.0 if code is None else 1.0 - probabilities[row, code]
    return scores
