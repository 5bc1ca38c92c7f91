"""Every token attends to all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.vit.functional import random_candidates
from attnknn.vit.layers.base import HeadedAttention, both_masks, check_share


class Attention(HeadedAttention):
    """Softmax attention; see `HeadedAttention` for further parameters.

    Parameters
    ----------
    key_drop
        The share of tokens that, in a step of training, only they themselves look at; drawn again
        for each step, the same for all its images.
    num_prefix_tokens
        Class and register tokens before the others, which are never dropped.

    >>> Attention(12, num_heads=3)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        dim: int,
        *args: Any,
        key_drop: float = 0.0,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dim, *args, **kwargs)
        self.key_drop = check_share("key_drop", key_drop)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)

    @property
    def reads_prefix(self) -> bool:  # type: ignore[override]
        """Only where tokens are dropped."""
        return self.key_drop > 0

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if self.training and self.key_drop:
            mask = both_masks(self._kept(query), mask)
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p=self.dropped)

    def _kept(self, query: Tensor) -> Tensor:
        """True at (i, j) where token j is i, or was not dropped."""
        n_tokens, n_prefix = query.shape[2], self.num_prefix_tokens
        n_kept = round((1 - self.key_drop) * (n_tokens - n_prefix))
        kept = random_candidates(n_tokens, n_kept, n_prefix, device=query.device)
        is_kept = torch.eye(n_tokens, dtype=torch.bool, device=query.device)
        return is_kept.index_fill(1, kept, True)
