"""Several answers into one: fits how the votes over several numbers of neighbors are mixed.

The averaging itself happens in the weights (`attnknn.attention.several`); here stands what it
averages by, fitted leave-one-out on the likelihood of the observed labels.
"""

from __future__ import annotations

import numpy as np

from attnknn.attention.base import Scores, Situation
from attnknn.attention.several import (
    AdaptiveAttention,
    KEnsembleAttention,
    SeveralSizesAttention,
    chosen_by_entropy,
    entropies,
    mixed_by_model,
    neighborhood,
)
from attnknn.records import Floats, Integers
from attnknn.vote import vote

N_THRESHOLDS = 64  # tried ones
SHRINKAGE = 1.0  # of the mixture's slopes, in rows: few rows leave all sizes alike
N_STEPS = 200  # of expectation-maximization


def fit_mixing(
    attention: SeveralSizesAttention, situation: Situation, own: Integers, prior: Floats
) -> None:
    """Fit what `attention` mixes its sizes by, at its present temperature and prior's score.

    Parameters
    ----------
    situation : rows that are left out of their own neighbors
    own : (B,) their observed labels
    prior : (B, C) class frequencies as each row sees them
    """
    if isinstance(attention, KEnsembleAttention):
        if attention.weighting == "fitted":
            attention.weights_ = mixture_weights(own_shares(attention, situation, own, prior))
    elif isinstance(attention, AdaptiveAttention):
        likely = own_shares(attention, situation, own, prior)
        if attention.rule == "learned":
            attention.model_ = mixture_model(neighborhood(situation, attention.sizes_), likely)
        elif attention.threshold is None:
            attention.threshold_ = best_threshold(entropies(situation, attention.sizes_), likely)
        else:
            attention.threshold_ = float(attention.threshold)


def own_shares(
    attention: SeveralSizesAttention, situation: Situation, own: Integers, prior: Floats
) -> Floats:
    """The share (B, H) of each row's own label in the vote over each size by itself."""
    scores = attention.scores(situation)
    rows, labels = np.arange(len(own)), situation.neighbors.labels
    shares = np.empty((len(own), len(attention.sizes_)))
    for head in range(shares.shape[1]):
        alone = Scores(scores.neighbors[:, [head]], scores.prior[:, [head]])
        weights = attention.weights(alone, situation)
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
