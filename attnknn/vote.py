"""Weights and labels become class shares; float64, on the CPU; the only place that adds votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnknn.attention.base import Weights
from attnknn.records import Floats, Integers

if TYPE_CHECKING:
    from torch import Tensor


def vote(labels: Integers, weights: Weights, prior: Floats) -> Floats:
    """Shares (B, C): the weights of the neighbors by label, plus the prior's for all classes.

    Parameters
    ----------
    labels : (B, K) label codes; where there is no neighbor its weight is zero
    prior : (C,) or (B, C) class frequencies

    >>> weights = Weights(np.array([[0.5, 0.3]]), np.array([0.2]))
    >>> vote(np.array([[1, 0]]), weights, np.array([0.5, 0.5]))
    array([[0.4, 0.6]])
    """
    n_queries, n_classes = len(labels), prior.shape[-1]
    cells = labels + np.arange(n_queries)[:, None] * n_classes
    counted = np.bincount(cells.ravel(), weights.neighbors.ravel(), n_queries * n_classes)
    return counted.reshape(n_queries, n_classes) + weights.prior[:, None] * prior


def vote_in_torch(labels: Tensor, neighbors: Tensor, prior_weight: Tensor, prior: Tensor) -> Tensor:
    """`vote` with a gradient, for fitting: (B, K), (B, K), (B,) and (B, C) give (B, C)."""
    return (prior_weight[:, None] * prior).scatter_add(1, labels, neighbors)


def vote_of_candidates(
    labels: Tensor, candidates: Tensor, prior_weight: Tensor, prior: Tensor, n_classes: int
) -> Tensor:
    """`vote` with a gradient where all rows ask the same M candidates: their labels are (M,).

    Takes weights (B, M), (B,) and a prior (B, C) or (C,), gives shares (B, C).
    """
    places = candidates.new_zeros(len(labels), n_classes).scatter_(1, labels[:, None], 1.0)
    return candidates @ places + prior_weight[:, None] * prior


def class_prior(counts: Integers, own: Integers | None = None) -> Floats:
    """Class frequencies, half an example added to each: (C,), or (B, C) without the `own` labels.

    An entry that is judged by the others is taken out of the counts; `own` are such entries'
    labels.

    >>> class_prior(np.array([3, 1]))
    array([0.7, 0.3])
    >>> class_prior(np.array([3, 1]), own=np.array([0]))
    array([[0.625, 0.375]])
    """
    smoothed = counts + 0.5
    if own is None:
        return smoothed / smoothed.sum()
    without = np.tile(smoothed, (len(own), 1))
    without[np.arange(len(own)), own] -= 1.0
    return without / (smoothed.sum() - 1.0)
