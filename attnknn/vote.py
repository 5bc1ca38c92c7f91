"""Weights and labels become class shares; float64, on the CPU; the only place that adds votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnknn.records import Floats, Integers, Weights

if TYPE_CHECKING:
    from torch import Tensor

PRIOR_SMOOTHING = 0.5  # examples added to each class


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
    """`vote` with a gradient: weights (B, K) and (B,) and a prior (B, C) or (C,) give (B, C).

    Labels are codes (B, K); or class probabilities, (B, K, C) or, where all queries have the same
    neighbors, (K, C).
    """
    by_prior = prior_weight[:, None] * prior
    if labels.ndim == 3:
        return (neighbors[:, None] @ labels)[:, 0] + by_prior
    if labels.is_floating_point():
        return neighbors @ labels + by_prior
    return by_prior.scatter_add(1, labels, neighbors)


def class_prior(counts: Integers, own: Integers | None = None) -> Floats:
    """Class frequencies, half an example added to each: (C,), or (B, C) without the `own` labels.

    Leave-one-out removes an entry from the counts; `own` are the label codes of such entries.

    >>> class_prior(np.array([3, 1]))
    array([0.7, 0.3])
    >>> class_prior(np.array([3, 1]), own=np.array([0]))
    array([[0.625, 0.375]])
    """
    smoothed = counts + PRIOR_SMOOTHING
    if own is None:
        return smoothed / smoothed.sum()
    without = np.tile(smoothed, (len(own), 1))
    without[np.arange(len(own)), own] -= 1.0
    return without / (smoothed.sum() - 1.0)


def class_prior_in_torch(counts: Tensor, own: Tensor | None = None) -> Tensor:
    """`class_prior` of counts (C,) in their dtype; own labels are (B, C) probabilities."""
    smoothed = counts + PRIOR_SMOOTHING
    if own is None:
        return smoothed / smoothed.sum()
    return (smoothed - own).clamp_min(0) / (smoothed.sum() - 1)
