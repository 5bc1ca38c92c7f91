"""Attention layers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.vit import layers


@dataclass(frozen=True)
class LayerSpec:
    """A layer class, and the settings that it takes from its model."""

    layer: type[nn.Module]
    from_model: tuple[str, ...] = ()


PREFIX = ("num_prefix_tokens",)
GRID = (*PREFIX, "grid_size")
SAMPLED = (*GRID, "seed")
LAYERS = {
    "attention": LayerSpec(layers.Attention, PREFIX),
    "convnn": LayerSpec(layers.ConvNNAttention, SAMPLED),
    "kvt": LayerSpec(layers.KvtAttention),
    "local": LayerSpec(layers.LocalAttention, PREFIX),
    "neighborhood": LayerSpec(layers.NeighborhoodAttention1D, PREFIX),
    "neighborhood_2d": LayerSpec(layers.NeighborhoodAttention2D, GRID),
    "sparse": LayerSpec(layers.SparseAttention, PREFIX),
    "branching_conv": LayerSpec(layers.BranchingConv, SAMPLED),
    "branching_attention": LayerSpec(layers.BranchingAttention, SAMPLED),
}


def make_layer(
    name: str,
    dim: int,
    num_heads: int,
    *,
    from_model: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **common: Any,
) -> nn.Module:
    """Build an attention layer by its name in `LAYERS`.

    If a setting is given more than once, `settings` takes precedence over `from_model`, which takes
    precedence over `common`.

    Parameters
    ----------
    name : str
        A key of `LAYERS`.
    dim : int
        Width of the tokens.
    num_heads : int
        Number of heads.
    from_model : Mapping[str, Any], default=None
        Properties of the model: `grid_size`, `num_prefix_tokens`, and the `seed` of layers that
        sample tokens. The layer gets those that it needs; the others are ignored.
    settings : Mapping[str, Any], default=None
        Settings of this layer, such as `n_neighbors`. An unknown one is an error.
    **common : Any
        Settings that all layers have, such as `qkv_bias` and `attn_drop`.

    Returns
    -------
    nn.Module
        The layer.

    Raises
    ------
    InvalidSettingError
        If the name or a setting is unknown.

    Examples
    --------
    >>> make_layer("kvt", 12, 3, settings={"n_neighbors": 4}).config.n_neighbors
    4
    """
    if name not in LAYERS:
        raise unknown_name("layer", name, LAYERS)
    spec = LAYERS[name]
    known = {key: value for key, value in (from_model or {}).items() if key in spec.from_model}
    try:
        return spec.layer(dim, num_heads, **{**common, **known, **(settings or {})})
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        setting = str(error).rsplit(" ", 1)[-1]
        raise InvalidSettingError(f"The layer {name!r} has no setting {setting}.") from None
