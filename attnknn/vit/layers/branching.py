"""Layers that split channels between nearest-neighbor attention and another branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnknn._validation import check_at_least
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional.grid import check_grid_size, infer_grid
from attnknn.vit.layers.attention import Attention
from attnknn.vit.layers.base import check_fraction, check_head_dim, check_tokens
from attnknn.vit.layers.convnn import ConvNNAttention


class BranchingLayer(nn.Module):
    """The first channels go through `ConvNNAttention` (`near`), the others through `other`.

    With a `branch_ratio` of 0 or 1 the layer is a single branch without a further projection.
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
        self.n_near = count_near_channels(dim, num_heads, branch_ratio)
        has_both = 0 < self.n_near < dim
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        inner: dict[str, Any] = {
            "proj_drop": 0.0 if has_both else proj_drop,
            "proj_bias": proj_bias,
            **factory,
        }
        self.near: nn.Module | None = None
        self.other: nn.Module | None = None
        near: dict[str, Any] = {**convnn, **inner}
        if self.n_near > 0:
            self.near = ConvNNAttention(self.n_near, num_heads, qkv_bias, attn_drop, **near)
        else:  # validate its settings all the same
            ConvNNAttention(dim, num_heads, qkv_bias, attn_drop, **{**near, "device": "meta"})
        if self.n_near < dim:
            self.other = make_other(dim - self.n_near, num_heads, qkv_bias, attn_drop, **inner)
        self.proj = nn.Linear(dim, dim, bias=proj_bias, **factory) if has_both else None
        self.proj_drop = nn.Dropout(check_fraction("proj_drop", proj_drop))

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Send channels through their branches and mix the results.

        Parameters
        ----------
        x : Tensor of shape (B, N, dim)
            Tokens.
        attn_mask, is_causal : Tensor, bool
            As in `AttentionLayer`; a convolution does not accept them.

        Returns
        -------
        Tensor of shape (B, N, dim)
            Updated tokens.
        """
        check_tokens(x, self.dim)
        parts = []
        if self.near is not None:
            parts.append(self.near(x[..., : self.n_near], attn_mask, is_causal))
        if isinstance(self.other, TokenConv1d | TokenConv2d):
            if attn_mask is not None or is_causal:
                raise InvalidSettingError("A convolution cannot take an attention mask.")
            parts.append(self.other(x[..., self.n_near :]))
        elif self.other is not None:
            parts.append(self.other(x[..., self.n_near :], attn_mask, is_causal))
        if self.proj is None:
            return parts[0]
        return self.proj_drop(self.proj(torch.cat(parts, -1)))

    @property
    def prefix_attends_patches(self) -> bool:
        """Whether a prefix token can attend to patches in any branch."""
        branches = (self.near, self.other)
        return any(getattr(branch, "prefix_attends_patches", False) for branch in branches)

    def extra_repr(self) -> str:
        return f"n_near={self.n_near}"


class BranchingAttention(BranchingLayer):
    """`ConvNNAttention` for some channels and softmax attention for the others.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    **kwargs : Any
        `branch_ratio`, the fraction of channels for `ConvNNAttention` (default 0.5, rounded so
        that each branch has channels for all heads), and arguments of `ConvNNAttention`.

    Examples
    --------
    >>> BranchingAttention(12, 3, branch_ratio=0.25, n_neighbors=2)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(Attention, dim, *args, **kwargs)


