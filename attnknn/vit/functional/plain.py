"""The definition, in plain torch: every score is made, every neighbor's values are copied."""

from __future__ import annotations

import torch
from torch import Tensor

from attnknn.vit.functional.similarity import Coordinates, own_scores, scores_of


def nearest(
    query: Tensor,
    key: Tensor,
    n_neighbors: int,
    similarity: str = "matmul",
    coordinates: Coordinates | None = None,
    mask: Tensor | None = None,
    excluded: Tensor | None = None,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores and index (B, H, N, K) of the nearest keys of each query, the nearest first.

    `excluded` (M,) names the query that may not choose a key. Where queries have keys of their
    `own` (B, H, N, d), the scores with those come first, and the index does not tell of them.
    """
    scores = scores_of(query, key, similarity, coordinates)  # (B, H, N, M)
    if mask is not None:
        scores = masked(scores, mask)
    if excluded is not None:
        itself = torch.arange(query.shape[2], device=query.device)[:, None] == excluded
        scores = scores.masked_fill(itself, float("-inf"))
    best = scores.topk(n_neighbors)
    if own is None:
        return best.values, best.indices
    first = own_scores(query, own, similarity, coordinates)[..., None]
    return torch.cat([first, best.values], -1), best.indices


def combine(
    value: Tensor,
    index: Tensor,
    weights: Tensor,
    kernel: Tensor | None,
    own: Tensor | None = None,
) -> Tensor:
    """The weighed values of the neighbors, times the kernel's tap of their rank, summed.

    Values (B, H, M, E), index and weights (B, H, N, K) give (B, H, N, C). A kernel (C, K) works on
    each channel by itself, (C, E, K) mixes them; without one all taps are one. Where tokens have
    values of their `own` (B, H, N, E), these are of the first rank, and `index` has K − 1.
    """
    batch, heads, _, channels = value.shape
    flat = index.flatten(2)[..., None].expand(-1, -1, -1, channels)  # (B, H, N·K, E)
    neighbors = value.gather(2, flat).view(batch, heads, *index.shape[2:], channels)
    if own is not None:
        neighbors = torch.cat([own[..., None, :], neighbors], -2)
    weighed = weights[..., None] * neighbors  # (B, H, N, K, E)
    if kernel is None:
        return weighed.sum(-2)
    form = "bhnke,ek->bhne" if kernel.dim() == 2 else "bhnke,cek->bhnc"
    return torch.einsum(form, weighed, kernel)


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with −inf where a boolean mask is False, or with a mask of numbers added."""
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, float("-inf"))
    return scores + mask
