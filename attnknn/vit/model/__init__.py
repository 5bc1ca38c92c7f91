"""A Vision Transformer with any of the layers, and a way to put them into those of others."""

from attnknn.vit.model.counting import Operations, count_operations
from attnknn.vit.model.named import LAYERS, make_layer
from attnknn.vit.model.replacing import replace_attention
from attnknn.vit.model.transformer import VisionTransformer, vit_small, vit_tiny

__all__ = [
    "LAYERS",
    "Operations",
    "VisionTransformer",
    "count_operations",
    "make_layer",
    "replace_attention",
    "vit_small",
    "vit_tiny",
]
