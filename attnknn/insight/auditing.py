"""Audit: leave-one-out predictions of all entries turned into what a person should look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import Limits
from attnknn.calibration import Calibration
from attnknn.errors import InvalidSettingError
from attnknn.insight.audit_result import Audit
from attnknn.insight.duplicates import find_duplicates
from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.model import Answer, FittedModel, require_model
from attnknn.records import Floats, Integers
from attnknn.training.terminal import track

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

ROWS_AT_ONCE = 4096
MAX_CONTRADICTIONS = 3
TINY = np.finfo(float).tiny


def audit(clf: AttnKNNClassifier, *, near: float = 0.1) -> Audit:
    """Find label errors, duplicates and harmful entries in the memory of a classifier.

    Nothing is changed and nothing is fitted: all results follow from the leave-one-out prediction
    of each entry.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier.
    near : float, default=0.1
        Two entries are near duplicates if their distance is at most `near` times the typical
        distance, the median distance of an entry to its nearest neighbor that is no exact
        duplicate. 0 finds exact duplicates only, as does `metric="inner_product"`. Entries of one
        group are not compared.

    Returns
    -------
    Audit
        One value per entry for each question, and the sets of duplicates.

    Raises
    ------
    InvalidSettingError
        If `near` is negative or not finite.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.research.evaluation.corruption import symmetric_noise
    >>> X, y = make_blobs(300, n_features=4, centers=6, random_state=0)
    >>> noisy = symmetric_noise(y, 0.2, random_state=0)
    >>> found = audit(AttnKNNClassifier(attention="distance").fit(X, noisy))
    >>> bool((found.suggested == y).mean() > 0.9)
    True
    """
    if not Limits(least=0).allow(near):
        raise InvalidSettingError(f"`near` must be a finite number of at least 0, got {near!r}.")
    model = require_model(clf, "audit")
    memory, classes = model.memory, model.classes
    noise = _current_noise(model)
    ids, value = memory.entries.ids, np.zeros(len(memory))
    posteriors, contradictions = [], []
    for block, answer in _leave_one_out_answers(model):
        posteriors.append(label_posterior(answer.probabilities, block.own, noise))
        value += vote_values(answer, block.own, block.prior, model.calibration, len(memory))
        contradictions += [ids[those] for those in _contradicting(answer, block.own)]
    found = LabelPosterior(*map(np.concatenate, zip(*posteriors, strict=True)))
    duplicates = find_duplicates(memory, model.leave_one_out().batch.neighbors, near)
    return Audit(
        ids=ids,
        labels=classes[memory.entries.labels],
        wrong=found.wrong if model.calibration.has_noise else np.full(len(memory), np.nan),
        label_error_score=found.label_error_score,
        suggested=classes[found.suggested],
        suggested_probability=found.probability,
        value=value,
        contradicted_by=tuple(contradictions),
        exact_duplicates=_sets_of_ids(ids, duplicates.exact),
        near_duplicates=_sets_of_ids(ids, duplicates.near),
        near_distance=duplicates.near_distance,
        label_noise=noise.estimated_noise,
        no_probabilities=_reason_for_none(model.calibration),
        held_out=memory.entries.held_out,
        payloads=memory.entries.payloads,
    )


def entry_values(clf: AttnKNNClassifier) -> Floats:
    """Compute by how much each entry lowers the leave-one-out log-loss of the others.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier.

    Returns
    -------
    ndarray of shape (n_entries,)
        The attribute `value` of `Audit`, in the order of `clf.memory_.entries.ids`. Negative values
        are harmful entries.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> bool((entry_values(clf) == audit(clf).value).all())
    True
    """
    model = require_model(clf, "entry_values")
    value = np.zeros(len(model.memory))
    for block, answer in _leave_one_out_answers(model):
        value += vote_values(answer, block.own, block.prior, model.calibration, len(value))
    return value


def _current_noise(model: FittedModel) -> Calibration:
    """Label noise of the current labels; none where it amounts to less than one wrong label."""
    fitted, confusions = model.calibration, model.confusions()
    no_noise = replace(fitted, label_noise=0.0, transition=None)
    if confusions is None:
        return no_noise
    wrong = 1.0 - confusions.diagonal()
    if fitted.transition is None:
        noise, transition = float(wrong[0]), None
    else:
        noise, transition = float(wrong @ (model.counts / len(model.memory))), confusions
    if noise * len(model.memory) < 1:
        return no_noise
    return replace(fitted, label_noise=noise, transition=transition)


def _reason_for_none(fitted: Calibration) -> str:
    """Why no probabilities of wrong labels are given; empty if they are."""
    return "" if fitted.has_noise else f"label noise {fitted.noise_words}"


def _leave_one_out_answers(model: FittedModel) -> Iterator[tuple[LeaveOneOutBatch, Answer]]:
    """All entries, each answered without itself, in blocks."""
    everyone = model.leave_one_out()
    step = min(ROWS_AT_ONCE, model.rows_at_once)
    for start in track(range(0, len(everyone), step), "Predicting entries"):
        block = everyone.part(slice(start, start + step))
        yield block, model.answer_left_out(block)


class LabelPosterior(NamedTuple):
    """What is known about the true labels of B entries."""

    wrong: Floats  # (B,) probability that the observed label is wrong; 0 with a noise of 0
    label_error_score: Floats  # (B,) one minus the leave-one-out probability of the observed label
    suggested: Integers  # (B,) codes of the most probable true labels
    probability: Floats  # (B,) probabilities of the suggested labels


def label_posterior(probabilities: Floats, own: Integers, noise: Calibration) -> LabelPosterior:
    """Combine the leave-one-out probabilities of entries with their observed labels by Bayes' rule.

    With T[c, y] the probability to observe label y if c is the true one,
    P(true = c | y) ∝ p_c T[c, y]. Without label noise every label is right by assumption: P(wrong)
    is 0, and the suggested label is the most probable one under p.

    `probabilities` (B, C): leave-one-out probabilities of the true labels; `own` (B,): codes of the
    observed labels; `noise`: the model of label noise.

    >>> p = np.array([[0.5, 0.5], [0.02, 0.98]])
    >>> found = label_posterior(p, np.array([0, 0]), Calibration(label_noise=0.2))
    >>> found.wrong.round(2).tolist(), found.suggested.tolist()
    ([0.2, 0.92], [0, 1])
    """
    rows = np.arange(len(own))
    label_error_score = 1.0 - probabilities[rows, own]
    if not noise.has_noise:
        posterior, wrong = probabilities, np.zeros(len(own))
    else:
        joint = probabilities * _label_likelihoods(own, probabilities.shape[1], noise)
        posterior = joint / np.maximum(joint.sum(axis=1, keepdims=True), TINY)
        others = posterior.copy()
        others[rows, own] = 0.0  # summed, since 1 − P(right) would lose the digits of small ones
        wrong = others.sum(axis=1)
    suggested = posterior.argmax(axis=1)
    return LabelPosterior(wrong, label_error_score, suggested, posterior[rows, suggested])


def _label_likelihoods(own: Integers, n_classes: int, noise: Calibration) -> Floats:
    """T[c, y] (B, C): the probability of each observed label y if class c is the true one."""
    return noise.observed(np.eye(n_classes)).T[own]


def vote_values(
    answer: Answer, own: Integers, prior: Floats, calibration: Calibration, n_entries: int
) -> Floats:
    """By how much the vote of each entry (N,) lowers the summed log-loss of the answered rows.

    Without the vote of a neighbor with weight w and label c, the other weights are normalized
    again: share_c becomes (share_c − w) / (1 − w), the others share / (1 − w). That is what a
    softmax without its score gives. Losses are those of the observed labels, with the probability
    map and label noise: −log Σ_c share_c^γ T[c, y] / Σ_c share_c^γ. The factor 1 / (1 − w) cancels,
    so that a vote changes one term of each sum. Without the only voter the prior answers.

    `own` (B,): codes of the observed labels; `prior` (B, C) or (C,): class frequencies, without the
    row itself if it is an entry.
    """
    weights, labels = answer.weights.neighbors, answer.neighbors.labels
    top = answer.shares.max(axis=1, keepdims=True)  # else small powers underflow
    powers = (answer.shares / top) ** calibration.exponent  # (B, C)
    likelihoods = _label_likelihoods(own, powers.shape[1], calibration)  # (B, C)
    likely, total = (powers * likelihoods).sum(axis=1), powers.sum(axis=1)
    share = np.take_along_axis(answer.shares, labels, axis=1)
    left = np.maximum(share - weights, 0.0) / top
    fall = np.take_along_axis(powers, labels, axis=1) - left**calibration.exponent  # (B, K)
    of_label = np.take_along_axis(likelihoods, labels, axis=1)
    without = _loss(likely[:, None] - fall * of_label, total[:, None] - fall)
    by_prior = prior**calibration.exponent
    alone = _loss((by_prior * likelihoods).sum(axis=1), by_prior.sum(axis=-1))
    without = np.where(weights < 1.0, without, alone[:, None])
    gains = np.where(answer.neighbors.mask, without - _loss(likely, total)[:, None], 0.0)
    summed = np.bincount(answer.neighbors.positions.ravel(), gains.ravel(), n_entries)
    return summed.astype(np.float64, copy=False)


def _loss(likely: Floats, total: Floats) -> Floats:
    return np.log(np.maximum(total, TINY)) - np.log(np.maximum(likely, TINY))


def _contradicting(answer: Answer, own: Integers) -> Iterator[Integers]:
    """For each entry the positions of the heaviest neighbors that have another label."""
    found = answer.neighbors
    contradicts = found.mask & (found.labels != own[:, None])
    weights = np.where(contradicts, answer.weights.neighbors, -1.0)
    order = np.argsort(-weights, axis=1, kind="stable")[:, :MAX_CONTRADICTIONS]
    for row, places in enumerate(order):
        yield found.positions[row, places[weights[row, places] > 0]]


def _sets_of_ids(ids: NDArray[Any], groups: Integers) -> tuple[frozenset[Any], ...]:
    inside = np.flatnonzero(groups >= 0)
    order = inside[np.argsort(groups[inside], kind="stable")]
    borders = np.flatnonzero(np.diff(groups[order])) + 1
    parts = np.split(order, borders) if len(order) else []
    return tuple(frozenset(ids[part].tolist()) for part in parts)
