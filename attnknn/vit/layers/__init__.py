"""Attention layers for any ViT: (B, N, dim) in, the same out, built as timm builds its own."""

from attnknn.vit.layers.attention import Attention
from attnknn.vit.layers.branching import BranchingAttention, BranchingConv
from attnknn.vit.layers.convnn import ConvNNAttention
from attnknn.vit.layers.convolution import TokenConv1d, TokenConv2d
from attnknn.vit.layers.kvt import KvtAttention
from attnknn.vit.layers.legacy import import_convnn
from attnknn.vit.layers.local import LocalAttention
from attnknn.vit.layers.neighborhood import NeighborhoodAttention1D, NeighborhoodAttention2D
from attnknn.vit.layers.sparse import SparseAttention

__all__ = [
    "Attention",
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
