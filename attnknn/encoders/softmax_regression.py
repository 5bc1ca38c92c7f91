"""Multinomial logistic regression on dense or sparse rows, fast enough to be cross-fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from attnknn.records import Floats, Integers

Weights = NDArray[np.float32]  # (n_features, C)
MAX_STEPS = 15  # for each strength; the path of strengths goes on from there
TOLERANCE = 1e-4  # smallest decrease of the loss in a step, relative to the loss
HISTORY = 5  # of L-BFGS; each pair takes the memory of two weights
MAX_HALVINGS = 20


def fit_softmax_regression(
    rows: Any,
    labels: Integers,
    offset: NDArray[np.float32],
    strength: float,
    start: Weights,
    sample_weight: Floats | None = None,
) -> Weights:
    """Weights that minimize the mean log-loss plus strength / 2 · their squared length.

    A few steps of L-BFGS in 32 bits: the minimum is not needed to the last digit.

    `rows` (n, F): sparse or dense, float32; `offset` (C,): added to the scores; `start` (F, C):
    weights of another strength, from which few steps are needed; `sample_weight` (n,): None is
    equal weights.
    """
    objective = _Objective(rows, labels, offset, strength, sample_weight)
    weights, history = start, _History()
    loss, gradient = objective(weights)
    for _ in range(MAX_STEPS):
        direction = history.direction(gradient)
        slope = float(np.vdot(gradient, direction))
        size, before = np.float32(1.0), loss
        for _ in range(MAX_HALVINGS):
            moved = weights + size * direction
            loss, after = objective(moved)
            if loss <= before + 1e-4 * float(size) * slope:
                break
            size /= 2
        else:
            break  # no step is better: at the minimum, as far as 32 bits can tell
        history.add(moved - weights, after - gradient)
        weights, gradient = moved, after
        if before - loss < TOLERANCE * before:
            break
    return weights


class _History:
    """The last steps and changes of the gradient: an estimate of the inverse Hessian."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Weights, Weights, float]] = []

    def add(self, step: Weights, change: Weights) -> None:
        product = float(np.vdot(step, change))
        if product > 0:
            self.pairs = [*self.pairs[1 - HISTORY :], (step, change, product)]

    def direction(self, gradient: Weights) -> Weights:
        """The direction of the next step, by the two-loop recursion of L-BFGS."""
        if not self.pairs:
            length = float(np.linalg.norm(gradient))
            return gradient * np.float32(-1 / max(length, 1e-30))
        rest, along = gradient.copy(), []
        for step, change, product in reversed(self.pairs):
            along.append(np.float32(np.vdot(step, rest) / product))
            rest -= along[-1] * change
        _, change, product = self.pairs[-1]
        rest *= np.float32(product / float(np.vdot(change, change)))
        for (step, change, product), first in zip(self.pairs, reversed(along), strict=True):
            rest += (first - np.float32(np.vdot(change, rest) / product)) * step
        return -rest


class _Objective:
    """The regularized mean log-loss and its gradient by the weights."""

    def __init__(
        self,
        rows: Any,
        labels: Integers,
        offset: NDArray[np.float32],
        strength: float,
        sample_weight: Floats | None,
    ) -> None:
        self.rows, self.columns = rows, rows.T.tocsr() if issparse(rows) else rows.T
        self.labels, self.offset, self.strength = labels, offset, np.float32(strength)
        weights = np.ones(len(labels)) if sample_weight is None else sample_weight
        self.shares = (weights / weights.sum()).astype(np.float32)  # of the rows in the mean

    def __call__(self, weights: Weights) -> tuple[float, Weights]:
        scores = self.rows @ weights + self.offset  # (n, C)
        scores -= scores.max(axis=1, keepdims=True)
        own = np.arange(len(self.labels)), self.labels
        of_label = scores[own]
        likely = np.exp(scores, out=scores)
        totals = likely.sum(axis=1, keepdims=True)
        losses = (np.log(totals[:, 0]) - of_label).astype(np.float64)
        likely /= totals
        likely[own] -= 1
        likely *= self.shares[:, None]
        gradient = self.columns @ likely + self.strength * weights
        loss = float(losses @ self.shares)
        return loss + 0.5 * float(self.strength) * float(np.vdot(weights, weights)), gradient


def log_loss(scores: NDArray[np.float32], labels: Integers) -> float:
    """Mean log-loss of class scores (n, C).

    >>> round(log_loss(np.zeros((3, 2), dtype=np.float32), np.array([0, 1, 1])), 3)
    0.693
    """
    from scipy.special import logsumexp

    own = scores[np.arange(len(labels)), labels]
    return float(np.mean(logsumexp(scores.astype(np.float64), axis=1) - own))
