"""Attention to the tokens of a window along the sequence, with rotary positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.errors import InvalidSettingError
from attnknn.vit.layers.banded import BandedAttention, steps

LONGEST_WAVE = 10_000.0


class LocalAttention(BandedAttention):
    """Attention to the tokens at most `window_size` steps away.

    Parameters
    ----------
    is_rotary
        Whether queries and keys are turned by their positions, so that scores depend on the steps
        between tokens; needs an even width of heads. Prefix tokens are not turned.

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
            query, key = (turned(each, self.num_prefix_tokens) for each in (query, key))
        return super().attend(query, key, value, mask)

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        return steps(n_tokens, device).abs() <= self.window_size


def turned(features: Tensor, n_prefix: int = 0) -> Tensor:
    """Features (..., N, d) with channels c and c + d/2 turned, by angles that grow with n."""
    half = features.shape[-1] // 2
    at = torch.arange(features.shape[-2], device=features.device) - n_prefix
    waves = LONGEST_WAVE ** (-torch.arange(half, device=features.device) / half)
    angles = at.clamp(min=0)[:, None] * waves  # (N, d/2)
    cos, sin = angles.cos().to(features.dtype), angles.sin().to(features.dtype)
    first, second = features.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
