"""The Vision Transformer: shapes, initial weights, layers per block, and refused settings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.layers import Attention, ConvNNAttention, KvtAttention
from attnknn.vit.model import LAYERS, VisionTransformer, vit_small, vit_tiny

SMALL = {"image_size": (8, 12), "patch_size": 2, "dim": 12, "depth": 2, "num_classes": 5}
OF_LAYER = {
    "convnn": {"n_neighbors": 4},
    "kvt": {"n_neighbors": 4},
    "neighborhood": {"kernel_size": 3},
    "neighborhood_2d": {"kernel_size": 3},
    "branching_conv": {"n_neighbors": 4},
    "branching_attention": {"n_neighbors": 4},
}


@pytest.mark.parametrize("pool", ["token", "mean"])
@pytest.mark.parametrize("layer", LAYERS)
def test_models_with_every_layer_train(layer, pool):
    model = VisionTransformer(**SMALL, layer=layer, layer_settings=OF_LAYER.get(layer), pool=pool)
    scores = model(torch.randn(3, 3, 8, 12))
    assert scores.shape == (3, 5)
    nn.functional.cross_entropy(scores, torch.tensor([0, 1, 2])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_each_block_can_have_its_own_layer():
    model = VisionTransformer(
        **SMALL, layer=["attention", "kvt"], layer_settings=[{}, {"n_neighbors": 2}]
    )
    assert [type(block.attn) for block in model.blocks] == [Attention, KvtAttention]


def test_sampled_tokens_differ_between_blocks():
    sampled = {"n_neighbors": 2, "sampling_type": "random", "num_samples": 6}
    model = VisionTransformer(**SMALL, layer="convnn", layer_settings=sampled).eval()
    draws = [block.attn.candidates(25).tolist() for block in model.blocks]
    assert draws[0] != draws[1]
    assert all(draw[0] == 0 for draw in draws)  # the class token


def test_sizes_are_those_of_the_papers():
    """For 1000 classes, as in timm's models of the same names."""
    assert sum(p.numel() for p in vit_tiny().parameters()) == 5_717_416
    assert sum(p.numel() for p in vit_small().parameters()) == 22_050_664


def test_a_kernel_over_ranks_costs_dim_times_k_parameters():
    plain, ours = (
        sum(p.numel() for p in vit_tiny(layer, num_heads=1, **more).parameters())
        for layer, more in (("attention", {}), ("convnn", {"n_neighbors": 9}))
    )
    assert ours - plain == 12 * 192 * 9


def test_positions_class_token_and_kernels_have_no_weight_decay():
    model = VisionTransformer(**SMALL, layer="convnn", layer_settings={"n_neighbors": 4})
    assert model.no_weight_decay() == {
        *("pos_embed", "cls_token", "blocks.0.attn.kernel", "blocks.1.attn.kernel"),
    }


def test_initial_weights_are_small_and_biases_zero():
    model = VisionTransformer(**SMALL)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert module.weight.std() < 0.03
            assert (module.bias == 0).all()
    assert model.cls_token.abs().max() < 0.1


def test_kernels_over_ranks_start_as_in_attention():
    model = VisionTransformer(**SMALL, layer="convnn", layer_settings={"n_neighbors": 25})
    plain = VisionTransformer(**SMALL)
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if "kernel" not in name}
    )
    images = torch.randn(2, 3, 8, 12)
    torch.testing.assert_close(model(images), plain(images))


def test_without_classes_the_model_is_an_encoder():
    assert VisionTransformer(**{**SMALL, "num_classes": 0})(torch.zeros(2, 3, 8, 12)).shape == (
        2,
        12,
    )


@pytest.mark.parametrize("dim", [12, 13, 6, 3])
def test_sinusoidal_positions_have_any_width_and_differ(dim):
    model = VisionTransformer(**{**SMALL, "dim": dim}, num_heads=1, positions="fixed")
    assert "pos_embed" not in model.state_dict()
    places = model.pos_embed[0, 1:]
    if dim >= 4:
        assert len(places.unique(dim=0)) == 24
    assert (model.pos_embed[0, 0] == 0).all()


