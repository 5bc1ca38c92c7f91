"""The layers by name, each told where the patches stand if it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.vit.layers import (
    Attention,
    BranchingAttention,
    BranchingConv,
    ConvNNAttention,
    KvtAttention,
    LocalAttention,
    NeighborhoodAttention1D,
    NeighborhoodAttention2D,
    SparseAttention,
)


@dataclass(frozen=True)
class Kind:
    """A layer, and which of a model's facts it takes."""

    make: type[nn.Module]
    facts: tuple[str, ...] = ()


PREFIX = ("num_prefix_tokens",)
PLACES = (*PREFIX, "grid_size")
SAMPLES = (*PLACES, "seed")
LAYERS = {
    "attention": Kind(Attention, PREFIX),
    "convnn": Kind(ConvNNAttention, SAMPLES),
    "kvt": Kind(KvtAttention),
    "local": Kind(LocalAttention, PREFIX),
    "neighborhood": Kind(NeighborhoodAttention1D, PREFIX),
    "neighborhood_2d": Kind(NeighborhoodAttention2D, PLACES),
    "sparse": Kind(SparseAttention, PREFIX),
    "branching_conv": Kind(BranchingConv, SAMPLES),
    "branching_attention": Kind(BranchingAttention, SAMPLES),
}


def make_layer(
    name: str,
    dim: int,
    num_heads: int,
    *,
    facts: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **common: Any,
) -> nn.Module:
    """The layer called `name`.

    Parameters
    ----------
    facts
        What a model knows: `grid_size`, `num_prefix_tokens`, and `seed`, by which samples are
        drawn; each layer takes what it needs.
    settings
        Of this layer; they count more than facts.
    common
        Settings that every layer has, such as `qkv_bias` and `attn_drop`.

    >>> make_layer("kvt", 12, 3, settings={"n_neighbors": 4}).rule.n_neighbors
    4
    """
    if name not in LAYERS:
        raise unknown_name("layer", name, LAYERS)
    kind = LAYERS[name]
    known = {fact: value for fact, value in (facts or {}).items() if fact in kind.facts}
    try:
        return kind.make(dim, num_heads, **{**common, **known, **(settings or {})})
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        setting = str(error).rsplit(" ", 1)[-1]
        raise InvalidSettingError(f"The layer {name!r} has no setting {setting}.") from None
