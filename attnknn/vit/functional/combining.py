"""Values of neighbors, weighed, times the tap of their rank, summed: bags of one table.

The values of M tokens times the taps of K ranks are a table U of M · K rows, and what a token gets
is the bag Σⱼ wⱼ U[iⱼ · K + j]. The table is made for a few images at a time, and again for the
gradients. Registered with torch, so that `torch.compile` takes it as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnknn.training.threads import in_shares
from attnknn.vit.functional.bags import Bags, flat, images_at_once


@torch.library.custom_op(
    "attnknn::combine",
    mutates_args=(),
    schema="(Tensor value, Tensor index, Tensor weights, Tensor? kernel, Tensor? own) -> Tensor",
)
def combine(
    value: Tensor, index: Tensor, weights: Tensor, kernel: Tensor | None, own: Tensor | None
) -> Tensor:
    """As `plain.combine`."""
    combined = _like_combined(value, index, weights, kernel, own)
    taps = Taps(kernel, has_own=own is not None)

    def work(images: Tensor) -> None:
        for part in images_at_once(images, _table_size(value, kernel, own)):
            bags = taps.bags(index[part], weights[part], value.shape[2])
            sums = bags.sums(taps.table(flat(value[part])))
            if own is not None:
                sums.addcmul_(taps.own(flat(own[part])), flat(weights[part][..., :1]))
            combined[part] = sums.view(combined[part].shape)

    in_shares(work, torch.arange(len(value)))
    return combined


@combine.register_fake
def _like_combined(
    value: Tensor, index: Tensor, weights: Tensor, kernel: Tensor | None, own: Tensor | None
) -> Tensor:
    del weights, own
    channels = value.shape[-1] if kernel is None else kernel.shape[0]
    return value.new_empty(*index.shape[:3], channels)


@torch.library.custom_op(
    "attnknn::combine_backward",
    mutates_args=(),
    schema="(Tensor value, Tensor index, Tensor weights, Tensor? kernel, Tensor? own,"
    " Tensor slopes) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _backward(
    value: Tensor,
    index: Tensor,
    weights: Tensor,
    kernel: Tensor | None,
    own: Tensor | None,
    slopes: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_value, of_weights, _, of_own = _like_all(value, index, weights, kernel, own, slopes)
    taps = Taps(kernel, has_own=own is not None)

    def work(images: Tensor) -> Tensor:
        of_taps = torch.zeros_like(taps.taps) if taps.taps is not None else value.new_zeros(0)
        for part in images_at_once(images, 2 * _table_size(value, kernel, own)):
            sloped, shown = flat(slopes[part]), flat(value[part])
            bags = taps.bags(index[part], weights[part], value.shape[2])
            of_each = bags.slopes_of_weights(sloped, taps.table(shown))
            rows = taps.slopes(bags.who_chose(sloped), shown, of_taps)
            of_value[part] = rows.view(of_value[part].shape)
            if own is not None:
                mine = flat(own[part])
                first = (sloped * taps.own(mine)).sum(1, keepdim=True)
                of_each = torch.cat([first, of_each], 1)
                sloped = sloped * flat(weights[part][..., :1])
                of_own[part] = taps.own_slopes(sloped, mine, of_taps).view(of_own[part].shape)
            of_weights[part] = of_each.view(of_weights[part].shape)
        return of_taps

    with torch.autocast("cpu", enabled=False):
        of_shares = in_shares(work, torch.arange(len(value)))
    of_taps = sum(of_shares[1:], of_shares[0])
    return of_value, of_weights, of_taps.movedim(-1, 0).contiguous(), of_own


@_backward.register_fake
def _like_all(
    value: Tensor,
    index: Tensor,
    weights: Tensor,
    kernel: Tensor | None,
    own: Tensor | None,
    slopes: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del index, slopes
    of_kernel = value.new_empty(0 if kernel is None else kernel.shape)
    of_own = value.new_empty(0 if own is None else own.shape)
    return value.new_empty(value.shape), weights.new_empty(weights.shape), of_kernel, of_own


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _slopes(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: under activation checkpointing they are there only once
    *_, kernel, own = saved
    found = _backward(*saved, slopes.contiguous())
    of_value, of_weights, of_kernel, of_own = found
    of_kernel, of_own = (
        slope if given is not None else None
        for slope, given in ((of_kernel, kernel), (of_own, own))
    )
    return of_value, None, of_weights, of_kernel, of_own


combine.register_autograd(_slopes, setup_context=_keep)


def _table_size(value: Tensor, kernel: Tensor | None, own: Tensor | None) -> int:
    """Bytes of one image's table."""
    n_ranks = 1 if kernel is None else kernel.shape[-1] * kernel.shape[0] / value.shape[-1]
    n_own = 0 if own is None else own.shape[1:].numel()
    return int(value.shape[1:].numel() * n_ranks + n_own) * value.element_size()


class Taps:
    """A kernel as tables need it: output channels last, the tap of a token's own apart."""

    def __init__(self, kernel: Tensor | None, *, has_own: bool) -> None:
        self.taps = None if kernel is None else kernel.movedim(0, -1).contiguous()
        self.has_own = has_own  # (K, C), or (E, K, C)

    def bags(self, index: Tensor, weights: Tensor, n_rows: int) -> Bags:
        """Bags of the others that each token chose."""
        of_others = weights[..., 1:] if self.has_own else weights
        return Bags(index, of_others, n_rows, has_ranks=self.taps is not None)

    def table(self, rows: Tensor) -> Tensor:
        """Rows (R, E) times the taps of all ranks, (R · K, C)."""
        return self._times(rows, self._of_others(self.taps))

    def own(self, rows: Tensor) -> Tensor:
        """Tokens' own rows (R, E) times the tap of the first rank, (R, C)."""
        return self._times(rows, self._of_own(self.taps))

    def slopes(self, slopes: Tensor, rows: Tensor, of_taps: Tensor) -> Tensor:
        """Slopes of rows, from those of their table; those of the taps are added to."""
        return _slopes_of_rows(slopes, rows, self._of_others(self.taps), self._of_others(of_taps))

    def own_slopes(self, slopes: Tensor, rows: Tensor, of_taps: Tensor) -> Tensor:
        """The same for tokens' own rows."""
        return _slopes_of_rows(slopes, rows, self._of_own(self.taps), self._of_own(of_taps))

    def _of_others(self, taps: Any) -> Any:
        return taps[..., 1:, :] if self.has_own and self.taps is not None else taps

    def _of_own(self, taps: Any) -> Any:
        return taps[..., :1, :] if self.taps is not None else taps

    @staticmethod
    def _times(rows: Tensor, taps: Tensor | None) -> Tensor:
        if taps is None:
            return rows
        if taps.dim() == 2:
            return (rows[:, None] * taps).flatten(0, 1)
        return (rows @ taps.flatten(1)).view(len(rows) * taps.shape[1], taps.shape[2])


def _slopes_of_rows(slopes: Tensor, rows: Tensor, taps: Tensor | None, of_taps: Tensor) -> Tensor:
    if taps is None:
        return slopes
    if taps.dim() == 2:
        by_rank = slopes.view(len(rows), *taps.shape)  # (R, K, C)
        of_rows = (by_rank * taps).sum(1)
        of_taps += by_rank.mul_(rows[:, None]).sum(0)
        return of_rows
    of_products = slopes.view(len(rows), taps.shape[1] * taps.shape[2])  # (R, K · C)
    of_taps += (rows.T @ of_products).view(taps.shape)
    return of_products @ taps.flatten(1).T
