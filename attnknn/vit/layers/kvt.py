"""Every token attends to the few most similar (Wang et al. 2022, k-NN attention)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from attnknn.vit.functional import Rule, convnn_attention
from attnknn.vit.layers.base import HeadedAttention


class KvtAttention(HeadedAttention):
    """Softmax attention to the `n_neighbors` tokens of the largest scores.

    >>> import torch
    >>> KvtAttention(12, num_heads=3, n_neighbors=2)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, *args: Any, n_neighbors: int = 100, **kwargs: Any) -> None:
        super().__init__(dim, *args, **kwargs)
        self.rule = Rule(n_neighbors)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return convnn_attention(query, key, value, None, self.rule, mask=mask, dropout=self.dropped)
