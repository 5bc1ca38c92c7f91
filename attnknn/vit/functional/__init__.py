"""Functional nearest-neighbor attention: score, select, weight, and combine neighbors by rank.

`convnn_attention` is the operation behind `ConvNNAttention` and `KvtAttention`. `NeighborConfig`
states how neighbors are selected and weighted, `select_neighbors` returns the selection itself
(`TokenNeighbors`), and `Grid` describes how patches are arranged. Use the layers of
`attnknn.vit.layers` unless you write a layer of your own.
"""

from attnknn.vit.functional.attention import (
    NeighborConfig,
    TokenNeighbors,
    convnn_attention,
    select_neighbors,
)
from attnknn.vit.functional.grid import Grid

__all__ = ["Grid", "NeighborConfig", "TokenNeighbors", "convnn_attention", "select_neighbors"]
