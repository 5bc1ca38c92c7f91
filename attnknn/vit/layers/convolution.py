"""Convolutions in the place of attention: along the sequence of tokens, or over the patch grid."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnknn._validation import check_at_least
from attnknn.vit.functional.grid import check_grid_size, grid_of
from attnknn.vit.layers.base import check_share, check_tokens, head_width


class TokenConv1d(nn.Module):
    """Projected tokens, convolved along the sequence within each head, and projected again.

    The heads share one kernel, as they do in `ConvNNAttention`. Beyond both ends there are zeros;
    an even kernel reaches one token further ahead than back.

    >>> TokenConv1d(12, num_heads=3, kernel_size=3)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    n_axes = 1
    sees_others = True

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = False,
        proj_drop: float = 0.0,
        *,
        kernel_size: int = 9,
        proj_bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        width = head_width(dim, num_heads)
        size = check_at_least("kernel_size", kernel_size, 1)
        at: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_heads = num_heads
        self.value = nn.Linear(dim, dim, bias=qkv_bias, **at)
        self.conv = (nn.Conv1d, nn.Conv2d)[self.n_axes - 1](width, width, size, **at)
        self.proj = nn.Linear(dim, dim, bias=proj_bias, **at)
        self.proj_drop = nn.Dropout(check_share("proj_drop", proj_drop))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) to the same."""
        check_tokens(x, self.value.in_features)
        heads = self.value(x).unflatten(-1, (self.num_heads, -1)).permute(0, 2, 3, 1)
        mixed = self.mix(heads.flatten(0, 1)).unflatten(0, (-1, self.num_heads))  # (B, H, d, N)
        return self.proj_drop(self.proj(mixed.permute(0, 3, 1, 2).flatten(2)))

    def mix(self, tokens: Tensor) -> Tensor:
        """(B · H, d, N) convolved."""
        return self.convolved(tokens)

    def convolved(self, features: Tensor) -> Tensor:
        """Of the size it had."""
        size = self.conv.kernel_size[0]
        return self.conv(F.pad(features, ((size - 1) // 2, size // 2) * self.n_axes))


class TokenConv2d(TokenConv1d):
    """The same over the grid of patches; prefix tokens have no place there and pass through.

    Parameters
    ----------
    grid_size
        (height, width) of the patches; a square if None.
    num_prefix_tokens
        Tokens before the patches.
    """

    n_axes = 2
    sees_others = False  # prefix tokens have no place on the grid

    def __init__(
        self,
        dim: int,
        *args: Any,
        kernel_size: int = 3,
        grid_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dim, *args, kernel_size=kernel_size, **kwargs)
        self.grid_size = check_grid_size(grid_size)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)

    def mix(self, tokens: Tensor) -> Tensor:
        n_prefix = self.num_prefix_tokens
        grid = grid_of(tokens.shape[-1], self.grid_size, n_prefix)
        patches = tokens[..., n_prefix:].unflatten(-1, (grid.height, grid.width))
        return torch.cat([tokens[..., :n_prefix], self.convolved(patches).flatten(-2)], -1)
