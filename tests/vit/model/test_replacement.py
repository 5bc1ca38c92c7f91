"""Replacement of attention: same outputs where the layers are equal, errors elsewhere."""

from __future__ import annotations

import copy
import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.layers import (
    Attention,
    ConvNNAttention,
    KvtAttention,
    LocalAttention,
    NeighborhoodAttention2D,
)
from attnknn.vit.layers.base import merge_heads, split_heads
from attnknn.vit.model import VisionTransformer, replace_attention
from attnknn.vit.model.replacement import AdaptedLayer

SMALL = {"image_size": 16, "dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
N = 17


@pytest.fixture
def model():
    made = VisionTransformer(**SMALL).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        ("convnn", {"n_neighbors": N}),
        ("convnn", {"n_neighbors": N, "convolution_type": "standard"}),
        ("convnn", {"n_neighbors": N, "convolution_type": "depthwise-separable"}),
        ("convnn", {"n_neighbors": N, "aggregation_type": "Loc_Col"}),
        ("kvt", {"n_neighbors": N}),
        ("local", {"window_size": N, "is_rotary": False}),
        ("sparse", {}),
    ],
)
def test_with_all_tokens_as_neighbors_outputs_stay(model, images, layer, settings):
    before = model(images)
    replace_attention(model, layer, **settings)
    torch.testing.assert_close(model(images), before, atol=1e-5, rtol=0)


def test_with_few_neighbors_outputs_change(model, images):
    before = model(images)
    assert not torch.allclose(replace_attention(model, "convnn", n_neighbors=3)(images), before)


def test_only_the_requested_blocks_change(model):
    replace_attention(model, "kvt", blocks=[1], n_neighbors=3)
    assert [type(block.attn) for block in model.blocks] == [Attention, KvtAttention]


def test_layers_know_the_grid_of_patches(model):
    replace_attention(model, "convnn", n_neighbors=3, sampling_type="spatial", num_samples=2)
    layer = model.blocks[0].attn
    assert (layer.grid_size, layer.num_prefix_tokens) == ((4, 4), 1)


def test_dtype_and_mode_of_the_model_are_kept(model):
    model = model.double()
    layer = replace_attention(model, "convnn", n_neighbors=3).blocks[0].attn
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert not layer.training
    assert all(p.requires_grad for p in layer.parameters())


@pytest.mark.slow
def test_a_hugging_face_model_keeps_its_outputs(images):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=16, patch_size=4, hidden_size=24, num_attention_heads=3,
        num_hidden_layers=2, intermediate_size=32, num_labels=5,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    before = model(images).logits
    replace_attention(model, "convnn", n_neighbors=N)
    torch.testing.assert_close(model(images).logits, before, atol=1e-5, rtol=0)
    layers = [module for module in model.modules() if isinstance(module, ConvNNAttention)]
    assert [(layer.grid_size, layer.num_prefix_tokens) for layer in layers] == 2 * [((4, 4), 1)]
    model(images).logits.sum().backward()
    assert all(layer.kernel.grad is not None for layer in layers)


HUGGING_FACE = {
    "image_size": 16, "patch_size": 4, "hidden_size": 24, "num_attention_heads": 3,
    "num_hidden_layers": 1, "intermediate_size": 32,
}  # fmt: skip


def from_hugging_face(name, config, **settings):
    transformers = pytest.importorskip("transformers")
    made = getattr(transformers, config)(**{**HUGGING_FACE, **settings})
    return getattr(transformers, name)(made).eval()


