"""Attention within a pattern that depends on places alone; prefix tokens see and are seen by all.

On a processor at the sizes of a ViT, full attention with a mask beats copies of windows, and it
trains.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.errors import InvalidSettingError
from attnknn.vit.layers.base import HeadedAttention, both_masks


class BandedAttention(HeadedAttention):
    """Softmax attention to the tokens that `pattern` allows.

    Parameters
    ----------
    num_prefix_tokens
        Class and register tokens before the others, which the pattern leaves out.
    """

    reads_prefix = True

    def __init__(self, dim: int, *args: Any, num_prefix_tokens: int = 0, **kwargs: Any) -> None:
        super().__init__(dim, *args, **kwargs)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        n_prefix = self.num_prefix_tokens
        if n_prefix > query.shape[2]:
            raise InvalidSettingError(
                f"`num_prefix_tokens` must be at most the {query.shape[2]} tokens there are, got "
                f"{n_prefix}."
            )
        pattern = self.pattern(query.shape[2] - n_prefix, query.device)
        allowed = F.pad(pattern, (n_prefix, 0, n_prefix, 0), value=True)
        return F.scaled_dot_product_attention(
            query, key, value, both_masks(allowed, mask), dropout_p=self.dropped
        )

    def pattern(self, n_tokens: int, device: torch.device) -> Tensor:
        """True at (i, j) where token i may look at token j, prefix tokens not counted."""
        raise NotImplementedError


def steps(n_tokens: int, device: torch.device) -> Tensor:
    """i − j at (i, j)."""
    at = torch.arange(n_tokens, device=device)
    return at[:, None] - at
