"""The largest inner products of each query, a few images at a time; only those are kept.

Registered with torch, so that `torch.compile` takes it as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnknn.training.threads import in_shares
from attnknn.vit.functional.bags import Bags, flat, images_at_once, rows_at_once


@torch.library.custom_op(
    "attnknn::largest_products",
    mutates_args=(),
    schema="(Tensor query, Tensor key, int n, Tensor? mask, Tensor? excluded, Tensor? own)"
    " -> (Tensor, Tensor)",
)
def largest_products(
    query: Tensor,
    key: Tensor,
    n: int,
    mask: Tensor | None,
    excluded: Tensor | None,
    own: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The n largest inner products (B, H, N, n) of queries with keys, and whose they are.

    Products with keys of the queries' own come before them, if there are such.
    """
    values, index = _like_largest(query, key, n, mask, excluded, own)
    n_rows, size = query.shape[2], key.shape[1] * key.shape[2] * key.element_size()

    def work(images: Tensor) -> None:
        for part, rows in rows_at_once(images, n_rows, size):
            products = query[part, :, rows] @ key[part].mT
            if mask is not None:
                _forbid(products, mask, part, rows)
            if excluded is not None:
                _exclude(products, excluded, rows)
            best = products.topk(n)
            values[part, :, rows, values.shape[-1] - n :] = best.values
            index[part, :, rows] = best.indices
            if own is not None:
                values[part, :, rows, 0] = (query[part, :, rows] * own[part, :, rows]).sum(-1)

    in_shares(work, torch.arange(len(query)))
    return values, index


@largest_products.register_fake
def _like_largest(
    query: Tensor,
    key: Tensor,
    n: int,
    mask: Tensor | None,
    excluded: Tensor | None,
    own: Tensor | None,
) -> tuple[Tensor, Tensor]:
    del key, mask, excluded
    values = query.new_empty((*query.shape[:3], n + (own is not None)))
    return values, query.new_empty((*query.shape[:3], n), dtype=torch.int64)


@torch.library.custom_op(
    "attnknn::largest_products_backward",
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor? own, Tensor index, Tensor slopes)"
    " -> (Tensor, Tensor, Tensor)",
)
def _backward(
    query: Tensor, key: Tensor, own: Tensor | None, index: Tensor, slopes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    of_query, of_key, of_own = _like_all(query, key, own, index, slopes)
    of_others = slopes if own is None else slopes[..., 1:]
    size = (query.shape[1:].numel() + key.shape[1:].numel()) * key.element_size()

    def work(images: Tensor) -> None:
        for part in images_at_once(images, size):
            bags = Bags(index[part], of_others[part], key.shape[2])
            of_query[part] = bags.sums(flat(key[part])).view(of_query[part].shape)
            of_key[part] = bags.who_chose(flat(query[part])).view(of_key[part].shape)
            if own is not None:
                first = slopes[part][..., :1]
                of_query[part] += first * own[part]
                of_own[part] = first * query[part]

    with torch.autocast("cpu", enabled=False):
        in_shares(work, torch.arange(len(query)))
    return of_query, of_key, of_own


@_backward.register_fake
def _like_all(
    query: Tensor, key: Tensor, own: Tensor | None, index: Tensor, slopes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del index, slopes
    of_own = query.new_empty(0 if own is None else own.shape)
    return query.new_empty(query.shape), key.new_empty(key.shape), of_own


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, *_, own = inputs
    ctx.save_for_backward(query, key, own, output[1])


def _slopes(ctx: Any, slopes: Tensor, _: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: under activation checkpointing they are there only once
    of_query, of_key, of_own = _backward(*saved, slopes.contiguous())
    has_own = saved[2] is not None
    return of_query, of_key, None, None, None, of_own if has_own else None


largest_products.register_autograd(_slopes, setup_context=_keep)


def _forbid(products: Tensor, mask: Tensor, part: slice, rows: slice) -> None:
    """Of a mask (B, H, N, M), each axis of which may be one."""
    shown = mask[part] if mask.shape[0] > 1 else mask
    shown = shown[:, :, rows] if mask.shape[2] > 1 else shown
    if mask.dtype == torch.bool:
        products.masked_fill_(~shown, float("-inf"))
    else:
        products.add_(shown)


def _exclude(products: Tensor, excluded: Tensor, rows: slice) -> None:
    """No token chooses itself: column m is token `excluded[m]`."""
    here = ((excluded >= rows.start) & (excluded < rows.stop)).nonzero().flatten()
    products[:, :, excluded[here] - rows.start, here] = float("-inf")