def local_layers(model):
    return {n: m.num_prefix_tokens for n, m in model.named_modules() if type(m) is LocalAttention}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "n_prefix"),
    [
        ("ViTModel", "ViTConfig", 1),
        ("DeiTModel", "DeiTConfig", 2),
        ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", 5),
        ("SiglipVisionModel", "SiglipVisionConfig", 0),
        ("CLIPVisionModel", "CLIPVisionConfig", 1),
        ("IJepaModel", "IJepaConfig", 0),
        ("Dinov2Model", "Dinov2Config", 1),
        ("YolosModel", "YolosConfig", 6),
        ("Data2VecVisionModel", "Data2VecVisionConfig", 1),
    ],
)
def test_prefix_tokens_are_counted(images, name, config, n_prefix):
    detection = {"image_size": [16, 16], "num_detection_tokens": 5} if "Yolos" in name else {}
    model = from_hugging_face(name, config, **detection)
    n_tokens = model(images).last_hidden_state.shape[1]
    replace_attention(model, "local", window_size=1)
    assert set(local_layers(model).values()) == {n_prefix} == {n_tokens - 16}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("Dinov2Model", "Dinov2Config", {"use_swiglu_ffn": True}),
        ("Dinov2ForImageClassification", "Dinov2Config", {}),
        ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {}),
        ("YolosModel", "YolosConfig", {"image_size": [16, 16], "num_detection_tokens": 5}),
        ("YolosModel", "YolosConfig", {"image_size": [16, 16], "qkv_bias": False}),
        ("YolosForObjectDetection", "YolosConfig", {"image_size": [16, 16]}),
        ("Data2VecVisionModel", "Data2VecVisionConfig", {}),
    ],
)
def test_dinov2_yolos_and_similar_models_keep_their_outputs(images, name, config, settings):
    model = from_hugging_face(name, config, num_hidden_layers=2, **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    key = "last_hidden_state" if name.endswith("Model") else "logits"
    before = model(images)[key]
    replace_attention(model, "attention")
    torch.testing.assert_close(model(images)[key], before, atol=1e-5, rtol=0)
    replace_attention(model, "local", window_size=999, is_rotary=False)  # an adapted layer again
    torch.testing.assert_close(model(images)[key], before, atol=1e-5, rtol=0)
    assert len(local_layers(model)) == 2
    replace_attention(model, "convnn", n_neighbors=3)
    assert sum(isinstance(module, ConvNNAttention) for module in model.modules()) == 2
    assert not torch.allclose(model(images)[key], before)


class SelfAttention(nn.Module):
    """The inner part of an attention module as in YOLOS."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.num_attention_heads, self.dropout_prob = num_heads, 0.25

    def forward(self, x):
        parts = [part(x) for part in (self.query, self.key, self.value)]
        query, key, value = split_heads(torch.cat(parts, -1), self.num_attention_heads, 4)
        return merge_heads(nn.functional.scaled_dot_product_attention(query, key, value))


class Nested(nn.Module):
    """An attention module as in YOLOS, or with a tuple as in older versions of DINOv2."""

    def __init__(self, returns_tuple):
        super().__init__()
        self.attention, self.output = SelfAttention(12, 3), nn.Module()
        self.output.dense, self.output.dropout = nn.Linear(12, 12), nn.Dropout(0.5)
        self.returns_tuple = returns_tuple

    def forward(self, hidden_states, head_mask=None, output_attentions=False):
        attended = self.output.dropout(self.output.dense(self.attention(hidden_states)))
        return (attended,) if self.returns_tuple else attended


@pytest.mark.parametrize("returns_tuple", [False, True])
def test_nested_attention_modules_keep_what_they_return(randn, returns_tuple):
    old, x = Nested(returns_tuple).double().eval(), randn(2, 7, 12)
    new = replace_attention(old, "convnn", n_neighbors=7)
    assert isinstance(new(x), tuple) == returns_tuple
    out, expected = (m(x)[0] if returns_tuple else m(x) for m in (new, old))
    torch.testing.assert_close(out, expected)
    assert (new.layer.attn_drop, new.layer.proj_drop.p) == (0.25, 0.5)
    old.output.norm = nn.LayerNorm(12)
    with pytest.raises(InvalidInputError, match=r"has a 'output\.norm\.weight'"):
        replace_attention(old, "convnn", n_neighbors=7)


@pytest.mark.parametrize("n_suffix", [1, 3])
def test_tokens_after_the_patches_attend_to_all_and_all_to_them(randn, n_suffix):
    plain = Attention(12, 3).double()
    moved = replace_attention(
        plain, "local", window_size=1, is_rotary=False, num_prefix_tokens=1 + n_suffix
    )
    n_tokens = 7 + n_suffix
    at = torch.arange(n_tokens)
    is_patch = (at >= 1) & (at < 7)
    allowed = (at[:, None] - at).abs() <= 1
    allowed |= ~(is_patch[:, None] & is_patch)
    x, mask = randn(2, n_tokens, 12), randn(2, 1, n_tokens, n_tokens)
    layer = AdaptedLayer(moved, num_suffix_tokens=n_suffix)
    torch.testing.assert_close(layer(x)[0], plain(x, allowed))
    both = mask.masked_fill(~allowed, float("-inf"))
    torch.testing.assert_close(layer(x, mask)[0], plain(x, both))
    again = replace_attention(layer, "local", window_size=1, is_rotary=False)
    torch.testing.assert_close(again(x)[0], layer(x)[0])


class OtherVit(VisionTransformer):
    """Token names of DINOv2's and YOLOS' own code, which do not count their prefix tokens."""

    def __init__(self, registers=0, detection=0):
        super().__init__(**SMALL)
        del self.num_prefix_tokens
        self.patch_embed.patches_resolution = self.patch_embed.grid_size
        del self.patch_embed.grid_size
        self.register_tokens = nn.Parameter(torch.randn(1, registers, 24)) if registers else None
        self.det_token = nn.Parameter(torch.randn(1, detection, 24)) if detection else None
        self.pos_embed = nn.Parameter(torch.randn(1, 17 + detection, 24))

    def forward(self, images):
        x = self.patch_embed(images)
        tokens = (self.cls_token, self.register_tokens, self.det_token)
        first, registers, last = (
            None if token is None else token.expand(len(x), -1, -1) for token in tokens
        )
        x = torch.cat([part for part in (first, x, last) if part is not None], 1) + self.pos_embed
        if registers is not None:
            x = torch.cat([x[:, :1], registers, x[:, 1:]], 1)
        return self.norm(self.blocks(x))


@pytest.mark.parametrize(("registers", "detection"), [(0, 0), (4, 0), (0, 5)])
def test_tokens_are_counted_in_models_with_the_names_of_dinov2_and_yolos(
    images, registers, detection
):
    model = OtherVit(registers, detection).eval()
    before = model(images)
    replace_attention(model, "neighborhood_2d", blocks=[0], kernel_size=3)
    changed = model(images)
    assert changed.shape == before.shape == (2, 17 + registers + detection, 24)
    assert not torch.allclose(changed, before)
    (found,) = (m for m in model.modules() if isinstance(m, NeighborhoodAttention2D))
    assert (found.grid_size, found.num_prefix_tokens) == ((4, 4), 1 + registers + detection)
    replace_attention(model, "attention")
    torch.testing.assert_close(model(images), before, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_in_clip_only_the_image_tower_changes():
    transformers = pytest.importorskip("transformers")
    text = {"vocab_size": 50, "max_position_embeddings": 8, **HUGGING_FACE}
    config = transformers.CLIPConfig(text_config=text, vision_config=HUGGING_FACE)
    model = replace_attention(transformers.CLIPModel(config), "local", window_size=2)
    (found,) = local_layers(model).items()
    assert found[0].startswith("vision_model.")
    assert found[1] == 1


@pytest.mark.slow
def test_prefix_tokens_must_be_stated_where_the_model_does_not_state_them():
    """The model has positions for tokens of an unknown kind."""
    model = from_hugging_face("ViTModel", "ViTConfig")
    model.embeddings.position_embeddings = nn.Parameter(torch.zeros(1, 20, 24))
    with pytest.raises(InvalidSettingError, match="set `num_prefix_tokens`"):
        replace_attention(model, "local", window_size=2)
    replace_attention(model, "kvt", n_neighbors=3)


class Scaled(nn.Module):
    """Attention as in timm, with a custom scale."""

    def __init__(self, scale=0.02):
        super().__init__()
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)
        self.num_heads, self.scale = 3, scale

    def forward(self, x):
        query, key, value = split_heads(self.qkv(x), 3, 4)
        weights = (query @ key.mT * self.scale).softmax(-1)
        return self.proj(merge_heads(weights @ value))


def test_an_attention_without_a_model_needs_the_number_of_prefix_tokens():
    with pytest.raises(InvalidSettingError, match="set `num_prefix_tokens`"):
        replace_attention(Scaled(), "local", window_size=2)
    assert replace_attention(Scaled(), "local", num_prefix_tokens=2).num_prefix_tokens == 2
    kept = replace_attention(LocalAttention(12, 3, num_prefix_tokens=1), "local", window_size=2)
    assert kept.num_prefix_tokens == 1


class OfMaps(Scaled):
    """As in VitDet: tokens in a map."""

    def forward(self, x, output_attentions=False):
        _, height, width, _ = x.shape
        return (super().forward(x.flatten(1, 2)).unflatten(1, (height, width)),)


class OfSizes(Scaled):
    """As in Twins."""

    def forward(self, x, size):
        return super().forward(x)


class OfChannels(Scaled):
    """As in DaViT: channels attend to channels."""

    def forward(self, x):
        query, key, value = split_heads(self.qkv(x), 3, 4)
        return self.proj(merge_heads((query.mT @ key).softmax(-1) @ value.mT).mT.contiguous().mT)


class Windowed(Scaled):
    """Pairs of tokens attend to each other."""

    def forward(self, x):
        return super().forward(x.unflatten(1, (-1, 2)).flatten(0, 1)).view_as(x)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OfMaps, r"raises ValueError \(not enough values .* not one that takes maps"),
        (OfSizes, r"tokens \(B, N, 12\) alone, it raises TypeError \(.* 'size'"),
        (OfChannels, "raises RuntimeError|something else than softmax attention"),
        (Windowed, "'1' computes something else than softmax attention"),
    ],
)
def test_other_attention_than_softmax_over_tokens_is_refused(kind, message):
    model = nn.Sequential(nn.Identity(), kind(), nn.Dropout()).train()
    before = copy.deepcopy(model.state_dict())
    for layer in ("attention", "kvt", "local"):
        with pytest.raises(InvalidInputError, match=message):
            replace_attention(model, layer)
    assert model.state_dict().keys() == before.keys()
    assert all(part.training for part in model.modules())


class Rotary(nn.Module):
    """A model that passes rotary positions, as timm's models of DINOv3 do."""

    def __init__(self, rope):
        super().__init__()
        self.rope, self.attn = rope, WithRope(scale=0.5)

    def forward(self, x):
        return self.attn(x, rope=None if self.rope is None else self.rope(x), attn_mask=None)


class WithRope(Scaled):
    def forward(self, x, rope=None, attn_mask=None):
        return super().forward(x if rope is None else x * rope)


def test_attention_with_rotary_positions_is_refused_only_where_the_model_has_them(randn):
    with pytest.raises(InvalidInputError, match=r"rotary or relative positions \('rope'\)"):
        replace_attention(Rotary(nn.Identity()), "kvt", n_neighbors=3)
    model, x = Rotary(None).double(), randn(2, 7, 12)
    before = model(x)
    replace_attention(model, "convnn", n_neighbors=7)
    torch.testing.assert_close(model(x), before)
    model.rope = nn.Identity()
    with pytest.raises(InvalidInputError, match="passes 'rope' to its attention"):
        model(x)
    mask = randn(7, 7)
    adapted, plain = model.attn, Attention(12, 3, qkv_bias=True).double()
    plain.load_state_dict(adapted.layer.state_dict(), strict=False)
    torch.testing.assert_close(adapted(x, attn_mask=mask), plain(x, mask))


def test_models_without_numbers_can_be_changed():
    layer = replace_attention(Scaled().to("meta"), "kvt", n_neighbors=3)
    assert layer.qkv.weight.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_of_low_precision_is_recognized(dtype):
    layer = replace_attention(Scaled(0.5).to(dtype), "kvt", n_neighbors=3)
    assert layer.qkv.weight.dtype == dtype


@pytest.mark.parametrize("scale", [0.02, 0.5, 3.0])
def test_the_scale_of_scores_is_kept(randn, scale):
    old, x = Scaled(scale).double(), 3 * randn(2, 9, 12)
    for name, settings in (("attention", {}), ("convnn", {"n_neighbors": 9})):
        torch.testing.assert_close(replace_attention(old, name, **settings)(x), old(x))


@pytest.mark.slow
def test_the_scale_of_scores_is_kept_in_hugging_face_models(images):
    model = from_hugging_face("ViTModel", "ViTConfig")
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "q_proj"):
                module.scaling = 2.0
                module.q_proj.weight.mul_(40)
                module.q_proj.bias.add_(1)
                module.k_proj.weight.mul_(40)
    before = model(images).last_hidden_state
    replace_attention(model, "kvt", n_neighbors=N)
    torch.testing.assert_close(model(images).last_hidden_state, before, atol=1e-4, rtol=0)