def test_all_parameters_have_the_requested_dtype():
    model = VisionTransformer(**SMALL, dtype=torch.float64, positions="fixed")
    assert {value.dtype for value in model.state_dict().values()} == {torch.float64}
    assert model(torch.zeros(1, 3, 8, 12, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch_size": 3}, "do not fill"),
        ({"layer": "convn"}, "No layer is called 'convn'. Did you mean 'convnn'"),
        ({"layer": ["attention"]}, "`layer` must have one entry for each of the 2 blocks, got 1"),
        ({"layer_settings": {"n_neighbor": 3}, "layer": "kvt"}, "'kvt' has no setting"),
        ({"pool": "max"}, "No pool is called"),
        ({"positions": "none"}, "No positions is called"),
        ({"num_heads": 5}, "`num_heads` must divide"),
        ({"depth": 0}, "`depth`"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        VisionTransformer(**{**SMALL, **settings})


def test_images_of_another_size_are_refused():
    with pytest.raises(InvalidSettingError, match="8 × 12 pixels, got 8 × 8"):
        VisionTransformer(**SMALL)(torch.zeros(1, 3, 8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("sampling", [{}, {"sampling_type": "random", "num_samples": 5}])
def test_models_compile_without_graph_breaks(sampling, is_training):
    torch.compiler.reset()
    settings = {"n_neighbors": 4, **sampling}
    model = VisionTransformer(**SMALL, layer="convnn", layer_settings=settings).train(is_training)
    assert len(model.blocks) > 1
    images = torch.randn(2, 3, 8, 12)
    if is_training and sampling:
        torch.compile(model, fullgraph=True, backend="aot_eager")(images).sum().backward()
        return
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), model(images))


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        ("branching_conv", {"branch_ratio": 0.0}),
        ("convnn", {"n_neighbors": 1, "sampling_type": "random", "num_samples": 3}),
    ],
)
def test_a_class_token_that_attends_to_no_patch_is_refused(layer, settings):
    with pytest.raises(InvalidSettingError, match="The class token does not attend to any patch"):
        VisionTransformer(**SMALL, layer=layer, layer_settings=settings)
    images = torch.randn(2, 3, 8, 12)
    for more in ({"pool": "mean"}, {"layer": [layer, "attention"]}):
        own = [settings, {}] if "layer" in more else settings
        model = VisionTransformer(**{**SMALL, "layer": layer, "layer_settings": own, **more})
        with torch.no_grad():
            model.head.weight.normal_()
        first, second = model.eval()(images)
        assert not torch.allclose(first, second)


def test_layer_settings_are_accepted_directly_and_as_a_mapping():
    made = vit_tiny("convnn", depth=1, layer_settings={"magnitude_type": "cosine"}, n_neighbors=3)
    config = made.blocks[0].attn.config
    assert (config.similarity, config.n_neighbors) == ("cosine", 3)
    with pytest.raises(InvalidSettingError, match="Put 'n_neighbors' into `layer_settings`"):
        vit_tiny("convnn", depth=1, layer_settings=[{}], n_neighbors=3)


@pytest.mark.parametrize("shape", [(3, 8, 12), (2, 1, 8, 12)])
def test_inputs_of_another_shape_are_refused(shape):
    with pytest.raises(InvalidInputError, match=r"Images must be \(B, 3, 8, 12\)"):
        VisionTransformer(**SMALL)(torch.zeros(shape))


def test_settings_of_the_layer_and_of_the_model_are_distinguished():
    model = vit_tiny("convnn", depth=1, image_size=32, patch_size=4, n_neighbors=3, attn_drop=0.25)
    layer = model.blocks[0].attn
    assert isinstance(layer, ConvNNAttention)
    assert (layer.config.n_neighbors, layer.attn_drop, layer.num_prefix_tokens) == (3, 0.25, 1)
    assert layer.grid_size == (8, 8)
