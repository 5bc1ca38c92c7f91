"""Vision Transformers with any attention layer, and replacement of attention in other models.

`vit_tiny` and `vit_small` build standard sizes, `VisionTransformer` any other; `LAYERS` names the
layers they accept and `make_layer` builds one. `replace_attention` puts a layer into a trained
model of timm or Hugging Face. `count_operations` counts floating-point operations.
"""

from attnknn.vit.model.factory import LAYERS, make_layer
from attnknn.vit.model.flops import OperationCount, count_operations
from attnknn.vit.model.replacement import replace_attention
from attnknn.vit.model.transformer import VisionTransformer, vit_small, vit_tiny

__all__ = [
    "LAYERS",
    "OperationCount",
    "VisionTransformer",
    "count_operations",
    "make_layer",
    "replace_attention",
    "vit_small",
    "vit_tiny",
]
