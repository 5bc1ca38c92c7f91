"""Scores of the chosen neighbors become weights."""

from __future__ import annotations

import torch
from torch import Tensor

WEIGHTS = ("softmax", "raw", "ones")


def weigh(scores: Tensor, weights: str, similarity: str) -> Tensor:
    """Weights (..., K) of scores (..., K); a neighbor of score −inf is missing and weighs nothing.

    `softmax` sums to one, unless all are missing. `raw` are the scores themselves, or
    1 / (1 + distance) where they are negative distances. `ones` are all one.

    >>> weigh(torch.tensor([0.0, 0.0, -torch.inf]), "softmax", "matmul")
    tensor([0.5000, 0.5000, 0.0000])
    """
    missing = scores.isneginf()
    if weights == "softmax":
        # A row of −inf alone has no softmax; with zeros it has one, which the mask then removes.
        nobody = missing.all(-1, keepdim=True)
        return scores.masked_fill(nobody, 0.0).softmax(-1).masked_fill(missing, 0.0)
    if weights == "ones":
        return torch.ones_like(scores).masked_fill(missing, 0.0)
    scores = scores.masked_fill(missing, 0.0)
    raw = 1 / (1 - scores) if similarity == "euclidean" else scores
    return raw.masked_fill(missing, 0.0)
