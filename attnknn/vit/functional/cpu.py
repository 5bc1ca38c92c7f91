"""CPU backend: the same numbers as `reference` without all scores or copies of values in memory.

The nearest keys are found by their inner products, for a few images at a time, so that only the K
largest are kept. Registered as a torch operator, which `torch.compile` does not trace into.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attnknn.training.threads import in_shares
from attnknn.vit.functional.embedding_bag import (
    Bags,
    combine,
    flatten_rows,
    image_blocks,
    row_blocks,
)
from attnknn.vit.functional.reference import Coordinates, safe_normalize, safe_sqrt, self_scores

__all__ = ["combine", "largest_products", "nearest"]

SHORT = 256  # scores up to which sorting a whole row with vector instructions is fastest
BLOCK_KEYS = 1 << 15  # sorted at once: they stay in cache
LOW = np.int64((1 << 32) - 1)


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
    """As `reference.nearest`."""
    left, right = _as_products(query, key, similarity, coordinates)
    # Multiplying the few selected products is cheaper than scaling all queries.
    is_scaled = similarity == "matmul" and coordinates is None
    scale = 1 / math.sqrt(query.shape[-1]) if is_scaled else 1.0
    if mask is not None:
        mask = mask.view((1,) * (4 - mask.dim()) + mask.shape)
        if mask.dtype != torch.bool:
            mask = mask.to(left.dtype) / scale
    own = None
    if self_key is not None and similarity != "euclidean":
        at = coordinates and Coordinates(
            coordinates.queries, coordinates.queries, coordinates.feature_weight
        )
        _, own = _as_products(query, self_key, similarity, at)
    products, index = largest_products(left, right, n_neighbors, mask, excluded, own)
    if similarity != "euclidean":
        return products * scale, index
    scores = _distance_scores(products, query, coordinates)
    if self_key is not None:  # computed directly: so small a distance would be lost to rounding
        first = self_scores(query, self_key, similarity, coordinates)[..., None]
        scores = torch.cat([first, scores], -1)
    return scores, index


def _as_products(
    query: Tensor, key: Tensor, similarity: str, coordinates: Coordinates | None
) -> tuple[Tensor, Tensor]:
    """Vectors whose inner products order keys as the scores do."""
    if similarity == "euclidean":
        if coordinates is not None:
            of_features = math.sqrt(coordinates.feature_weight)
            of_places = math.sqrt(1 - coordinates.feature_weight)
            query = _append(of_features * query, of_places * coordinates.queries)
            key = _append(of_features * key, of_places * coordinates.keys)
        lengths = key.square().sum(-1, keepdim=True)
        return F.pad(2 * query, (0, 1), value=1.0), torch.cat([key, -lengths], -1)
    if similarity == "cosine":
        query, key = safe_normalize(query), safe_normalize(key)
    elif coordinates is not None:
        query = query / math.sqrt(query.shape[-1])
    return (query, key) if coordinates is None else _append_distances(query, key, coordinates)


def _append_distances(query: Tensor, key: Tensor, at: Coordinates) -> tuple[Tensor, Tensor]:
    """Append columns whose products are −|p − p'|² = 2⟨p, p'⟩ − |p'|² − |p|²."""
    here, there = at.queries.square().sum(-1, keepdim=True), at.keys.square().sum(-1, keepdim=True)
    left = torch.cat([2 * at.queries, -torch.ones_like(here), -here], -1)
    right = torch.cat([at.keys, there, torch.ones_like(there)], -1)
    share = at.feature_weight
    return _append(share * query, (1 - share) * left), _append(key, right)


def _append(features: Tensor, columns: Tensor) -> Tensor:
    """Features (B, H, N, d) with the same columns (N, c) for all images and heads."""
    columns = columns.to(features.dtype).expand(*features.shape[:2], -1, -1)
    return torch.cat([features, columns], -1)


def _distance_scores(products: Tensor, query: Tensor, coordinates: Coordinates | None) -> Tensor:
    """Negative distances (B, H, N, K) of the products that `_as_products` leads to."""
    lengths = query.square().sum(-1, keepdim=True)
    if coordinates is not None:
        share, places = coordinates.feature_weight, coordinates.queries.to(query.dtype)
        lengths = share * lengths + (1 - share) * places.square().sum(-1, keepdim=True)
    # Masked keys have products of −inf; the square root of infinity has no gradient.
    missing = products.isneginf()
    squares = lengths - products.masked_fill(missing, 0)
    return (-safe_sqrt(squares)).masked_fill(missing, float("-inf"))


