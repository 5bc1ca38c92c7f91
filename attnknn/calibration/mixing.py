"""Weights of several votes in their mixture, by the likelihood of held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnknn.calibration.likelihood import PENALTY
from attnknn.calibration.probability_map import TINY
from attnknn.records import Floats, Integers
from attnknn.training.threads import one_blas_thread_if

PULL = 1.0  # to equal weights: they have the prior distribution Dirichlet(1 + PULL)
MIN_MIXING = 0.01  # a vote with a smaller weight is left out


def fit_mixing(
    shares: Sequence[Floats], own: Integers, prior: Floats, label_noise: float | None = None
) -> Floats:
    """Weights (H,) of votes in their mixture that maximize the likelihood of the own labels.

    The probability map, the weight of the prior and symmetric label noise are fitted along, since
    votes that are underconfident by themselves may be right together. A weak Dirichlet prior
    pulls the weights to equal ones.

    Noise forgives votes that are confident and sometimes wrong: weights that are best with it may
    be bad in a mixture that is calibrated without it.

    Parameters
    ----------
    shares : H arrays (B, C) of vote shares
    own : (B,) codes of the observed labels
    prior : (B, C) class frequencies without the row itself
    label_noise : share of wrong labels that is held fixed, also 0; None fits it along

    >>> sure, unsure = np.array([[0.9, 0.1]] * 50), np.array([[0.5, 0.5]] * 50)
    >>> mixing = fit_mixing([sure, unsure], np.zeros(50, dtype=int), unsure)
    >>> bool(mixing[0] > 2 * mixing[1])
    True
    """
    from scipy.optimize import minimize

    n_heads = len(shares)
    if n_heads == 1:
        return np.ones(1)
    votes = np.stack([*shares, np.broadcast_to(prior, shares[0].shape)])  # (H + 1, B, C)
    start = np.array([*np.zeros(n_heads), -3.0, 0.0, -3.0])
    given = votes, own, label_noise
    with one_blas_thread_if(True):  # of a number per head
        found = minimize(_loss, start, args=given, jac=True, method="L-BFGS-B").x
    mixing = _softmax(found[:n_heads])
    mixing = np.where(mixing < MIN_MIXING, 0.0, mixing)
    return mixing / mixing.sum()


def _loss(
    values: Floats, votes: Floats, own: Integers, held: float | None = None
) -> tuple[float, Floats]:
    """Mean loss and its gradient by logits of the votes and the prior, log exponent, noise."""
    n_votes, n_rows, n_classes = votes.shape
    mixing, exponent = _softmax(values[:n_votes]), math.exp(min(max(values[-2], -2.5), 2.5))
    noise, noise_slope = _noise(values[-1], n_classes) if held is None else (held, 0.0)
    rows, others = np.arange(n_rows), max(n_classes - 1, 1)
    shares = np.maximum(np.tensordot(mixing, votes, axes=1), TINY)  # (B, C)
    logs = np.log(shares)
    powers = exponent * logs
    likely = np.exp(powers - powers.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    right = likely[rows, own]
    observed = np.maximum((1 - noise) * right + noise * (1 - right) / others, TINY)
    slope = -(1 - noise - noise / others) / observed  # of the losses by `right`
    by_power = -likely * (slope * right)[:, None]
    by_power[rows, own] += slope * right
    by_share = exponent * by_power / shares
    by_mixing = np.tensordot(votes, by_share, axes=((1, 2), (0, 1)))
    by_logit = mixing * (by_mixing - mixing @ by_mixing)
    by_noise = -(((1 - right) / others - right) / observed).sum() * noise_slope
    gradient = np.array([*by_logit, exponent * (by_power * logs).sum(), by_noise])
    heads = _softmax(values[: n_votes - 1])
    gradient[: n_votes - 1] -= PULL * (1.0 - len(heads) * heads)
    gradient[-2] += PENALTY * values[-2]
    loss = -np.log(observed).sum() - PULL * np.log(heads).sum() + 0.5 * PENALTY * values[-2] ** 2
    return float(loss) / n_rows, gradient / n_rows


def _noise(value: float, n_classes: int) -> tuple[float, float]:
    """Label noise and its derivative by the number that is optimized."""
    level = 1 / (1 + math.exp(-min(max(value, -30.0), 30.0)))
    most = 0.5 * (n_classes - 1) / n_classes
    return most * level, most * level * (1 - level)


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max())
    return powers / powers.sum()
