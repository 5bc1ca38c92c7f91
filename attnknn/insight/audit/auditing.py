"""Every entry of a classifier judged by the others: what to look at first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import Limits
from attnknn.calibration import Calibration
from attnknn.errors import InvalidSettingError
from attnknn.insight.audit.alike import find_alike
from attnknn.insight.audit.record import Audit
from attnknn.insight.audit.value import gains_of_votes
from attnknn.insight.audit.wrong_labels import LeaveOneOutPredictions, judge_labels
from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.pipeline import Answer
from attnknn.records import Floats, Integers

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

ROWS_AT_ONCE = 4096
SHOWN_CONTRADICTIONS = 3


def audit(clf: AttnKNNClassifier, *, near: float = 0.1) -> Audit:
    """Which labels look wrong, which entries are copies, and what each one is worth to the others.

    Nothing is changed, and nothing is fitted: all of it follows from the leave-one-out judgement
    of each entry by the others. `Audit` says what each number means.

    Parameters
    ----------
    clf : fitted
    near : two entries are near duplicates within this share of the typical distance, the median
        distance of an entry to its nearest other that is no copy; 0 looks for exact ones only.
        Entries of one group are not compared. Inner products tell of no nearness: exact ones only

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.research.evaluation.stress import symmetric_noise
    >>> X, y = make_blobs(300, n_features=4, centers=6, random_state=0)
    >>> noisy = symmetric_noise(y, 0.2, random_state=0)
    >>> found = audit(AttnKNNClassifier(attention="distance").fit(X, noisy))
    >>> bool((found.suggested == y).mean() > 0.9)
    True
    """
    if not Limits(least=0).allow(near):
        raise InvalidSettingError(f"`near` must be a finite number of at least 0, got {near!r}.")
    clf._check_remembers("audit")
    memory, classes, calibration = clf.memory_, clf.classes_, clf.calibration_
    noise = _noise_now(clf)
    everyone: LeaveOneOutBatch = clf._everyone().trusting(clf._trust())
    ids, own = memory.entries.ids, memory.entries.labels
    leave_one_out_predictions, contradictions = [], []
    value = np.zeros(len(memory))
    for block, answer in _answers(clf, everyone):
        leave_one_out_predictions.append(judge_labels(answer.probabilities, block.own, noise))
        gains = gains_of_votes(answer, block.own, block.prior, calibration)
        value += np.bincount(answer.neighbors.positions.ravel(), gains.ravel(), len(memory))
        contradictions += [ids[those] for those in _contradicting(answer, block.own)]
    alike = find_alike(memory, everyone.batch.neighbors, near)
    found = _joined(leave_one_out_predictions)
    return Audit(
        ids=ids,
        labels=classes[own],
        wrong=found.wrong,
        label_error_score=found.label_error_score,
        suggested=classes[found.suggested],
        suggested_probability=found.chance,
        value=value,
        contradicted_by=tuple(contradictions),
        exact_duplicates=_sets(ids, alike.exact),
        near_duplicates=_sets(ids, alike.near),
        reach=alike.reach,
        label_noise=noise.label_noise,
        held_out=memory.entries.held_out,
    )


def entry_values(clf: AttnKNNClassifier) -> Floats:
    """The value (N,) of each entry alone, as in `Audit`, in the order remembered.

    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> bool((entry_values(clf) == audit(clf).value).all())
    True
    """
    clf._check_remembers("entry_values")
    value = np.zeros(len(clf.memory_))
    for block, answer in _answers(clf, clf._everyone().trusting(clf._trust())):
        gains = gains_of_votes(answer, block.own, block.prior, clf.calibration_)
        value += np.bincount(answer.neighbors.positions.ravel(), gains.ravel(), len(value))
    return value


def _noise_now(clf: AttnKNNClassifier) -> Calibration:
    """The label noise as labels are now, or none where it does not amount to a wrong label."""
    fitted, confusions = clf.calibration_, clf._confusions()
    if confusions is None:
        return replace(fitted, label_noise=0.0, transition=None)
    wrong = 1.0 - confusions.diagonal()
    shares = clf._counts() / len(clf.memory_)
    noise = float(wrong @ shares) if fitted.transition is not None else float(wrong[0])
    if noise * len(clf.memory_) < 1:
        return replace(fitted, label_noise=0.0, transition=None)
    transition = None if fitted.transition is None else confusions
    return replace(fitted, label_noise=noise, transition=transition)


def _answers(
    clf: AttnKNNClassifier, everyone: LeaveOneOutBatch
) -> Iterator[tuple[LeaveOneOutBatch, Answer]]:
    parts = clf._parts()
    for start in range(0, len(everyone), ROWS_AT_ONCE):
        block = everyone.part(slice(start, start + ROWS_AT_ONCE))
        yield block, block.answer(parts)


def _contradicting(answer: Answer, own: Integers) -> Iterator[Integers]:
    """Of each entry, the positions of the neighbors with the most say that carry another label."""
    found = answer.neighbors
    contradicts = found.mask & (found.labels != own[:, None])
    say = np.where(contradicts, answer.weights.neighbors, -1.0)
    order = np.argsort(-say, axis=1, kind="stable")[:, :SHOWN_CONTRADICTIONS]
    for row, places in enumerate(order):
        yield found.positions[row, places[say[row, places] > 0]]


def _joined(parts: list[LeaveOneOutPredictions]) -> LeaveOneOutPredictions:
    return LeaveOneOutPredictions(
        np.concatenate([part.wrong for part in parts]),
        np.concatenate([part.label_error_score for part in parts]),
        np.concatenate([part.suggested for part in parts]),
        np.concatenate([part.chance for part in parts]),
    )


def _sets(ids: NDArray[Any], groups: Integers) -> tuple[frozenset[Any], ...]:
    """The ids of each group."""
    inside = np.flatnonzero(groups >= 0)
    order = inside[np.argsort(groups[inside], kind="stable")]
    borders = np.flatnonzero(np.diff(groups[order])) + 1
    parts = np.split(order, borders) if len(order) else []
    return tuple(frozenset(ids[part].tolist()) for part in parts)
