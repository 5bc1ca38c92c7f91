"""Several answers into one: votes over several numbers of neighbors, or of several views.

The averaging over numbers of neighbors happens in the weights (`attnknn.attention.several`); here
stands what it averages by, fitted leave-one-out on the likelihood of the observed labels. The
answers about several views of a query are averaged here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnknn.attention.base import NeighborBatch, Scores, Weights
from attnknn.attention.several import (
    AdaptiveAttention,
    KEnsembleAttention,
    SeveralSizesAttention,
    chosen_by_entropy,
    entropies,
    mixed_by_model,
    neighborhood,
)
from attnknn.calibration import Calibration
from attnknn.pipeline import Answer
from attnknn.records import Floats, Integers, Neighbors
from attnknn.vote import vote

N_THRESHOLDS = 64  # tried ones
SHRINKAGE = 1.0  # of the mixture's slopes, in rows: few rows leave all sizes alike
N_STEPS = 200  # of expectation-maximization


def fit_mixing(
    attention: SeveralSizesAttention, batch: NeighborBatch, own: Integers, prior: Floats
) -> None:
    """Fit what `attention` mixes its sizes by, at its present temperature and prior's score.

    Parameters
    ----------
    batch : rows that are left out of their own neighbors
    own : (B,) their observed labels
    prior : (B, C) class frequencies as each row sees them
    """
    if isinstance(attention, KEnsembleAttention):
        if attention.weighting == "fitted":
            attention.weights_ = mixture_weights(own_shares(attention, batch, own, prior))
    elif isinstance(attention, AdaptiveAttention):
        likely = own_shares(attention, batch, own, prior)
        if attention.rule == "learned":
            attention.model_ = mixture_model(neighborhood(batch, attention.sizes_), likely)
        elif attention.threshold is None:
            attention.threshold_ = best_threshold(entropies(batch, attention.sizes_), likely)
        else:
            attention.threshold_ = float(attention.threshold)


def own_shares(
    attention: SeveralSizesAttention, batch: NeighborBatch, own: Integers, prior: Floats
) -> Floats:
    """The share (B, H) of each row's own label in the vote over each size by itself."""
    scores = attention.scores(batch)
    rows, labels = np.arange(len(own)), batch.neighbors.labels
    shares = np.empty((len(own), len(attention.sizes_)))
    for head in range(shares.shape[1]):
        alone = Scores(scores.neighbors[:, [head]], scores.prior[:, [head]])
        weights = attention.weights(alone, batch)
        shares[:, head] = vote(labels, weights, prior)[rows, own]
    return np.maximum(shares, np.finfo(float).tiny)


def mixture_weights(likely: Floats) -> Floats:
    """Weights (H,) under which the mixture of the columns of `likely` (B, H) is most likely.

    >>> mixture_weights(np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.3]])).round(2).tolist()
    [0.84, 0.16]
    """
    weights = np.full(likely.shape[1], 1.0 / likely.shape[1])
    for _ in range(N_STEPS):
        blame = weights * likely
        blame /= blame.sum(axis=1, keepdims=True)
        counts = blame.sum(axis=0) + SHRINKAGE / len(weights)  # one row for all alike
        weights = counts / counts.sum()
    return weights


def best_threshold(entropy: Floats, likely: Floats) -> float:
    """The threshold of `chosen_by_entropy` with the least log-loss, of `entropy` (B, H).

    >>> best_threshold(np.array([[0.0, 0.6], [0.5, 0.6]]), np.array([[0.9, 0.5], [0.2, 0.6]]))
    0.0
    """
    tried = np.unique(np.quantile(entropy, np.linspace(0, 1, N_THRESHOLDS), method="lower"))
    losses = [-np.log((chosen_by_entropy(entropy, t) * likely).sum(axis=1)).mean() for t in tried]
    return float(tried[int(np.argmin(losses))])


def mixture_model(features: Floats, likely: Floats) -> Floats:
    """The softmax model (1 + F, H) of `mixed_by_model` under which `likely` (B, H) is greatest."""
    from scipy.optimize import minimize

    shape = (1 + features.shape[1], likely.shape[1])
    inputs = np.hstack([np.ones((len(features), 1)), features])

    def loss_and_gradient(numbers: Floats) -> tuple[float, Floats]:
        model = numbers.reshape(shape)
        mixing = mixed_by_model(features, model)
        together = (mixing * likely).sum(axis=1, keepdims=True)
        gradient = inputs.T @ (mixing - mixing * likely / together) + SHRINKAGE * model
        loss = -np.log(together).sum() + SHRINKAGE / 2 * np.square(model).sum()
        return float(loss) / len(likely), gradient.ravel() / len(likely)

    found = minimize(loss_and_gradient, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B")
    return np.asarray(found.x.reshape(shape))


def probabilities_of(answers: Sequence[Answer], calibration: Calibration) -> Floats:
    """Probabilities (B, C) by the mean shares of several views of the same queries.

    Of a value head, which does not answer by shares, they are the mean probabilities.
    """
    if len(answers) == 1:
        return answers[0].probabilities
    if not answers[0].is_exact:
        return np.mean([answer.probabilities for answer in answers], axis=0)
    return calibration.probabilities(np.mean([answer.shares for answer in answers], axis=0))


def joined(answers: Sequence[Answer], calibration: Calibration) -> Answer:
    """One answer for several views of the same queries: exact evidence, if of a vote.

    A neighbor of several views is there once: its weight is the mean over all views, its distance
    the least. Neighbors with the most say come first.
    """
    if len(answers) == 1:
        return answers[0]
    rows = [_joined_row(answers, row) for row in range(len(answers[0].shares))]
    width = max((len(weights) for _, _, _, weights in rows), default=0)
    blank = np.zeros((len(rows), width))
    positions, labels = blank.astype(np.int64), blank.astype(np.int64)
    distances, weights, mask = blank + np.inf, blank.copy(), blank.astype(bool)
    for row, parts in enumerate(rows):
        place = slice(len(parts[0]))
        positions[row, place], labels[row, place] = parts[:2]
        distances[row, place], weights[row, place] = parts[2:]
        mask[row, place] = True
    prior = np.mean([answer.weights.prior for answer in answers], axis=0)
    shares = np.mean([answer.shares for answer in answers], axis=0)
    return Answer(
        Neighbors(positions, labels, distances, mask),
        Weights(weights, prior),
        answers[0].prior,
        shares,
        probabilities_of(answers, calibration),
        answers[0].is_exact,
    )


def _joined_row(answers: Sequence[Answer], row: int) -> tuple[Integers, Integers, Floats, Floats]:
    """Positions, labels, least distances and mean weights of all neighbors of one query."""
    found = [answer.neighbors.rows(row) for answer in answers]
    present = [neighbors.mask for neighbors in found]
    everyone = np.concatenate([n.positions[m] for n, m in zip(found, present, strict=True)])
    own = np.concatenate([n.labels[m] for n, m in zip(found, present, strict=True)])
    far = np.concatenate([n.distances[m] for n, m in zip(found, present, strict=True)])
    say = [a.weights.neighbors[row][m] for a, m in zip(answers, present, strict=True)]
    positions, first, place = np.unique(everyone, return_index=True, return_inverse=True)
    weights = np.bincount(place, np.concatenate(say), len(positions)) / len(answers)
    distances = np.full(len(positions), np.inf)
    np.minimum.at(distances, place, far)
    order = np.argsort(-weights, kind="stable")
    return positions[order], own[first][order], distances[order], weights[order]
