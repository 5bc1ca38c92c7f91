"""How near a token is to another: larger scores are nearer, whatever the similarity.

    matmul     ⟨q, k⟩ / √d
    cosine     ⟨q, k⟩ / (|q| |k|)
    euclidean  −|q − k|

With coordinates p and a share s for features, the scores are s · score − (1 − s) |p − p'|² for the
first two, and −√(s |q − k|² + (1 − s) |p − p'|²) for the third.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SIMILARITIES = ("matmul", "cosine", "euclidean")


@dataclass(frozen=True)
class Coordinates:
    """Where queries (N, 2) and keys (M, 2) stand, and how much their features count beside."""

    queries: Tensor
    keys: Tensor
    feature_share: float = 0.5


def scores_of(
    query: Tensor, key: Tensor, similarity: str, coordinates: Coordinates | None = None
) -> Tensor:
    """Scores (B, H, N, M) of queries (B, H, N, d) and keys (B, H, M, d), by the definition."""
    share, far = 1.0, None
    if coordinates is not None:
        steps = coordinates.queries[:, None] - coordinates.keys[None]
        share, far = coordinates.feature_share, steps.square().sum(-1).to(query.dtype)
    if similarity == "euclidean":
        between = query.square().sum(-1, keepdim=True) + key.square().sum(-1)[..., None, :]
        squares = share * (between - 2 * query @ key.mT)
        return -safe_sqrt(squares if far is None else squares + (1 - share) * far)
    if similarity == "cosine":
        scores = directions(query) @ directions(key).mT
    else:
        scores = query @ key.mT / math.sqrt(query.shape[-1])
    return scores if far is None else share * scores - (1 - share) * far


def own_scores(
    query: Tensor, key: Tensor, similarity: str, coordinates: Coordinates | None = None
) -> Tensor:
    """Scores (B, H, N) of each token with itself, which is no step away."""
    share = 1.0 if coordinates is None else coordinates.feature_share
    if similarity == "euclidean":
        return -safe_sqrt(share * (query - key).square().sum(-1))
    if similarity == "cosine":
        query, key = directions(query), directions(key)
    else:
        share = share / math.sqrt(query.shape[-1])
    return share * (query * key).sum(-1)


def as_products(
    query: Tensor, key: Tensor, similarity: str, coordinates: Coordinates | None = None
) -> tuple[Tensor, Tensor]:
    """Vectors whose inner products order keys as the scores do; `scores_from` gives the scores."""
    if similarity == "euclidean":
        if coordinates is not None:
            query, key = _beside_coordinates(query, key, coordinates)
        lengths = key.square().sum(-1, keepdim=True)
        return _and_one(2 * query), torch.cat([key, -lengths], -1)
    if similarity == "cosine":
        query, key = directions(query), directions(key)
    elif coordinates is not None:
        query = query / math.sqrt(query.shape[-1])
    return (query, key) if coordinates is None else _with_distances(query, key, coordinates)


def scale_of(query: Tensor, similarity: str, coordinates: Coordinates | None = None) -> float:
    """Scores are so many times the products: few are kept, and scaled at less cost than queries."""
    is_scaled = similarity == "matmul" and coordinates is None
    return 1 / math.sqrt(query.shape[-1]) if is_scaled else 1.0


def scores_from(
    products: Tensor, query: Tensor, similarity: str, coordinates: Coordinates | None = None
) -> Tensor:
    """The scores (B, H, N, K) whose products `as_products` led to."""
    if similarity != "euclidean":
        return products * scale_of(query, similarity, coordinates)
    lengths = query.square().sum(-1, keepdim=True)
    if coordinates is not None:
        share, places = coordinates.feature_share, coordinates.queries.to(query.dtype)
        lengths = share * lengths + (1 - share) * places.square().sum(-1, keepdim=True)
    # Products of −inf are places that nobody may take; infinite lengths have no slope.
    missing = products.isneginf()
    squares = lengths - products.masked_fill(missing, 0)
    return (-safe_sqrt(squares)).masked_fill(missing, float("-inf"))


def directions(features: Tensor) -> Tensor:
    """Features (..., d) at length one; those of length zero have no direction and no slope.

    >>> features = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    >>> directions(features).sum().backward()
    >>> features.grad
    tensor([[ 0.0000,  0.0000],
            [ 0.0320, -0.0240]])
    """
    squares = features.square().sum(-1, keepdim=True)
    is_positive = squares > torch.finfo(features.dtype).tiny
    return features * torch.where(is_positive, torch.where(is_positive, squares, 1.0).rsqrt(), 0.0)


def safe_sqrt(squares: Tensor) -> Tensor:
    """The root, zero with a slope of zero where rounding left nothing or less.

    >>> squares = torch.tensor([-1e-9, 0.0, 4.0], requires_grad=True)
    >>> safe_sqrt(squares).sum().backward()
    >>> squares.grad
    tensor([0.0000, 0.0000, 0.2500])
    """
    is_positive = squares > torch.finfo(squares.dtype).tiny
    return torch.where(is_positive, torch.where(is_positive, squares, 1.0).sqrt(), 0.0)


def _and_one(features: Tensor) -> Tensor:
    return F.pad(features, (0, 1), value=1.0)


def _beside_coordinates(query: Tensor, key: Tensor, at: Coordinates) -> tuple[Tensor, Tensor]:
    of_features, of_places = math.sqrt(at.feature_share), math.sqrt(1 - at.feature_share)
    return (
        _beside(of_features * query, of_places * at.queries),
        _beside(of_features * key, of_places * at.keys),
    )


def _with_distances(query: Tensor, key: Tensor, at: Coordinates) -> tuple[Tensor, Tensor]:
    """Three more columns whose products are −|p − p'|² = 2⟨p, p'⟩ − |p'|² − |p|²."""
    here, there = at.queries.square().sum(-1, keepdim=True), at.keys.square().sum(-1, keepdim=True)
    asked = torch.cat([2 * at.queries, -torch.ones_like(here), -here], -1)
    known = torch.cat([at.keys, there, torch.ones_like(there)], -1)
    share = at.feature_share
    return _beside(share * query, (1 - share) * asked), _beside(key, known)


def _beside(features: Tensor, columns: Tensor) -> Tensor:
    """Features (B, H, N, d) with the same columns (N, c) for all images and heads."""
    columns = columns.to(features.dtype).expand(*features.shape[:2], -1, -1)
    return torch.cat([features, columns], -1)
