"""Base class of the attention layers: projections, heads and masks."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from attnknn._validation import check_at_least
from attnknn.errors import InvalidInputError, InvalidSettingError


class AttentionLayer(nn.Module):
    """Multi-head attention whose subclasses define `attend`.

    Parameters
    ----------
    dim : int
        Width of the tokens, a multiple of `num_heads`.
    num_heads : int, default=8
        Number of heads.
    qkv_bias : bool, default=False
        Whether the projections of queries, keys and values have a bias.
    attn_drop, proj_drop : float, default=0.0
        Dropout of attention weights and of outputs, in training.
    proj_bias : bool, default=True
        Whether the output projection has a bias.
    n_projections : int, default=3
        Three for queries, keys and values; fewer in a layer that omits some.
    qk_norm, scale_norm : bool, default=False
        Accepted because timm passes them; must be False.
    norm_layer : object, default=None
        Accepted because timm passes it; ignored.
    device, dtype : default=None
        Device and type of the parameters.

    Examples
    --------
    >>> class MeanAttention(AttentionLayer):
    ...     def attend(self, query, key, value, mask):
    ...         return value.mean(2, keepdim=True).expand_as(value)
    >>> MeanAttention(12, num_heads=3)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    prefix_attends_patches = True  # whether a prefix token can attend to patches
    uses_prefix_count = False  # whether outputs depend on the number of prefix tokens

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        *,
        proj_bias: bool = True,
        n_projections: int = 3,
        qk_norm: bool = False,
        scale_norm: bool = False,
        norm_layer: object = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        del norm_layer
        if qk_norm or scale_norm:
            raise InvalidSettingError(
                "`qk_norm` and `scale_norm` must be False: the layer has no inner norms."
            )
        self.num_heads, self.head_dim = num_heads, check_head_dim(dim, num_heads)
        self.attn_drop = check_fraction("attn_drop", attn_drop)
        self.qkv = nn.Linear(dim, n_projections * dim, bias=qkv_bias, device=device, dtype=dtype)
        self.proj = nn.Linear(dim, dim, bias=proj_bias, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(check_fraction("proj_drop", proj_drop))

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attend to tokens.

        Parameters
        ----------
        x : Tensor of shape (B, N, dim)
            Tokens.
        attn_mask : Tensor, default=None
            Broadcast to (B, H, N, N): boolean, True where a token may attend, or floats that are
            added to the scores.
        is_causal : bool, default=False
            Whether tokens attend only to themselves and earlier ones.

        Returns
        -------
        Tensor of shape (B, N, dim)
            Updated tokens.
        """
        check_tokens(x, self.qkv.in_features)
        mask = check_mask(attn_mask, x.shape[0], self.num_heads, x.shape[1])
        mask = add_causal_mask(mask, x) if is_causal else mask
        query, key, value = self.project(x)
        attended = self.attend(query, key, value, mask)
        return self.proj_drop(self.proj(merge_heads(attended)))

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Project tokens to queries, keys and values.

        Parameters
        ----------
        x : Tensor of shape (B, N, dim)
            Tokens.

        Returns
        -------
        tuple of Tensor of shape (B, H, N, d)
            The arguments of `attend`.
        """
        return split_heads(self.qkv(x), self.num_heads, self.head_dim)

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Combine values by the attention of queries to keys.

        Parameters
        ----------
        query, key, value : Tensor of shape (B, H, N, d)
            Queries, keys and values.
        mask : Tensor or None
            As `attn_mask` of `forward`, for all pairs of tokens.

        Returns
        -------
        Tensor of shape (B, H, N, d)
            Combined values.
        """

    @property
    def active_dropout(self) -> float:
        """Dropout of attention weights in the current mode."""
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


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a module does nothing but multiply by its weight: no adapter, no hooks.

    >>> is_plain_linear(nn.Linear(2, 2))
    True
    """
    hooks = (values for name, values in vars(module).items() if name.endswith("_hooks"))
    return type(module) is nn.Linear and not any(hooks)


def check_tokens(x: Tensor, dim: int) -> None:
    """Raise an error unless `x` has shape (B, N, dim)."""
    if x.dim() != 3 or x.shape[-1] != dim:
        raise InvalidInputError(f"Tokens must be (B, N, {dim}), got {tuple(x.shape)}.")


def check_mask(mask: Tensor | None, n_images: int, n_heads: int, n_tokens: int) -> Tensor | None:
    """The mask expanded to all pairs of tokens, (..., N, N)."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise InvalidInputError(
            f"A mask must be a tensor, got {type(mask).__name__}. Use `torch.as_tensor`."
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise InvalidInputError(
            "A mask must be boolean, True where a token may attend, or floats that are added to "
            f"the scores, got {mask.dtype}."
        )
    try:
        if mask.dim() == 3 and len(mask) > 1:  # ambiguous: images or heads
            raise RuntimeError
        mask.expand(n_images, n_heads, n_tokens, n_tokens)
    except RuntimeError:
        wanted = f"(B, H, N, N) = ({n_images}, {n_heads}, {n_tokens}, {n_tokens})"
        raise InvalidInputError(
            f"A mask must broadcast to {wanted}, got {tuple(mask.shape)}. A mask per image has "
            "shape (B, 1, N, N)."
        ) from None
    return mask.expand(*mask.shape[:-2], n_tokens, n_tokens)


def combine_masks(allowed: Tensor, mask: Tensor | None) -> Tensor:
    """A boolean mask together with another mask, boolean or of floats to add."""
    if mask is None:
        return allowed
    if mask.dtype == torch.bool:
        return allowed & mask
    return mask.masked_fill(~allowed, float("-inf"))


def add_causal_mask(mask: Tensor | None, x: Tensor) -> Tensor:
    """The mask without pairs in which a token would attend to a later one."""
    n_tokens = x.shape[1]
    past = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=x.device).tril()
    return combine_masks(past, mask)


def check_head_dim(dim: int, num_heads: int) -> int:
    """Channels of each head."""
    check_at_least("dim", dim, 1)
    check_at_least("num_heads", num_heads, 1)
    if dim % num_heads:
        raise InvalidSettingError(
            f"`num_heads` must divide `dim={dim}` without remainder, got {num_heads}."
        )
    return dim // num_heads


def check_fraction(name: str, value: float) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidSettingError(f"`{name}` must be a number between 0 and 1, got {value!r}.")
    return float(value)
