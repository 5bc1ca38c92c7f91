"""What the attention layers share: projections, heads, masks; a layer says how heads attend."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from attnknn._validation import check_at_least
from attnknn.errors import InvalidInputError, InvalidSettingError


class HeadedAttention(nn.Module):
    """Queries, keys and values of `num_heads` heads, attended to by `attend`, then projected.

    Parameters
    ----------
    dim
        Width of tokens; a multiple of `num_heads`.
    qkv_bias, proj_bias
        Whether the projections have a bias.
    attn_drop, proj_drop
        Shares of weights and of outputs that are dropped in training.
    n_projected
        Three for queries, keys and values; fewer in a layer that does without some.
    qk_norm, scale_norm, norm_layer
        What timm hands to every attention; norms inside of it are not built.
    """

    sees_others = True  # whether a prefix token may look at patches
    reads_prefix = False  # whether it matters how many tokens stand before the patches

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        *,
        proj_bias: bool = True,
        n_projected: int = 3,
        qk_norm: bool = False,
        scale_norm: bool = False,
        norm_layer: object = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        del norm_layer  # of norms that are not asked for
        if qk_norm or scale_norm:
            raise InvalidSettingError("`qk_norm` and `scale_norm` must be False: there are none.")
        self.num_heads, self.head_dim = num_heads, head_width(dim, num_heads)
        self.attn_drop = check_share("attn_drop", attn_drop)
        self.qkv = nn.Linear(dim, n_projected * dim, bias=qkv_bias, device=device, dtype=dtype)
        self.proj = nn.Linear(dim, dim, bias=proj_bias, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(check_share("proj_drop", proj_drop))

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Tokens (B, N, dim); the mask is broadcast to (B, H, N, N), True where one may look.

        A mask of floats is added to the scores.
        """
        check_tokens(x, self.qkv.in_features)
        mask = checked_mask(attn_mask, len(x), self.num_heads, x.shape[1])
        mask = with_causal(mask, x) if is_causal else mask
        query, key, value = self.projected(x)
        attended = self.attend(query, key, value, mask)
        return self.proj_drop(self.proj(merge_heads(attended)))

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `attend` takes: queries, keys and values of each head."""
        return split_heads(self.qkv(x), self.num_heads, self.head_dim)

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Queries, keys and values (B, H, N, d) give what each token takes, (B, H, N, d)."""

    @property
    def dropped(self) -> float:
        """The share of weights to drop now."""
        return self.attn_drop if self.training else 0.0

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"


def split_heads(projected: Tensor, num_heads: int, head_dim: int) -> tuple[Tensor, ...]:
    """(B, N, parts · H · d) as parts of (B, H, N, d)."""
    parts = projected.unflatten(-1, (-1, num_heads, head_dim))
    return parts.permute(2, 0, 3, 1, 4).unbind(0)


def merge_heads(attended: Tensor) -> Tensor:
    """(B, H, N, d) as (B, N, H · d)."""
    return attended.transpose(1, 2).flatten(2)


def check_tokens(x: Tensor, dim: int) -> None:
    """An error for what are no tokens of this width."""
    if x.dim() != 3 or x.shape[-1] != dim:
        raise InvalidInputError(f"Tokens must be (B, N, {dim}), got {tuple(x.shape)}.")


def checked_mask(mask: Tensor | None, n_images: int, n_heads: int, n_tokens: int) -> Tensor | None:
    """The mask for all pairs of tokens, (..., N, N)."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise InvalidInputError(
            f"A mask must be a tensor, got {type(mask).__name__}: use `torch.as_tensor`."
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise InvalidInputError(
            "A mask must be of booleans, True where one may look, or of floats that are added to "
            f"the scores, got {mask.dtype}."
        )
    try:
        if mask.dim() == 3 and len(mask) > 1:  # of images, or of heads?
            raise RuntimeError
        mask.expand(n_images, n_heads, n_tokens, n_tokens)
    except RuntimeError:
        fits = f"(B, H, N, N) = ({n_images}, {n_heads}, {n_tokens}, {n_tokens})"
        raise InvalidInputError(
            f"A mask must fit {fits}, got {tuple(mask.shape)}. One for each image is (B, 1, N, N)."
        ) from None
    return mask.expand(*mask.shape[:-2], n_tokens, n_tokens)


def both_masks(allowed: Tensor, mask: Tensor | None) -> Tensor:
    """A boolean mask together with the user's, boolean or of numbers to add."""
    if mask is None:
        return allowed
    if mask.dtype == torch.bool:
        return allowed & mask
    return mask.masked_fill(~allowed, float("-inf"))


def with_causal(mask: Tensor | None, x: Tensor) -> Tensor:
    """The mask, and no token looks ahead."""
    n_tokens = x.shape[1]
    behind = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=x.device).tril()
    return both_masks(behind, mask)


def head_width(dim: int, num_heads: int) -> int:
    """Channels of a head."""
    check_at_least("dim", dim, 1)
    check_at_least("num_heads", num_heads, 1)
    if dim % num_heads:
        raise InvalidSettingError(
            f"`num_heads` must divide `dim={dim}` without remainder, got {num_heads}."
        )
    return dim // num_heads


def check_share(name: str, value: float) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidSettingError(f"`{name}` must be a number between 0 and 1, got {value!r}.")
    return float(value)
