"""Attention to the nearest tokens by place: at a border the window moves in, and stays as large.

The window of a token starts half its size before it, but never beyond either end, so that every
token has as many neighbors (Hassani et al. 2023, section 3). With a dilation each window takes
every so-manieth token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional.grid import check_grid_size, grid_of
from attnknn.vit.layers.banded import BandedAttention


class NeighborhoodAttention1D(BandedAttention):
    """Attention to the `kernel_size` nearest tokens along the sequence.

    >>> NeighborhoodAttention1D(4, 1, kernel_size=3).pattern(4, torch.device("cpu")).int()
    tensor([[1, 1, 1, 0],
            [1, 1, 1, 0],
            [0, 1, 1, 1],
            [0, 1, 1, 1]], dtype=torch.int32)
    """

    def __init__(
        self, dim: int, *args: Any, kernel_size: int = 9, dilation: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(dim, *args, **kwargs)
        self.kernel_size = check_at_least("kernel_size", kernel_size, 1)
        self.dilation = check_at_least("dilation", dilation, 1)

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        return windows(n_tokens, self.kernel_size, self.dilation, device)


class NeighborhoodAttention2D(BandedAttention):
    """Attention to the patches of a window on the grid.

    Parameters
    ----------
    kernel_size, dilation
        One number, or those of rows and of columns.
    grid_size
        (height, width) of the patches; a square if None.
    """

    def __init__(
        self,
        dim: int,
        *args: Any,
        kernel_size: int | tuple[int, int] = 3,
        dilation: int | tuple[int, int] = 1,
        grid_size: int | tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dim, *args, **kwargs)
        self.kernel_size = _pair("kernel_size", kernel_size)
        self.dilation = _pair("dilation", dilation)
        self.grid_size = check_grid_size(grid_size)

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        grid = grid_of(n_tokens, self.grid_size, 0)
        rows = windows(grid.height, self.kernel_size[0], self.dilation[0], device)
        columns = windows(grid.width, self.kernel_size[1], self.dilation[1], device)
        both = rows[:, None, :, None] & columns[None, :, None, :]  # (height, width) twice
        return both.view(n_tokens, n_tokens)


def windows(length: int, size: int, dilation: int, device: torch.device) -> Tensor:
    """True at (i, j) where j is in the window of i, (length, length)."""
    if size * dilation > length:
        raise InvalidSettingError(
            f"`kernel_size` times `dilation` must be at most the {length} tokens along an axis, "
            f"got {size} × {dilation}."
        )
    at = torch.arange(length, device=device)
    group, place = at % dilation, at // dilation
    last = (length - 1 - group) // dilation + 1 - size  # where the last window of a group starts
    start = (place - size // 2).clamp(min=0).minimum(last)[:, None]
    is_inside = (place >= start) & (place < start + size)
    return is_inside & (group[:, None] == group)


def _pair(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else value
    return check_at_least(name, first, 1), check_at_least(name, second, 1)
