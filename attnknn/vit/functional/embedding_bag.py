"""Combine neighbors with `F.embedding_bag`: no copy of each neighbor's values.

The values of M tokens times the taps of K ranks are a table U of M · K rows, and the output of a
token is the weighted bag Σⱼ wⱼ U[iⱼ · K + j]. The table is made for a few images at a time, and
made again in the backward pass. Registered as a torch operator, which `torch.compile` does not
trace into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from torch import Tensor

from attnknn.training.threads import in_shares

BLOCK_BYTES = 8 << 20  # of scores or tables, for each thread: they should stay in cache


class Bags:
    """Neighbors of some images: index and weights (b, H, N, K) of M table rows per head.

    With ranks, each of the M rows is in the table K times, once for each rank. Empty bags (K = 0)
    sum to zero.

    >>> bags = Bags(torch.tensor([[[[1, 0]]]]), torch.tensor([[[[2.0, 1.0]]]]), 2)
    >>> bags.sums(torch.tensor([[1.0], [10.0]]))
    tensor([[21.]])
    """

    def __init__(
        self, index: Tensor, weights: Tensor, n_rows: int, *, has_ranks: bool = False
    ) -> None:
        n = index.shape[-1]
        flat = index.to(torch.int32).flatten(0, 1)  # (b·H, N, K)
        first = torch.arange(0, len(flat) * n_rows, n_rows, dtype=torch.int32)
        flat = flat + first[:, None, None]
        self.n_rows = len(first) * n_rows
        if has_ranks:
            flat = flat.mul_(n).add_(torch.arange(n, dtype=torch.int32))
            self.n_rows *= n
        self.index = flat.reshape(flat.shape[0] * flat.shape[1], n)  # (b·H·N, K)
        self.weights = weights.reshape(self.index.shape)

    def sums(self, table: Tensor) -> Tensor:
        """The weighted sum of the rows of each bag: (b·H·N, C)."""
        if not self.index.shape[1]:
            return table.new_zeros(len(self.index), table.shape[1])
        return F.embedding_bag(self.index, table, mode="sum", per_sample_weights=self.weights)

    def scatter(self, rows: Tensor) -> Tensor:
        """The gradient of the table: for each table row, the weighted sum of `rows` (b·H·N, C)."""
        n_bags, n = self.index.shape
        if not n:
            return rows.new_zeros(self.n_rows, rows.shape[1])
        starts = np.arange(0, n_bags * n + 1, n, dtype=np.int32)
        parts = (self.weights.numpy().ravel(), self.index.numpy().ravel(), starts)
        by_row = csr_matrix(parts, shape=(n_bags, self.n_rows), copy=False).tocsc()
        return F.embedding_bag(
            torch.from_numpy(by_row.indices),
            rows,
            torch.from_numpy(by_row.indptr),
            mode="sum",
            per_sample_weights=torch.from_numpy(by_row.data),
            include_last_offset=True,
        )

    def weight_gradients(self, grad: Tensor, table: Tensor) -> Tensor:
        """Inner products of the gradient (b·H·N, C) of each bag with its rows: (b·H·N, K)."""
        n_bags, n = self.index.shape
        if not n:
            return grad.new_zeros(n_bags, 0)
        starts = torch.arange(0, n_bags * n, n, dtype=torch.int32)
        bag_of = torch.arange(n_bags, dtype=torch.int32).repeat_interleave(n)
        backward = torch.ops.aten._embedding_bag_per_sample_weights_backward
        return backward(grad, table, self.index.view(-1), starts, bag_of, 0, -1).view(-1, n)


def image_blocks(images: Tensor, size: int) -> Iterator[slice]:
    """Blocks of the numbered `images`, `size` bytes each, within the memory limit."""
    if not len(images):
        return
    first, last = int(images[0]), int(images[-1]) + 1
    step = max(1, BLOCK_BYTES // max(size, 1))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def row_blocks(images: Tensor, n_rows: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of images and of their rows, `size` bytes each; whole images where they fit."""
    step = min(n_rows, max(1, BLOCK_BYTES // max(size, 1)))
    for part in image_blocks(images, n_rows * size):
        for start in range(0, n_rows, step):
            yield part, slice(start, min(start + step, n_rows))


def flatten_rows(features: Tensor) -> Tensor:
    """(b, H, N, C) as rows (b·H·N, C)."""
    return features.reshape(-1, features.shape[-1])


@torch.library.custom_op("attnknn::combine", mutates_args=())
def combine(
    value: Tensor, index: Tensor, weights: Tensor, kernel: Tensor | None, own: Tensor | None = None
) -> Tensor:
    """As `reference.combine`."""
    combined = _empty_output(value, index, weights, kernel, own)
    first, others = _split_taps(_as_taps(kernel), own)

    def work(images: Tensor) -> None:
        for part in image_blocks(images, _table_bytes(value, kernel, own)):
            bags = _bags(value, index[part], weights[part], kernel, own)
            sums = bags.sums(_apply_taps(flatten_rows(value[part]), others))
            out = flatten_rows(combined[part])
            if own is None:
                out.copy_(sums)
            else:
                own_rows = _apply_taps(flatten_rows(own[part]), first)
                torch.addcmul(sums, own_rows, flatten_rows(weights[part][..., :1]), out=out)

    in_shares(work, torch.arange(len(value)))
    return combined


@combine.register_fake
def _empty_output(
    value: Tensor, index: Tensor, _: Tensor, kernel: Tensor | None, *__: Tensor | None
) -> Tensor:
    channels = value.shape[-1] if kernel is None else kernel.shape[0]
    return value.new_empty(*index.shape[:3], channels)


@torch.library.custom_op("attnknn::combine_backward", mutates_args=())
def _backward(
    value: Tensor,
    index: Tensor,
    weights: Tensor,
    kernel: Tensor | None,
    own: Tensor | None,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_value, grad_weights, _, grad_own = _empty_gradients(
        value, index, weights, kernel, own, grad
    )
    taps = _as_taps(kernel)
    first, others = _split_taps(taps, own)

    def work(images: Tensor) -> Tensor:
        grad_taps = None if taps is None else torch.zeros_like(taps)
        grad_first, grad_others = _split_taps(grad_taps, own)
        for part in image_blocks(images, 2 * _table_bytes(value, kernel, own)):
            grad_rows, rows = flatten_rows(grad[part]), flatten_rows(value[part])
            bags = _bags(value, index[part], weights[part], kernel, own)
            by_rank = bags.weight_gradients(grad_rows, _apply_taps(rows, others))
            back = _apply_taps_backward(bags.scatter(grad_rows), rows, others, grad_others)
            grad_value[part] = back.view(grad_value[part].shape)
            if own is not None:
                own_rows = flatten_rows(own[part])
                of_own = (grad_rows * _apply_taps(own_rows, first)).sum(1, keepdim=True)
                by_rank = torch.cat([of_own, by_rank], 1)
                grad_rows = grad_rows * flatten_rows(weights[part][..., :1])
                back = _apply_taps_backward(grad_rows, own_rows, first, grad_first)
                grad_own[part] = back.view(grad_own[part].shape)
            grad_weights[part] = by_rank.view(grad_weights[part].shape)
        return value.new_zeros(0) if grad_taps is None else grad_taps

    with torch.autocast("cpu", enabled=False):
        parts = in_shares(work, torch.arange(len(value)))
    grad_taps = sum(parts[1:], parts[0])
    return grad_value, grad_weights, grad_taps.movedim(-1, 0).contiguous(), grad_own


@_backward.register_fake
def _empty_gradients(
    value: Tensor, _: Tensor, weights: Tensor, *rest: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    parts = (value.new_empty(0 if part is None else part.shape) for part in rest[:2])
    grad_kernel, grad_own = parts
    return value.new_empty(value.shape), weights.new_empty(weights.shape), grad_kernel, grad_own


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # read once: activation checkpointing allows no more
    *_, kernel, own = saved
    grad_value, grad_weights, grad_kernel, grad_own = _backward(*saved, grad.contiguous())
    return (
        grad_value,
        None,
        grad_weights,
        None if kernel is None else grad_kernel,
        None if own is None else grad_own,
    )


combine.register_autograd(_gradients, setup_context=_save)


def _table_bytes(value: Tensor, kernel: Tensor | None, own: Tensor | None) -> int:
    """Bytes of the table of one image."""
    n_ranks = 1 if kernel is None else kernel.shape[-1] * kernel.shape[0] / value.shape[-1]
    n_own = 0 if own is None else own.shape[1:].numel()
    return int(value.shape[1:].numel() * n_ranks + n_own) * value.element_size()


def _bags(
    value: Tensor, index: Tensor, weights: Tensor, kernel: Tensor | None, own: Tensor | None
) -> Bags:
    """The neighbors of each token besides itself."""
    others = weights if own is None else weights[..., 1:]
    return Bags(index, others, value.shape[2], has_ranks=kernel is not None)


def _as_taps(kernel: Tensor | None) -> Tensor | None:
    """The kernel with output channels last: (K, C), or (E, K, C)."""
    return None if kernel is None else kernel.movedim(0, -1).contiguous()


def _split_taps(taps: Tensor | None, own: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The tap of a token itself, and those of its neighbors."""
    if taps is None:
        return None, None
    return taps[..., :1, :], taps if own is None else taps[..., 1:, :]


def _apply_taps(rows: Tensor, taps: Tensor | None) -> Tensor:
    """Rows (R, E) times the taps of all ranks, (R · K, C)."""
    if taps is None:
        return rows
    if taps.dim() == 2:
        return (rows[:, None] * taps).flatten(0, 1)
    return (rows @ taps.flatten(1)).view(len(rows) * taps.shape[1], taps.shape[2])


def _apply_taps_backward(
    grad: Tensor, rows: Tensor, taps: Tensor | None, grad_taps: Tensor | None
) -> Tensor:
    """Gradient of the rows; the gradient of the taps is added to `grad_taps`."""
    if taps is None or grad_taps is None:
        return grad
    if taps.dim() == 2:
        by_rank = grad.view(len(rows), *taps.shape)  # (R, K, C)
        grad_rows = (by_rank * taps).sum(1)
        grad_taps += by_rank.mul_(rows[:, None]).sum(0)
        return grad_rows
    products = grad.view(len(rows), taps.shape[1] * taps.shape[2])  # (R, K · C)
    grad_taps += (rows.T @ products).view(taps.shape)
    return products @ taps.flatten(1).T
