"""Fixed sparse patterns along the sequence: near ones, or every so many."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnknn._validation import check_at_least, check_choice
from attnknn.vit.layers.banded import BandedAttention, steps

MODES = ("all", "local", "strided")


class SparseAttention(BandedAttention):
    """Attention to a fixed pattern.

    Parameters
    ----------
    mode
        `all`; `local`, at most `context_window` // 2 steps away; or `strided`, a multiple of
        `context_window` steps away.

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
        away = steps(n_tokens, device)
        if self.mode == "local":
            return away.abs() <= self.context_window // 2
        if self.mode == "strided":
            return away % self.context_window == 0
        return torch.ones_like(away, dtype=torch.bool)
