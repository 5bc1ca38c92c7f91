"""What each entry is worth to the others: how much its vote lowers their log-loss."""

from __future__ import annotations

import numpy as np

from attnknn.calibration import Calibration
from attnknn.insight.audit.wrong_labels import chances_of
from attnknn.pipeline import Answer
from attnknn.records import Floats, Integers

TINY = np.finfo(float).tiny


def gains_of_votes(
    answer: Answer, own: Integers, prior: Floats, calibration: Calibration
) -> Floats:
    """By how much each neighbor's vote lowers the log-loss of each judged entry: (B, K).

    Without the vote of neighbor i, which has the weight w and the label c, the other voters share
    its say in proportion: share_c becomes (share_c − w) / (1 − w), the others share / (1 − w). That
    is what a softmax over one score less gives. The gain is the loss without minus the loss with
    it; below zero, the vote does harm. Losses are those of the observed labels, through the map and
    the label noise: −log Σ_c share_c^γ T[c, y] / Σ_c share_c^γ, in which the factor 1 / (1 − w)
    cancels, so that a vote moves one term of each sum. Without the only voter the prior answers.

    Parameters
    ----------
    prior : (B, C) or (C,) class frequencies as each judged entry sees them
    """
    weights, labels = answer.weights.neighbors, answer.neighbors.labels
    top = answer.shares.max(axis=1, keepdims=True)  # else small powers underflow
    powers = (answer.shares / top) ** calibration.exponent  # (B, C)
    chances = chances_of(own, powers.shape[1], calibration)  # (B, C)
    likely, total = (powers * chances).sum(axis=1), powers.sum(axis=1)
    share = np.take_along_axis(answer.shares, labels, axis=1)
    left = np.maximum(share - weights, 0.0) / top
    fall = np.take_along_axis(powers, labels, axis=1) - left**calibration.exponent
    own_chance = np.take_along_axis(chances, labels, axis=1)
    without = _loss(likely[:, None] - fall * own_chance, total[:, None] - fall)
    by_prior = prior**calibration.exponent
    alone = _loss((by_prior * chances).sum(axis=1), by_prior.sum(axis=-1))
    without = np.where(weights < 1.0, without, alone[:, None])
    return np.where(answer.neighbors.mask, without - _loss(likely, total)[:, None], 0.0)


def _loss(likely: Floats, total: Floats) -> Floats:
    return np.log(np.maximum(total, TINY)) - np.log(np.maximum(likely, TINY))
