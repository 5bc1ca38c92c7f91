"""Attention layers for Vision Transformers: tokens (B, N, dim) in, tokens of the same shape out.

All are constructed like timm's attention and can replace it. `Attention` attends to all tokens,
`KvtAttention` to the K most similar, `ConvNNAttention` to the K nearest with a learned kernel over
ranks. `LocalAttention`, `NeighborhoodAttention1D`, `NeighborhoodAttention2D` and `SparseAttention`
attend within fixed patterns. `BranchingAttention` and `BranchingConv` split the channels between
`ConvNNAttention` and another branch. `AttentionLayer` is the base class for layers of your own,
and `import_convnn` converts weights of the original ConvNN-attention code.
"""

from attnknn.vit.layers.attention import Attention, KvtAttention
from attnknn.vit.layers.base import AttentionLayer
from attnknn.vit.layers.branching import BranchingAttention, BranchingConv, TokenConv1d, TokenConv2d
from attnknn.vit.layers.convnn import ConvNNAttention
from attnknn.vit.layers.legacy import import_convnn
from attnknn.vit.layers.patterns import (
    LocalAttention,
    NeighborhoodAttention1D,
    NeighborhoodAttention2D,
    SparseAttention,
)

__all__ = [
    "Attention",
    "AttentionLayer",
    "BranchingAttention",
    "BranchingConv",
    "ConvNNAttention",
    "KvtAttention",
    "LocalAttention",
    "NeighborhoodAttention1D",
    "NeighborhoodAttention2D",
    "SparseAttention",
    "TokenConv1d",
    "TokenConv2d",
    "import_convnn",
]
