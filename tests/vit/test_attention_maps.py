"""Attention maps show the weights that the layers compute with."""

from __future__ import annotations

import pytest
import torch

from attnknn.vit.attention_maps import extract_attention_maps
from attnknn.vit.functional import Grid
from attnknn.vit.layers import Attention, KvtAttention, LocalAttention
from attnknn.vit.model import LAYERS, VisionTransformer
from attnknn.vit.model.factory import make_layer
from attnknn.vit.model.replacement import AdaptedLayer

pytest.importorskip("matplotlib")
from attnknn.vit.plots import attention_matrix, token_name

SMALL = {"image_size": 8, "patch_size": 2, "dim": 12, "depth": 2}
SETTINGS = {
    "convnn": {"n_neighbors": 4},
    "kvt": {"n_neighbors": 4},
    "neighborhood": {"kernel_size": 3},
    "neighborhood_2d": {"kernel_size": 3},
    "branching_conv": {"n_neighbors": 4},
    "branching_attention": {"n_neighbors": 4},
}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_has_an_attention_map(layer):
    model = VisionTransformer(**SMALL, layer=layer, layer_settings=SETTINGS.get(layer))
    found = extract_attention_maps(model, torch.randn(2, 3, 8, 8), n_tokens=5)
    assert [layer_map.layer for layer_map in found] == ["blocks.0.attn", "blocks.1.attn"]
    for layer_map in found:
        assert layer_map.tokens.shape == layer_map.weights.shape
        assert layer_map.tokens.shape[:1] + layer_map.tokens.shape[2:3] == (2, 17)
        assert ((layer_map.tokens >= 0) & (layer_map.tokens < 17)).all()
        assert (layer_map.weights >= 0).all()
        assert layer_map.weights.sum(-1).max() <= 1 + 1e-5


@pytest.mark.parametrize(
    "layer",
    [
        Attention(12, 3),
        KvtAttention(12, 3, n_neighbors=4),
        LocalAttention(12, 3, window_size=2),
    ],
)
def test_weights_and_values_give_the_layers_own_output(layer):
    x = torch.randn(1, 9, 12)
    (layer_map,) = extract_attention_maps(layer, x, n_tokens=9)
    value = layer.project(x)[2]
    chosen = (
        value[:, :, None]
        .expand(-1, -1, 9, -1, -1)
        .gather(3, layer_map.tokens[..., None].expand(*layer_map.tokens.shape, 4))
    )
    attended = (layer_map.weights[..., None] * chosen).sum(3)
    known = layer.attend(*layer.project(x), None)
    torch.testing.assert_close(attended, known, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("local", {"window_size": 1, "is_rotary": False}),
        ("neighborhood", {"kernel_size": 3}),
        ("convnn", {"n_neighbors": 4, "sampling_type": "random", "num_samples": 5}),
        ("attention", {}),
    ],
)
def test_tokens_after_the_patches_keep_their_numbers(name, settings):
    made = make_layer(name, 12, 3, from_model={"num_prefix_tokens": 3}, settings=settings)
    layer, x = AdaptedLayer(made, num_suffix_tokens=2).eval(), torch.randn(2, 9, 12)
    (layer_map,) = extract_attention_maps(layer, x, n_tokens=9)
    (moved,) = extract_attention_maps(made, x.roll(2, 1), n_tokens=9)
    dense, of_moved = (
        torch.zeros(2, 3, 9, 9).scatter_(-1, each.tokens, each.weights)
        for each in (layer_map, moved)
    )
    torch.testing.assert_close(dense, of_moved.roll((-2, -2), (-2, -1)))
    if name == "local":  # a patch sees its neighbors, and the first and the last two tokens
        seen = [torch.nonzero(row).flatten().tolist() for row in dense[0, 0]]
        assert seen[0] == seen[8] == list(range(9))
        assert seen[3] == [0, 2, 3, 4, 7, 8]


@pytest.mark.parametrize("name", ["attention", "kvt", "convnn", "local", "branching_attention"])
def test_masks_and_causality_have_an_effect(name):
    settings = {} if name in ("attention", "local") else {"n_neighbors": 4}
    layer = make_layer(name, 12, 2, from_model={"num_prefix_tokens": 0}, settings=settings).eval()

    class Masked(torch.nn.Module):
        def __init__(self, **given):
            super().__init__()
            self.layer, self.given = layer, given

        def forward(self, x):
            return self.layer(x, **self.given)

    allowed = torch.rand(9, 9) > 0.5
    allowed |= torch.eye(9, dtype=torch.bool)
    for given, visible in (({"attn_mask": allowed}, allowed), ({"is_causal": True}, None)):
        (found,) = extract_attention_maps(Masked(**given), torch.randn(2, 9, 12), n_tokens=9)
        visible = torch.ones(9, 9).tril().bool() if visible is None else visible
        is_seen = found.weights > 0
        rows = torch.arange(9)[:, None].expand_as(found.tokens)
        assert visible[rows[is_seen], found.tokens[is_seen]].all()
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(found.weights.shape[:3]))


def test_convolutions_have_no_attention_map():
    settings = {"branch_ratio": 0.0}
    model = VisionTransformer(**SMALL, layer="branching_conv", layer_settings=settings, pool="mean")
    assert extract_attention_maps(model, torch.zeros(1, 3, 8, 8)) == []


def test_mode_and_hooks_are_restored():
    model = VisionTransformer(**SMALL).train()
    extract_attention_maps(model, torch.zeros(1, 3, 8, 8))
    assert model.training
    assert not any(block.attn._forward_pre_hooks for block in model.blocks)


def test_the_attention_matrix_is_the_mean_over_heads():
    model = VisionTransformer(**SMALL, layer="kvt", layer_settings={"n_neighbors": 4}, num_heads=3)
    layer_map = extract_attention_maps(model, torch.randn(1, 3, 8, 8))[0]
    seen = attention_matrix(layer_map, 17, None)
    assert seen.shape == (17, 17)
    assert abs(seen.sum(1) - 1).max() < 1e-5
    assert (attention_matrix(layer_map, 17, 0) > 0).sum(1).max() <= 4


def test_tokens_have_names():
    assert token_name(Grid(2, 3, n_prefix=1), 0) == "class token"
    assert token_name(Grid(2, 3, n_prefix=1), 6) == "patch 1, 2"