class BranchingConv(BranchingLayer):
    """`ConvNNAttention` for some channels and a convolution for the others.

    With a `branch_ratio` of 0 and two axes, the layer is exactly a `torch.nn.Conv2d` over the patch
    grid.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    n_axes : {2, 1}, default=2
        Convolve over the patch grid (`TokenConv2d`), or along the sequence of tokens between two
        projections (`TokenConv1d`).
    kernel_size : int, default=None
        Size of the convolution along each axis; None is 3 for two axes, 9 for one.
    grid_size : int or (int, int), default=None
        (height, width) of the patch grid; None infers a square.
    num_prefix_tokens : int, default=0
        Class and register tokens before the patches.
    **kwargs : Any
        `branch_ratio` and arguments of `ConvNNAttention`, as in `BranchingAttention`.

    Examples
    --------
    >>> layer = BranchingConv(12, 3, grid_size=(2, 3), n_neighbors=2)
    >>> layer(torch.zeros(2, 6, 12)).shape
    torch.Size([2, 6, 12])
    """

    def __init__(
        self,
        dim: int,
        *args: Any,
        n_axes: int = 2,
        kernel_size: int | None = None,
        grid_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        if n_axes not in (1, 2):
            raise InvalidSettingError(f"`n_axes` must be 1 or 2, got {n_axes!r}.")
        geometry: dict[str, Any] = {"grid_size": grid_size, "num_prefix_tokens": num_prefix_tokens}
        size: dict[str, Any] = {} if kernel_size is None else {"kernel_size": kernel_size}

        def make_other(
            dim: int, num_heads: int, qkv_bias: bool, attn_drop: float, **inner: Any
        ) -> nn.Module:
            del attn_drop  # a convolution has no attention weights
            if n_axes == 1:
                return TokenConv1d(dim, num_heads, qkv_bias, **size, **inner)
            return TokenConv2d(dim, num_heads, qkv_bias, **size, **geometry, **inner)

        super().__init__(make_other, dim, *args, **{**geometry, **kwargs})


def count_near_channels(dim: int, num_heads: int, branch_ratio: float) -> int:
    """Channels of the `ConvNNAttention` branch: a multiple of `num_heads`.

    >>> count_near_channels(192, 3, 0.3)
    57
    """
    ratio = check_fraction("branch_ratio", branch_ratio)
    n_groups = check_head_dim(dim, num_heads)
    if ratio in (0.0, 1.0):
        return int(ratio) * dim
    if n_groups < 2:
        raise InvalidSettingError(
            f"`branch_ratio={branch_ratio}` needs two channels for each head, but "
            f"`dim={dim}` with `num_heads={num_heads}` has one."
        )
    return num_heads * min(max(round(ratio * n_groups), 1), n_groups - 1)


class TokenConv1d(nn.Module):
    """Convolution along the sequence of tokens, between two projections.

    All heads share one kernel. The sequence is padded with zeros; an even kernel reaches one token
    further ahead than back.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    num_heads : int, default=8
        Number of heads, each convolved by itself.
    qkv_bias : bool, default=False
        Whether the input projection has a bias.
    proj_drop : float, default=0.0
        Dropout of outputs, in training.
    kernel_size : int, default=9
        Size of the convolution.
    proj_bias : bool, default=True
        Whether the output projection has a bias.
    device, dtype : default=None
        Device and type of the parameters.

    Examples
    --------
    >>> TokenConv1d(12, num_heads=3, kernel_size=3)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    prefix_attends_patches = True

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
        width = check_head_dim(dim, num_heads)
        size = check_at_least("kernel_size", kernel_size, 1)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_heads = num_heads
        self.value = nn.Linear(dim, dim, bias=qkv_bias, **factory)
        self.conv = nn.Conv1d(width, width, size, **factory)
        self.proj = nn.Linear(dim, dim, bias=proj_bias, **factory)
        self.proj_drop = nn.Dropout(check_fraction("proj_drop", proj_drop))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve tokens.

        Parameters
        ----------
        x : Tensor of shape (B, N, dim)
            Tokens.

        Returns
        -------
        Tensor of shape (B, N, dim)
            Updated tokens.
        """
        check_tokens(x, self.value.in_features)
        heads = self.value(x).unflatten(-1, (self.num_heads, -1)).permute(0, 2, 3, 1)
        padded = F.pad(heads.flatten(0, 1), _same_padding(self.conv))
        mixed = self.conv(padded).unflatten(0, (-1, self.num_heads))  # (B, H, d, N)
        return self.proj_drop(self.proj(mixed.permute(0, 3, 1, 2).flatten(2)))


class TokenConv2d(nn.Module):
    """`torch.nn.Conv2d` over the patch grid, from all channels to all channels.

    The grid is padded with zeros, as by `padding='same'`. Prefix tokens have no position on the
    grid and pass through unchanged.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    num_heads, qkv_bias : int, bool
        Accepted because other layers have them, but without effect: a convolution has neither
        heads nor projections.
    proj_drop : float, default=0.0
        Dropout of outputs, in training.
    kernel_size : int, default=3
        Size of the convolution along both axes.
    grid_size : int or (int, int), default=None
        (height, width) of the patch grid; None infers a square.
    num_prefix_tokens : int, default=0
        Class and register tokens before the patches.
    proj_bias : bool, default=True
        Whether the convolution has a bias.
    device, dtype : default=None
        Device and type of the parameters.

    Examples
    --------
    >>> TokenConv2d(12, num_heads=3, grid_size=(2, 3))(torch.zeros(2, 6, 12)).shape
    torch.Size([2, 6, 12])
    """

    prefix_attends_patches = False

    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        qkv_bias: bool = False,
        proj_drop: float = 0.0,
        *,
        kernel_size: int = 3,
        grid_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        proj_bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        del qkv_bias
        check_head_dim(dim, num_heads)
        size = check_at_least("kernel_size", kernel_size, 1)
        self.grid_size = check_grid_size(grid_size)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)
        self.conv = nn.Conv2d(dim, dim, size, bias=proj_bias, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(check_fraction("proj_drop", proj_drop))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve patches.

        Parameters
        ----------
        x : Tensor of shape (B, N, dim)
            Tokens.

        Returns
        -------
        Tensor of shape (B, N, dim)
            Updated tokens.
        """
        check_tokens(x, self.conv.in_channels)
        n_prefix = self.num_prefix_tokens
        grid = infer_grid(x.shape[1], self.grid_size, n_prefix)
        patches = x[:, n_prefix:].mT.unflatten(-1, (grid.height, grid.width))
        mixed = self.conv(F.pad(patches, _same_padding(self.conv))).flatten(2).mT  # (B, N, dim)
        prefix = x[:, :n_prefix].to(mixed.dtype)  # which autocast changes
        return self.proj_drop(torch.cat([prefix, mixed], 1) if n_prefix else mixed)


def _same_padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[int, ...]:
    """Padding of each side that keeps the size; `padding='same'` warns of even kernels."""
    size = conv.kernel_size[0]
    return ((size - 1) // 2, size // 2) * len(conv.kernel_size)
