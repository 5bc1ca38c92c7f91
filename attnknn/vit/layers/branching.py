"""Some channels attend to their nearest, the others by another way; then both are mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidSettingError
from attnknn.vit.layers.attention import Attention
from attnknn.vit.layers.base import check_share, check_tokens, head_width
from attnknn.vit.layers.convnn import ConvNNAttention
from attnknn.vit.layers.convolution import TokenConv1d, TokenConv2d


class Branching(nn.Module):
    """The first channels go through `ConvNNAttention`, the others through the other branch.

    Parameters
    ----------
    branch_ratio
        The share of channels that attend to their nearest, from 0 to 1; rounded so that both
        branches have channels for all heads. At 0 and 1 the layer is one branch and nothing else.
    convnn
        Settings of `ConvNNAttention`.
    """

    def __init__(
        self,
        make_other: Callable[..., nn.Module],
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        *,
        branch_ratio: float = 0.5,
        proj_bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **convnn: Any,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.n_near = near_channels(dim, num_heads, branch_ratio)
        is_both = 0 < self.n_near < dim
        at: dict[str, Any] = {"device": device, "dtype": dtype}
        inner: dict[str, Any] = {
            "proj_drop": 0.0 if is_both else proj_drop,
            "proj_bias": proj_bias,
            **at,
        }
        self.near: nn.Module | None = None
        self.other: nn.Module | None = None
        of_near: dict[str, Any] = {**convnn, **inner}
        if self.n_near > 0:
            self.near = ConvNNAttention(self.n_near, num_heads, qkv_bias, attn_drop, **of_near)
        else:  # its settings must be right all the same
            ConvNNAttention(dim, num_heads, qkv_bias, attn_drop, **{**of_near, "device": "meta"})
        if self.n_near < dim:
            self.other = make_other(dim - self.n_near, num_heads, qkv_bias, attn_drop, **inner)
        self.proj = nn.Linear(dim, dim, bias=proj_bias, **at) if is_both else None
        self.proj_drop = nn.Dropout(check_share("proj_drop", proj_drop))

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """(B, N, dim) to the same."""
        check_tokens(x, self.dim)
        parts = []
        if self.near is not None:
            parts.append(self.near(x[..., : self.n_near], attn_mask, is_causal))
        if self.other is not None:
            parts.append(self.run_other(self.other, x[..., self.n_near :], attn_mask, is_causal))
        if self.proj is None:
            return parts[0]
        return self.proj_drop(self.proj(torch.cat(parts, -1)))

    @property
    def sees_others(self) -> bool:
        """Whether a prefix token may look at patches, by any branch."""
        return any(getattr(part, "sees_others", False) for part in (self.near, self.other))

    def run_other(
        self, other: nn.Module, x: Tensor, attn_mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        """What the other branch makes of its channels."""
        return other(x, attn_mask, is_causal)

    def extra_repr(self) -> str:
        return f"n_near={self.n_near}"


class BranchingAttention(Branching):
    """`ConvNNAttention` beside softmax attention.

    >>> BranchingAttention(12, 3, branch_ratio=0.25, n_neighbors=2)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(Attention, dim, *args, **kwargs)


class BranchingConv(Branching):
    """`ConvNNAttention` beside a convolution.

    Parameters
    ----------
    n_axes
        1: along the sequence of tokens; 2: over the grid of patches.
    kernel_size
        Of the convolution, along each axis; 9 and 3 if None.

    >>> layer = BranchingConv(12, 3, n_axes=2, grid_size=(2, 3), n_neighbors=2)
    >>> layer(torch.zeros(2, 6, 12)).shape
    torch.Size([2, 6, 12])
    """

    def __init__(
        self,
        dim: int,
        *args: Any,
        n_axes: int = 1,
        kernel_size: int | None = None,
        grid_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        if n_axes not in (1, 2):
            raise InvalidSettingError(f"`n_axes` must be 1 or 2, got {n_axes!r}.")
        places: dict[str, Any] = {"grid_size": grid_size, "num_prefix_tokens": num_prefix_tokens}
        size: dict[str, Any] = {} if kernel_size is None else {"kernel_size": kernel_size}

        def make_other(
            dim: int, num_heads: int, qkv_bias: bool, attn_drop: float, **inner: Any
        ) -> nn.Module:
            del attn_drop  # there are no weights to drop
            if n_axes == 1:
                return TokenConv1d(dim, num_heads, qkv_bias, **size, **inner)
            return TokenConv2d(dim, num_heads, qkv_bias, **size, **places, **inner)

        super().__init__(make_other, dim, *args, **{**places, **kwargs})

    def run_other(
        self, other: nn.Module, x: Tensor, attn_mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        if attn_mask is not None or is_causal:
            raise InvalidSettingError("A convolution cannot take an attention mask.")
        return other(x)


def near_channels(dim: int, num_heads: int, branch_ratio: float) -> int:
    """How many channels attend to their nearest: a multiple of `num_heads`.

    >>> near_channels(192, 3, 0.3)
    57
    """
    ratio = check_share("branch_ratio", branch_ratio)
    n_groups = head_width(dim, num_heads)
    if ratio in (0.0, 1.0):
        return int(ratio) * dim
    if n_groups < 2:
        raise InvalidSettingError(
            f"`branch_ratio={branch_ratio}` needs two channels for each head, and "
            f"`dim={dim}` with `num_heads={num_heads}` has one."
        )
    return num_heads * min(max(round(ratio * n_groups), 1), n_groups - 1)
