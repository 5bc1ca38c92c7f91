"""The same as `plain` on a processor, without a copy of every score and neighbor's values."""

from __future__ import annotations

import torch
from torch import Tensor

from attnknn.vit.functional import combining
from attnknn.vit.functional.choosing import largest_products
from attnknn.vit.functional.similarity import (
    Coordinates,
    as_products,
    own_scores,
    scale_of,
    scores_from,
)


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
    """As `plain.nearest`."""
    asked, known = as_products(query, key, similarity, coordinates)
    if mask is not None:
        mask = mask.view((1,) * (4 - mask.dim()) + mask.shape)
        if mask.dtype != torch.bool:
            mask = mask.to(asked.dtype) / scale_of(query, similarity, coordinates)
    if own is not None and similarity == "euclidean":  # of products nothing would be left
        products, index = largest_products(asked, known, n_neighbors, mask, excluded, None)
        first = own_scores(query, own, similarity, coordinates)[..., None]
        return torch.cat([first, scores_from(products, query, similarity, coordinates)], -1), index
    if own is not None:
        at = coordinates and Coordinates(
            coordinates.queries, coordinates.queries, coordinates.feature_share
        )
        _, own = as_products(query, own, similarity, at)
    products, index = largest_products(asked, known, n_neighbors, mask, excluded, own)
    return scores_from(products, query, similarity, coordinates), index


def combine(
    value: Tensor,
    index: Tensor,
    weights: Tensor,
    kernel: Tensor | None,
    own: Tensor | None = None,
) -> Tensor:
    """As `plain.combine`."""
    return combining.combine(value, index, weights, kernel, own)
