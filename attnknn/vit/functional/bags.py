"""Bags of rows of one table, their sums, and the gradients of those.

A bag is K rows of a table with a weight each. Bags are summed by `F.embedding_bag`, which copies no
row. The gradient for the table is again a sum of bags: over those that chose a row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from torch import Tensor

BYTES_AT_ONCE = 8 << 20  # of scores or tables, for each thread: they should stay in cache


class Bags:
    """What tokens chose in a few images: index and weights (b, H, N, K), of M rows per head.

    With ranks, each of the M rows stands K times in the table, once for each rank. Bags may be
    empty (K = 0), and then sum to zero.

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
        """The sum of each bag's rows, weighed: (b·H·N, C)."""
        if not self.index.shape[1]:
            return table.new_zeros(len(self.index), table.shape[1])
        return F.embedding_bag(self.index, table, mode="sum", per_sample_weights=self.weights)

    def who_chose(self, rows: Tensor) -> Tensor:
        """For each row of the table, the weighed sum of the `rows` (b·H·N, C) of bags with it."""
        n_bags, n = self.index.shape
        if not n:
            return rows.new_zeros(self.n_rows, rows.shape[1])
        starts = np.arange(0, n_bags * n + 1, n, dtype=np.int32)
        parts = (self.weights.numpy().ravel(), self.index.numpy().ravel(), starts)
        chosen = csr_matrix(parts, shape=(n_bags, self.n_rows), copy=False).tocsc()
        return F.embedding_bag(
            torch.from_numpy(chosen.indices),
            rows,
            torch.from_numpy(chosen.indptr),
            mode="sum",
            per_sample_weights=torch.from_numpy(chosen.data),
            include_last_offset=True,
        )

    def slopes_of_weights(self, slopes: Tensor, table: Tensor) -> Tensor:
        """The inner product of each bag's slope (b·H·N, C) with each of its rows: (b·H·N, K)."""
        n_bags, n = self.index.shape
        if not n:
            return slopes.new_zeros(n_bags, 0)
        starts = torch.arange(0, n_bags * n, n, dtype=torch.int32)
        bag_of = torch.arange(n_bags, dtype=torch.int32).repeat_interleave(n)
        backward = torch.ops.aten._embedding_bag_per_sample_weights_backward
        return backward(slopes, table, self.index.view(-1), starts, bag_of, 0, -1).view(-1, n)


def images_at_once(images: Tensor, size: int) -> Iterator[slice]:
    """Some of the numbered `images` at a time, of `size` bytes each."""
    if not len(images):
        return
    first, last = int(images[0]), int(images[-1]) + 1
    step = max(1, BYTES_AT_ONCE // max(size, 1))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def rows_at_once(images: Tensor, n_rows: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Some images and some of their rows, of `size` bytes each: whole images where they fit."""
    step = min(n_rows, max(1, BYTES_AT_ONCE // max(size, 1)))
    for part in images_at_once(images, n_rows * size):
        for start in range(0, n_rows, step):
            yield part, slice(start, min(start + step, n_rows))


def flat(features: Tensor) -> Tensor:
    """(b, H, N, C) as rows (b·H·N, C)."""
    return features.reshape(-1, features.shape[-1])
