"""Run where timm is installed: its models keep their outputs, its blocks accept our layers."""

from __future__ import annotations

import sys
from functools import partial

import torch

from attnknn.errors import InvalidInputError
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


def keep_outputs_of_other_models() -> None:
    """Models whose blocks differ: layer scale, registers, no class token, a distillation token."""
    import timm

    prefixes = {
        "deit_tiny_distilled_patch16_224": 2,
        "deit3_small_patch16_224": 1,
        "vit_small_patch14_reg4_dinov2": 5,
        "vit_base_patch16_siglip_224": 0,
    }
    for name, n_prefix in prefixes.items():
        model = timm.create_model(name, img_size=56, depth=2, num_classes=10).eval()
        images = torch.randn(2, 3, 56, 56)
        before = model(images)
        replace_attention(model, "attention")
        torch.testing.assert_close(model(images), before, atol=1e-5, rtol=0)
        replace_attention(model, "local", window_size=1)
        assert {block.attn.num_prefix_tokens for block in model.blocks} == {n_prefix}


def refuse_more_than_attention() -> None:
    """Models whose attention has positions, windows or other parts."""
    import timm

    names = {
        "vit_small_patch16_dinov3": "rotary or relative positions",
        "vit_srelpos_small_patch16_224": "rotary or relative positions",
        "swinv2_cr_tiny_224": "has a 'logit_scale'",
        "twins_svt_small": "raises TypeError",
        "nest_tiny": "raises ValueError",
        "davit_tiny": "something else than softmax attention",
    }
    for name, message in names.items():
        found = ""
        try:
            replace_attention(timm.create_model(name), "kvt", n_neighbors=3)
        except InvalidInputError as error:
            found = str(error)
        assert message in found, (name, found)


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
    keep_outputs_of_other_models()
    refuse_more_than_attention()
    fit_blocks()
    sys.stdout.write("outputs kept, blocks work\n")
