"""Softmax attention to all tokens, or to the most similar ones."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.vit.functional import NeighborConfig, convnn_attention
from attnknn.vit.functional.grid import random_candidates
from attnknn.vit.layers.base import AttentionLayer, check_fraction, combine_masks


class Attention(AttentionLayer):
    """Softmax attention to all tokens.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    key_drop : float, default=0.0
        Fraction of tokens that, in each training step, only attend to themselves and are hidden
        from the others; the same tokens for all images of a step.
    num_prefix_tokens : int, default=0
        Class and register tokens before the patches, which are never hidden.
    **kwargs : Any
        Further arguments of `AttentionLayer`.

    Examples
    --------
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
        self.key_drop = check_fraction("key_drop", key_drop)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)

    @property
    def uses_prefix_count(self) -> bool:  # type: ignore[override]
        """Whether outputs depend on the number of prefix tokens: only with `key_drop`."""
        return self.key_drop > 0

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if self.training and self.key_drop:
            mask = combine_masks(self._draw_visible(query), mask)
        return F.scaled_dot_product_attention(
            query, key, value, mask, dropout_p=self.active_dropout
        )

    def _draw_visible(self, query: Tensor) -> Tensor:
        """True at (i, j) where token j is i, or is not hidden."""
        n_tokens, n_prefix = query.shape[2], self.num_prefix_tokens
        n_kept = round((1 - self.key_drop) * (n_tokens - n_prefix))
        kept = random_candidates(n_tokens, n_kept, n_prefix, device=query.device)
        is_visible = torch.eye(n_tokens, dtype=torch.bool, device=query.device)
        return is_visible.index_fill(1, kept, True)


class KvtAttention(AttentionLayer):
    """Softmax attention to the K tokens with the largest scores (Wang et al. 2022, KVT).

    Parameters
    ----------
    dim : int
        Width of the tokens.
    *args : Any
        Further arguments of `AttentionLayer`.
    n_neighbors : int, default=100
        Number of tokens K that each token attends to.
    **kwargs : Any
        Further arguments of `AttentionLayer`.

    Examples
    --------
    >>> KvtAttention(12, num_heads=3, n_neighbors=2)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, *args: Any, n_neighbors: int = 100, **kwargs: Any) -> None:
        super().__init__(dim, *args, **kwargs)
        self.config = NeighborConfig(n_neighbors)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return convnn_attention(
            query, key, value, None, self.config, mask=mask, dropout=self.active_dropout
        )