def test_trained_extras_are_kept_or_refused(model, images):
    replace_attention(model, "convnn", n_neighbors=3)
    with torch.no_grad():
        model.blocks[0].attn.kernel.add_(torch.randn(8, 3))
    before = model(images)
    replace_attention(model, "convnn", n_neighbors=3)
    torch.testing.assert_close(model(images), before)
    with pytest.raises(InvalidInputError, match=r"'blocks\.0\.attn' has a 'kernel'"):
        replace_attention(model, "kvt", n_neighbors=3)
    model.blocks[1].attn.relative_position_bias_table = nn.Parameter(torch.zeros(3))
    with pytest.raises(InvalidInputError, match="has a 'relative_position_bias_table'"):
        replace_attention(model, "convnn", blocks=[1], n_neighbors=3)


def test_frozen_weights_stay_frozen(model):
    model.requires_grad_(False)
    layer = replace_attention(model, "convnn", n_neighbors=3).blocks[0].attn
    trained = [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
    assert trained == ["kernel"]


def test_each_parameter_keeps_requires_grad(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    layer = replace_attention(model, "convnn", n_neighbors=3).blocks[0].attn
    layer.kernel.requires_grad_(False)
    layer = replace_attention(model, "convnn", n_neighbors=3).blocks[0].attn
    trained = [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
    assert trained == ["qkv.bias", "proj.bias"]


@pytest.mark.slow
def test_partly_frozen_projections_are_refused():
    model = from_hugging_face("ViTModel", "ViTConfig")
    frozen = [m for m in model.modules() if hasattr(m, "q_proj")]
    for module in frozen:
        for part in (module.q_proj, module.k_proj, module.v_proj):
            part.weight.requires_grad_(False)
    layers = replace_attention(copy.deepcopy(model), "kvt", n_neighbors=3).modules()
    (layer,) = (module for module in layers if isinstance(module, KvtAttention))
    assert [n for n, p in layer.named_parameters() if not p.requires_grad] == ["qkv.weight"]
    frozen[0].k_proj.weight.requires_grad_(True)
    with pytest.raises(InvalidInputError, match="some weights of queries, keys and values"):
        replace_attention(model, "kvt", n_neighbors=3)


@pytest.mark.parametrize("blocks", [(n for n in [1]), torch.tensor([1]), range(1, 2)])
def test_blocks_are_any_iterable_of_integers(model, blocks):
    replace_attention(model, "kvt", blocks=blocks, n_neighbors=3)
    assert [type(block.attn) for block in model.blocks] == [Attention, KvtAttention]


def test_a_single_attention_module_is_returned_replaced():
    found = replace_attention(Attention(12, 3), "kvt", n_neighbors=3)
    assert isinstance(found, KvtAttention)


def test_branches_are_not_counted_as_blocks():
    model = VisionTransformer(
        **SMALL, layer=["branching_attention", "attention"],
        layer_settings=[{"n_neighbors": 3}, {}],
    )  # fmt: skip
    replace_attention(model, "kvt", n_neighbors=3)
    assert isinstance(model.blocks[0].attn.other, Attention)
    assert isinstance(model.blocks[1].attn, KvtAttention)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "settings", "message"),
    [
        ("DINOv3ViTModel", "DINOv3ViTConfig", {}, "rotary or relative positions"),
        ("PixtralVisionModel", "PixtralVisionConfig", {}, "rotary or relative positions"),
        ("VitDetModel", "VitDetConfig", {}, "not one that takes maps"),
        (
            "VitDetModel",
            "VitDetConfig",
            {"use_relative_position_embeddings": True},
            "has a 'rel_pos_h'",
        ),
        (
            "Data2VecVisionModel",
            "Data2VecVisionConfig",
            {"use_relative_position_bias": True},
            "relative_position_bias_table', which",
        ),
    ],
)
def test_hugging_face_models_that_would_lose_positions_are_refused(name, config, settings, message):
    model = from_hugging_face(name, config, **settings)
    before = copy.deepcopy(list(model.state_dict()))
    with pytest.raises(InvalidInputError, match=message):
        replace_attention(model, "kvt", n_neighbors=3)
    assert list(model.state_dict()) == before


@pytest.mark.slow
def test_causal_text_models_stay_causal():
    transformers = pytest.importorskip("transformers")
    config = transformers.CLIPTextConfig(
        vocab_size=50, hidden_size=24, num_attention_heads=3, num_hidden_layers=2,
        intermediate_size=32, max_position_embeddings=8, eos_token_id=49,
    )  # fmt: skip
    model = transformers.CLIPTextModel(config).eval()
    tokens = torch.tensor([[1, 5, 7, 9, 11, 49]])
    before = model(tokens).last_hidden_state
    replace_attention(model, "kvt", n_neighbors=6)
    torch.testing.assert_close(model(tokens).last_hidden_state, before, atol=1e-5, rtol=0)


def test_a_model_without_attention_is_refused():
    with pytest.raises(InvalidInputError, match="No attention was found"):
        replace_attention(nn.Sequential(nn.Linear(3, 3)))


def test_parts_that_would_be_lost_are_refused(model):
    model.blocks[1].attn.q_norm = nn.LayerNorm(8)
    with pytest.raises(InvalidInputError, match=r"'blocks.1.attn' has a 'q_norm"):
        replace_attention(model, "kvt", n_neighbors=3)


@pytest.mark.parametrize(
    ("layer", "settings", "message"),
    [
        ("convnn", {"blocks": [2]}, "from 0 to 1"),
        ("convnn", {"blocks": 1}, "such as .* got 1"),
        ("convnn", {"blocks": ["1"]}, "such as .* got "),
        ("branching_attention", {"n_neighbors": 3}, "cannot be kept"),
        ("convnn", {"similarity_type": "Loc", "n_neighbors": 9}, "cannot be kept"),
    ],
)
def test_a_refused_replacement_leaves_the_model_unchanged(model, images, layer, settings, message):
    before = copy.deepcopy(model)
    with pytest.raises(InvalidSettingError, match=message):
        replace_attention(model, layer, **settings)
    torch.testing.assert_close(model(images), before(images))


@pytest.mark.slow
def test_timm_models_keep_their_outputs_and_blocks_accept_layers():
    """Runs in a separate environment, see the Makefile."""
    python = os.environ.get("ATTNKNN_IMAGES_PYTHON")
    if not python or not Path(python).exists():
        pytest.skip("ATTNKNN_IMAGES_PYTHON names no environment with timm")
    root = Path(__file__).parents[3]
    script = Path(__file__).with_name("with_timm.py")
    done = subprocess.run(
        [python, script],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "outputs kept, blocks work" in done.stdout
