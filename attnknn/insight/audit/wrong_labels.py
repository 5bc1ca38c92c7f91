"""How probable it is that an observed label is wrong, and which label is the true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnknn.calibration import Calibration
from attnknn.records import Floats, Integers

TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class LeaveOneOutPredictions:
    """What is known of the true labels of B entries.

    Parameters
    ----------
    wrong : (B,) the probability that the observed label is not the true one; 0 where calibration
        knows of no label noise
    label_error_score : (B,) one minus the leave-one-out probability of the observed label
    suggested : (B,) codes of the most probable true labels
    chance : (B,) their probabilities
    """

    wrong: Floats
    label_error_score: Floats
    suggested: Integers
    chance: Floats


def judge_labels(
    probabilities: Floats, own: Integers, calibration: Calibration
) -> LeaveOneOutPredictions:
    """Weigh what the others say of each entry against the label it carries.

    An entry whose true label is c was given its observed label y with the chance T[c, y]: 1 − ε
    for c = y, else ε / (C − 1), or as the transition of label noise by class says. So
    P(true = c | y) ∝ p_c T[c, y], and P(wrong) = 1 − T[y, y] p_y / q_y with q_y = Σ_c p_c T[c, y].

    With no label noise every label is right by assumption: P(wrong) is 0, and what is suggested is
    what the others say, p alone.

    Parameters
    ----------
    probabilities : (B, C) leave-one-out, of the true labels
    own : (B,) codes of the observed labels

    >>> p = np.array([[0.5, 0.5], [0.02, 0.98]])
    >>> found = judge_labels(p, np.array([0, 0]), Calibration(label_noise=0.2))
    >>> found.wrong.round(2).tolist(), found.suggested.tolist()
    ([0.2, 0.92], [0, 1])
    """
    rows = np.arange(len(own))
    label_error_score = 1.0 - probabilities[rows, own]
    if calibration.label_noise == 0 and calibration.transition is None:
        suggested = probabilities.argmax(axis=1)
        return LeaveOneOutPredictions(
            np.zeros(len(own)), label_error_score, suggested, probabilities[rows, suggested]
        )
    joint = probabilities * chances_of(own, probabilities.shape[1], calibration)
    posterior = joint / np.maximum(joint.sum(axis=1, keepdims=True), TINY)
    suggested = posterior.argmax(axis=1)
    others = posterior.copy()
    others[rows, own] = 0.0  # summed, since 1 − P(right) would lose the digits of small ones
    return LeaveOneOutPredictions(
        others.sum(axis=1), label_error_score, suggested, posterior[rows, suggested]
    )


def chances_of(own: Integers, n_classes: int, calibration: Calibration) -> Floats:
    """T[c, y] (B, C): the chance of each observed label y, were class c the true one."""
    if calibration.transition is not None:
        return calibration.transition.T[own]
    chances = np.full((len(own), n_classes), calibration.label_noise / max(n_classes - 1, 1))
    chances[np.arange(len(own)), own] = 1.0 - calibration.label_noise
    return chances
