"""Every token attends to all."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from attnknn.vit.layers.base import HeadedAttention


class Attention(HeadedAttention):
    """Softmax attention; see `HeadedAttention` for the parameters.

    >>> import torch
    >>> Attention(12, num_heads=3)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p=self.dropped)