@torch.library.custom_op("attnknn::largest_products", mutates_args=())
def largest_products(
    query: Tensor,
    key: Tensor,
    n: int,
    mask: Tensor | None,
    excluded: Tensor | None,
    own: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The n largest inner products (B, H, N, n) of queries with keys, and the index of the keys.

    With `own` keys (B, H, N, d), the product of each query with its own key comes first.
    """
    values, index = _empty_outputs(query, key, n, mask, excluded, own)
    n_rows, size = query.shape[2], key.shape[1] * key.shape[2] * key.element_size()

    def work(images: Tensor) -> None:
        for part, rows in row_blocks(images, n_rows, size):
            products = query[part, :, rows] @ key[part].mT
            if mask is not None:
                _apply_mask(products, mask, part, rows)
            if excluded is not None:  # column m is token `excluded[m]`
                here = ((excluded >= rows.start) & (excluded < rows.stop)).nonzero().flatten()
                products[:, :, excluded[here] - rows.start, here] = float("-inf")
            best, columns = largest(products, n)
            values[part, :, rows, values.shape[-1] - n :] = best
            index[part, :, rows] = columns
            if own is not None:
                values[part, :, rows, 0] = (query[part, :, rows] * own[part, :, rows]).sum(-1)

    in_shares(work, torch.arange(len(query)))
    return values, index


def largest(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest scores (..., n) of each row, in descending order, and their columns.

    Short rows are sorted by NumPy as integers that hold a score and its column, since `torch.topk`
    uses no vector instructions. Equal scores are then in the order of their columns.

    >>> largest(torch.tensor([[1.0, 3.0, 2.0, 3.0]]), 3)
    (tensor([[3., 3., 2.]]), tensor([[1, 3, 2]]))
    """
    n_columns = scores.shape[-1]
    if scores.dtype != torch.float32 or not 0 < n <= n_columns <= SHORT:
        best = scores.topk(n)
        return best.values, best.indices
    rows = scores.reshape(-1, n_columns).numpy()
    values, columns = np.empty((len(rows), n), np.int32), np.empty((len(rows), n), np.int64)
    step = max(1, BLOCK_KEYS // n_columns)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        _sort_block(rows[part], values[part], columns[part])
    shape = (*scores.shape[:-1], n)
    scores = torch.from_numpy(values.view(np.float32))
    return scores.view(shape), torch.from_numpy(columns).view(shape)


def _sort_block(rows: NDArray[Any], values: NDArray[Any], columns: NDArray[Any]) -> None:
    """Sort one integer per score: the score in its upper half, the column in its lower half."""
    n_columns, n = rows.shape[1], values.shape[1]
    keys = _as_ordered(rows.view(np.int32)).astype(np.int64)
    keys <<= 32
    keys |= np.arange(n_columns - 1, -1, -1)
    keys.sort(-1)
    best = keys[:, : -n - 1 : -1]
    values[:] = _as_ordered((best >> 32).astype(np.int32))
    np.subtract(n_columns - 1, best & LOW, out=columns)


def _as_ordered(bits: NDArray[Any]) -> NDArray[Any]:
    """Integers in the order of floats with these bits, and back again."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _apply_mask(products: Tensor, mask: Tensor, part: slice, rows: slice) -> None:
    """Mask in place; each axis of the mask (B, H, N, M) may have length one."""
    shown = mask[part] if mask.shape[0] > 1 else mask
    shown = shown[:, :, rows] if mask.shape[2] > 1 else shown
    if mask.dtype == torch.bool:
        products.masked_fill_(~shown, float("-inf"))
    else:
        products.add_(shown)


@largest_products.register_fake
def _empty_outputs(query: Tensor, _: Tensor, n: int, *rest: Tensor | None) -> tuple[Tensor, Tensor]:
    values = query.new_empty((*query.shape[:3], n + (rest[-1] is not None)))  # with own keys
    return values, query.new_empty((*query.shape[:3], n), dtype=torch.int64)


@torch.library.custom_op("attnknn::largest_products_backward", mutates_args=())
def _backward(
    query: Tensor, key: Tensor, own: Tensor | None, index: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grad_query, grad_key, grad_own = _empty_gradients(query, key, own, index, grad)
    grad_others = grad if own is None else grad[..., 1:]
    size = (query.shape[1:].numel() + key.shape[1:].numel()) * key.element_size()

    def work(images: Tensor) -> None:
        for part in image_blocks(images, size):
            bags = Bags(index[part], grad_others[part], key.shape[2])
            grad_query[part] = bags.sums(flatten_rows(key[part])).view(grad_query[part].shape)
            grad_key[part] = bags.scatter(flatten_rows(query[part])).view(grad_key[part].shape)
            if own is not None:
                first = grad[part][..., :1]
                grad_query[part] += first * own[part]
                grad_own[part] = first * query[part]

    with torch.autocast("cpu", enabled=False):
        in_shares(work, torch.arange(len(query)))
    return grad_query, grad_key, grad_own


@_backward.register_fake
def _empty_gradients(
    query: Tensor, key: Tensor, own: Tensor | None, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grad_own = query.new_empty(0 if own is None else own.shape)
    return query.new_empty(query.shape), key.new_empty(key.shape), grad_own


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, *_, own = inputs
    ctx.save_for_backward(query, key, own, output[1])


def _gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # read once: activation checkpointing allows no more
    grad_query, grad_key, grad_own = _backward(*saved, grad.contiguous())
    return grad_query, grad_key, None, None, None, None if saved[2] is None else grad_own


largest_products.register_autograd(_gradients, setup_context=_save)
