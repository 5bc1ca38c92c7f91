"""Attention within a fixed pattern of positions: local, neighborhood and sparse attention.

At the sizes of a ViT, full attention with a mask is faster on a CPU than copies of windows, and it
has a backward pass. Prefix tokens attend to all tokens, and all tokens attend to them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional.grid import check_grid_size, check_pair, check_prefix, infer_grid
from attnknn.vit.layers.base import AttentionLayer, combine_masks

LONGEST_WAVE = 10_000.0
MODES = ("all", "local", "strided")


class PatternAttention(AttentionLayer):
    """Softmax attention to the tokens that `pattern` allows.

    It does not apply to the `num_prefix_tokens` class and register tokens before the others.
    """

    uses_prefix_count = True

    def __init__(self, dim: int, *args: Any, num_prefix_tokens: int = 0, **kwargs: Any) -> None:
        super().__init__(dim, *args, **kwargs)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        n_prefix = self.num_prefix_tokens
        check_prefix(n_prefix, query.shape[2])
        pattern = self.pattern(query.shape[2] - n_prefix, query.device)
        allowed = F.pad(pattern, (n_prefix, 0, n_prefix, 0), value=True)
        return F.scaled_dot_product_attention(
            query, key, value, combine_masks(allowed, mask), dropout_p=self.active_dropout
        )

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        """Which tokens attend to which, without prefix tokens.

        Parameters
        ----------
        n_tokens : int
            Number of tokens.
        device : torch.device
            Device of the result.

        Returns
        -------
        Tensor of shape (n_tokens, n_tokens)
            True at (i, j) where token i may attend to token j.
        """
        raise NotImplementedError


class LocalAttention(PatternAttention):
    """Attention to the tokens at most `window_size` steps away, with rotary positions.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    window_size : int, default=128
        Largest distance along the sequence, in each direction.
    is_rotary : bool, default=True
        Whether queries and keys are rotated by their positions, so that scores depend on the
        distance between tokens; needs an even head width. Prefix tokens are not rotated.
    **kwargs : Any
        `num_prefix_tokens`, and further arguments of `AttentionLayer`.

    Examples
    --------
    >>> LocalAttention(4, 1, window_size=1).pattern(3, torch.device("cpu"))
    tensor([[ True,  True, False],
            [ True,  True,  True],
            [False,  True,  True]])
    """

    def __init__(
        self,
        dim: int,
        *args: Any,
        window_size: int = 128,
        is_rotary: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(dim, *args, **kwargs)
        self.window_size = check_at_least("window_size", window_size, 0)
        self.is_rotary = is_rotary
        if is_rotary and self.head_dim % 2:
            raise InvalidSettingError(
                f"Rotary positions need heads of even width, got {self.head_dim}. "
                "Change the number of heads (`num_heads`), or set `is_rotary=False` in Python."
            )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if self.is_rotary:
            query, key = (apply_rotary(part, self.num_prefix_tokens) for part in (query, key))
        return super().attend(query, key, value, mask)

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        return _offsets(n_tokens, device).abs() <= self.window_size


class NeighborhoodAttention1D(PatternAttention):
    """Attention to the `kernel_size` nearest tokens along the sequence (Hassani et al. 2023).

    At a border the window moves inwards, so that all windows have the same size.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    kernel_size : int, default=9
        Number of tokens in each window.
    dilation : int, default=1
        Step between the tokens of a window.
    **kwargs : Any
        `num_prefix_tokens`, and further arguments of `AttentionLayer`.

    Examples
    --------
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
        return window_mask(n_tokens, self.kernel_size, self.dilation, device)


class NeighborhoodAttention2D(PatternAttention):
    """Attention to the patches of a window on the grid (Hassani et al. 2023).

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    kernel_size, dilation : int or (int, int), default=3 and 1
        Size and step of the window; a pair is for rows and columns.
    grid_size : int or (int, int), default=None
        (height, width) of the patch grid; None infers a square.
    **kwargs : Any
        `num_prefix_tokens`, and further arguments of `AttentionLayer`.

    Examples
    --------
    >>> layer = NeighborhoodAttention2D(4, 1, kernel_size=3, grid_size=(3, 4))
    >>> layer.pattern(12, torch.device("cpu"))[0].int()
    tensor([1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0], dtype=torch.int32)
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
        self.kernel_size = check_pair("kernel_size", kernel_size)
        self.dilation = check_pair("dilation", dilation)
        self.grid_size = check_grid_size(grid_size)

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        grid = infer_grid(n_tokens, self.grid_size, 0)
        rows = window_mask(grid.height, self.kernel_size[0], self.dilation[0], device)
        columns = window_mask(grid.width, self.kernel_size[1], self.dilation[1], device)
        both = rows[:, None, :, None] & columns[None, :, None, :]  # (height, width) twice
        return both.view(n_tokens, n_tokens)


class SparseAttention(PatternAttention):
    """Attention to a fixed sparse pattern along the sequence.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    mode : {'all', 'local', 'strided'}, default='all'
        Attend to all tokens, to those at most `context_window` // 2 steps away, or to those a
        multiple of `context_window` steps away.
    context_window : int, default=128
        Size of the pattern.
    **kwargs : Any
        `num_prefix_tokens`, and further arguments of `AttentionLayer`.

    Examples
    --------
    >>> SparseAttention(4, 1, mode="strided", context_window=2).pattern(3, torch.device("cpu"))
    tensor([[ True, False,  True],
            [False,  True, False],
            [ True, False,  True]])
    """

    def __init__(
        self, dim: int, *args: Any, mode: str = "all", context_window: int = 128, **kwargs: Any
    ) -> None:
        super().__init__(dim, *args, **kwargs)
        self.mode = check_choice("mode", mode, MODES)
        self.context_window = check_at_least("context_window", context_window, 1)

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        offsets = _offsets(n_tokens, device)
        if self.mode == "local":
            return offsets.abs() <= self.context_window // 2
        if self.mode == "strided":
            return offsets % self.context_window == 0
        return torch.ones_like(offsets, dtype=torch.bool)


def _offsets(n_tokens: int, device: torch.device) -> Tensor:
    """i − j at (i, j)."""
    at = torch.arange(n_tokens, device=device)
    return at[:, None] - at


def window_mask(length: int, size: int, dilation: int, device: torch.device) -> Tensor:
    """True at (i, j) where j is in the window of i, (length, length)."""
    if size * dilation > length:
        raise InvalidSettingError(
            f"`kernel_size` times `dilation` must be at most the {length} tokens along an axis, "
            f"got {size} × {dilation}."
        )
    at = torch.arange(length, device=device)
    group, place = at % dilation, at // dilation
    last = (length - 1 - group) // dilation + 1 - size  # start of the last window of a group
    start = (place - size // 2).clamp(min=0).minimum(last)[:, None]
    is_inside = (place >= start) & (place < start + size)
    return is_inside & (group[:, None] == group)


def apply_rotary(features: Tensor, n_prefix: int = 0) -> Tensor:
    """Rotate channels c and c + d/2 of features (..., N, d) by angles that grow with n."""
    half = features.shape[-1] // 2
    at = torch.arange(features.shape[-2], device=features.device) - n_prefix
    waves = LONGEST_WAVE ** (-torch.arange(half, device=features.device) / half)
    angles = at.clamp(min=0)[:, None] * waves  # (N, d/2)
    cos, sin = angles.cos().to(features.dtype), angles.sin().to(features.dtype)
    first, second = features.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
