"""Run where timm is installed: its models keep their outputs, its blocks accept our layers."""

from __future__ import annotations

import sys
from functools import partial

import torch

from attnknn.vit.layers import ConvNNAttention, KvtAttention, NeighborhoodAttention1D
from attnknn.vit.model import replace_attention, vit_tiny


def keep_outputs() -> None:
    """Our model with timm's weights and timm's model with our layers give timm's outputs."""
    import timm

    images = torch.randn(2, 3, 32, 32)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=10).eval()
    ours = vit_tiny(image_size=32, num_classes=10).eval()
    ours.load_state_dict(model.state_dict())
    before = model(images)
    torch.testing.assert_close(ours(images), before, atol=1e-5, rtol=0)
    replace_attention(model, "convnn", n_neighbors=5)
    torch.testing.assert_close(model(images), before, atol=1e-5, rtol=0)
    replace_attention(model, "kvt", n_neighbors=2)
    assert not torch.allclose(model(images), before)


def fit_blocks() -> None:
    """Our layers replace the attention of a block, built with the same arguments."""
    from timm.models.vision_transformer import Block

    for make in (
        partial(ConvNNAttention, n_neighbors=3),
        partial(KvtAttention, n_neighbors=3),
        partial(NeighborhoodAttention1D, kernel_size=3),
    ):
        block = Block(24, num_heads=3, qkv_bias=True)
        block.attn = make(24, num_heads=3, qkv_bias=True, attn_drop=0.1, proj_drop=0.1)
        assert block(torch.randn(2, 9, 24)).shape == (2, 9, 24)


if __name__ == "__main__":
    torch.manual_seed(0)
    keep_outputs()
    fit_blocks()
    sys.stdout.write("outputs kept, blocks work\n")
