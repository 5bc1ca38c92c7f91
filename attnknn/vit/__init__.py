"""Nearest-neighbor attention for Vision Transformers: each token attends to a few others.

`attnknn.vit.model` has the models and puts layers into models of timm and Hugging Face,
`attnknn.vit.layers` the attention layers, `attnknn.vit.functional` the operation behind them, and
`attnknn.vit.training` trains, evaluates and stores models. `extract_attention_maps` shows which
tokens each token attends to. On the command line, see `attnknn vit`.
"""

from attnknn.vit.attention_maps import AttentionMap, extract_attention_maps

__all__ = ["AttentionMap", "extract_attention_maps"]
