"""Reference implementation in plain torch, and the definitions of similarity and weights.

Larger scores mean nearer tokens, whatever the similarity:

    matmul     ⟨q, k⟩ / √d
    cosine     ⟨q, k⟩ / (|q| |k|)
    euclidean  −|q − k|

With coordinates p and a feature weight s, the scores are s · score − (1 − s) |p − p'|² for the
first two, and −√(s |q − k|² + (1 − s) |p − p'|²) for the third. `cpu` computes the same without
all scores and without copies of the neighbors' values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SIMILARITIES = ("matmul", "cosine", "euclidean")
WEIGHTS = ("softmax", "raw", "ones")
SHORT = 16  # below it, torch's softmax of the last dimension uses no vector instructions


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of queries (N, 2) and keys (M, 2), and the relative weight of features."""

    queries: Tensor
    keys: Tensor
    feature_weight: float = 0.5


def nearest(
    query: Tensor,
    key: Tensor,
    n_neighbors: int,
    similarity: str = "matmul",
    coordinates: Coordinates | None = None,
    mask: Tensor | None = None,
    excluded: Tensor | None = None,
    self_key: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores and index (B, H, N, K) of the nearest keys of each query, nearest first.

    `excluded` (M,) is the query that must not select each key. With `self_key` (B, H, N, d), the
    scores of queries with their own keys come first, and the index does not include them.
    """
    scores = similarity_scores(query, key, similarity, coordinates)  # (B, H, N, M)
    if mask is not None:
        scores = apply_mask(scores, mask)
    if excluded is not None:
        is_self = torch.arange(query.shape[2], device=query.device)[:, None] == excluded
        scores = scores.masked_fill(is_self, float("-inf"))
    best = scores.topk(n_neighbors)
    if self_key is None:
        return best.values, best.indices
    first = self_scores(query, self_key, similarity, coordinates)[..., None]
    return torch.cat([first, best.values], -1), best.indices


def combine(
    value: Tensor,
    index: Tensor,
    weights: Tensor,
    kernel: Tensor | None,
    self_value: Tensor | None = None,
) -> Tensor:
    """Sum over ranks of weight × value × kernel tap of that rank.

    Values (B, H, M, E), index and weights (B, H, N, K) give (B, H, N, C). A kernel (C, K) is
    depthwise, (C, E, K) mixes channels; None is a kernel of ones. With `self_value` (B, H, N, E),
    each token is its own neighbor of rank one, and `index` has K − 1 columns.
    """
    batch, heads, _, channels = value.shape
    flat = index.flatten(2)[..., None].expand(-1, -1, -1, channels)  # (B, H, N·K, E)
    neighbors = value.gather(2, flat).view(batch, heads, *index.shape[2:], channels)
    if self_value is not None:
        neighbors = torch.cat([self_value[..., None, :], neighbors], -2)
    weighted = weights[..., None] * neighbors  # (B, H, N, K, E)
    if kernel is None:
        return weighted.sum(-2)
    form = "bhnke,ek->bhne" if kernel.dim() == 2 else "bhnke,cek->bhnc"
    return torch.einsum(form, weighted, kernel)


def apply_mask(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with −inf where a boolean mask is False, or with a float mask added."""
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, float("-inf"))
    return scores + mask


def compute_weights(scores: Tensor, weights: str, similarity: str) -> Tensor:
    """Weights (..., K) of scores (..., K); a score of −inf is a missing neighbor of weight zero.

    `softmax` sums to one unless all are missing. `raw` is the score itself, or 1 / (1 + distance)
    for negative distances. `ones` is one.

    >>> compute_weights(torch.tensor([0.0, 0.0, -torch.inf]), "softmax", "matmul")
    tensor([0.5000, 0.5000, 0.0000])
    """
    missing = scores.isneginf()
    if weights == "softmax":
        # The softmax of a row of −inf is NaN. With zeros it is defined, and the mask removes it.
        is_empty = missing.all(-1, keepdim=True)
        return _softmax(scores.masked_fill(is_empty, 0.0)).masked_fill(missing, 0.0)
    if weights == "ones":
        return torch.ones_like(scores).masked_fill(missing, 0.0)
    scores = scores.masked_fill(missing, 0.0)
    raw = 1 / (1 - scores) if similarity == "euclidean" else scores
    return raw.masked_fill(missing, 0.0)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax of the last dimension; a CPU computes it much faster as the first if it is short."""
    if scores.device.type != "cpu" or scores.shape[-1] >= SHORT:
        return scores.softmax(-1)
    return scores.movedim(-1, 0).contiguous().softmax(0).movedim(0, -1)


def similarity_scores(
    query: Tensor, key: Tensor, similarity: str, coordinates: Coordinates | None = None
) -> Tensor:
    """Scores (B, H, N, M) of queries (B, H, N, d) with keys (B, H, M, d)."""
    share, distances = 1.0, None
    if coordinates is not None:
        offsets = coordinates.queries[:, None] - coordinates.keys[None]
        share, distances = coordinates.feature_weight, offsets.square().sum(-1).to(query.dtype)
    if similarity == "euclidean":
        lengths = query.square().sum(-1, keepdim=True) + key.square().sum(-1)[..., None, :]
        squares = share * (lengths - 2 * query @ key.mT)
        return -safe_sqrt(squares if distances is None else squares + (1 - share) * distances)
    if similarity == "cosine":
        scores = safe_normalize(query) @ safe_normalize(key).mT
    else:
        scores = query @ key.mT / math.sqrt(query.shape[-1])
    return scores if distances is None else share * scores - (1 - share) * distances


def self_scores(
    query: Tensor, key: Tensor, similarity: str, coordinates: Coordinates | None = None
) -> Tensor:
    """Scores (B, H, N) of each token with itself, at a coordinate distance of zero."""
    share = 1.0 if coordinates is None else coordinates.feature_weight
    if similarity == "euclidean":
        return -safe_sqrt(share * (query - key).square().sum(-1))
    if similarity == "cosine":
        query, key = safe_normalize(query), safe_normalize(key)
    else:
        share = share / math.sqrt(query.shape[-1])
    return share * (query * key).sum(-1)


def safe_normalize(features: Tensor) -> Tensor:
    """Features (..., d) scaled to unit length; vectors of zeros stay, with a gradient of zero.

    >>> features = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    >>> safe_normalize(features).sum().backward()
    >>> features.grad
    tensor([[ 0.0000,  0.0000],
            [ 0.0320, -0.0240]])
    """
    squares = features.square().sum(-1, keepdim=True)
    is_positive = squares > torch.finfo(features.dtype).tiny
    return features * torch.where(is_positive, torch.where(is_positive, squares, 1.0).rsqrt(), 0.0)


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root; zero with a gradient of zero where rounding left zero or less.

    >>> squares = torch.tensor([-1e-9, 0.0, 4.0], requires_grad=True)
    >>> safe_sqrt(squares).sum().backward()
    >>> squares.grad
    tensor([0.0000, 0.0000, 0.2500])
    """
    is_positive = squares > torch.finfo(squares.dtype).tiny
    return torch.where(is_positive, torch.where(is_positive, squares, 1.0).sqrt(), 0.0)
