"""Nearest-neighbor attention as a layer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.vit.layers import Attention, ConvNNAttention, KvtAttention


def with_weights_of(layer, other):
    layer.load_state_dict(other.state_dict(), strict=False)
    return layer.double()


@pytest.mark.parametrize("heads", [1, 3])
def test_with_all_neighbors_the_initial_layer_is_softmax_attention(heads, randn):
    x, plain = randn(2, 7, 12), Attention(12, heads).double()
    for make in (ConvNNAttention, KvtAttention):
        layer = with_weights_of(make(12, heads, n_neighbors=7), plain)
        torch.testing.assert_close(layer(x), plain(x))


@pytest.mark.parametrize("heads", [1, 3])
def test_the_initial_layer_is_kvt(heads, randn):
    x, kvt = randn(2, 7, 12), KvtAttention(12, heads, n_neighbors=3).double()
    layer = with_weights_of(ConvNNAttention(12, heads, n_neighbors=3), kvt)
    torch.testing.assert_close(layer(x), kvt(x))
    with torch.no_grad():
        layer.kernel.uniform_()
    assert not torch.allclose(layer(x), kvt(x))


def run_with_keys(layer, x, mask=None):
    """`forward` with queries, keys and values: a hook could read them."""
    hook = layer.qkv.register_forward_hook(lambda *_: None)
    try:
        return layer(x, mask)
    finally:
        hook.remove()


def has_keys(layer, x):
    return layer.project(x)[1].data_ptr() != x.data_ptr()


MERGED = {
    "all": {},
    "bias": {"qkv_bias": True},
    "random": {"sampling_type": "random", "num_samples": 6, "qkv_bias": True},
    "spatial": {"sampling_type": "spatial", "num_samples": 3, "convolution_type": "standard"},
    "Loc_Col": {"similarity_type": "Loc_Col", "qkv_bias": True},
    "places": {"aggregation_type": "Loc"},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("settings", MERGED.values(), ids=MERGED)
def test_one_head_without_keys_gives_the_same_outputs_and_gradients(settings, dtype, randn):
    layer = ConvNNAttention(8, n_neighbors=4, **settings).to(dtype).eval()
    x, toward = randn(3, 16, 8).to(dtype).requires_grad_(), randn(3, 16, 8).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(randn(*parameter.shape))
        layer.proj.weight.mul_(0.2)
    assert not has_keys(layer, x)
    for mask in (None, randn(16, 16) > -1, randn(3, 1, 16, 16).to(dtype)):
        found = [
            [out, *torch.autograd.grad((out * toward).sum(), [x, *layer.parameters()])]
            for out in (layer(x, mask), run_with_keys(layer, x, mask))
        ]
        for one, other in zip(*found, strict=True):
            is_double = dtype == torch.float64
            torch.testing.assert_close(
                one, other, **{} if is_double else {"atol": 1e-3, "rtol": 1e-3}
            )


@pytest.mark.parametrize(
    "settings",
    [
        {"num_heads": 2},
        {"weights": "raw", "qkv_bias": True},
        {"magnitude_type": "cosine"},
        {"magnitude_type": "euclidean"},
        {"similarity_type": "Loc"},
        {"legacy": True},
    ],
)
def test_keys_are_projected_where_they_are_needed(settings, randn):
    layer, x = ConvNNAttention(8, n_neighbors=4, **settings).double(), randn(3, 16, 8)
    assert has_keys(layer, x)
    torch.testing.assert_close(layer(x), run_with_keys(layer, x))


def test_keys_are_projected_for_few_tokens_and_in_low_precision(randn):
    layer, x = ConvNNAttention(8, n_neighbors=4), randn(3, 16, 8).float()
    assert not has_keys(layer, x)
    assert has_keys(layer, x[:1, :15])
    with torch.autocast("cpu"):
        assert has_keys(layer, x)
    assert has_keys(layer.bfloat16(), x.bfloat16())


def test_hooks_and_adapters_of_the_projection_have_an_effect(randn):
    layer, x, seen = ConvNNAttention(8, n_neighbors=4).double(), randn(3, 16, 8), []
    hook = layer.qkv.register_forward_hook(lambda *args: seen.append(args[2].shape))
    layer(x)
    assert seen == [(3, 16, 24)]
    hook.remove()
    before = layer(x)
    adapter = nn.Linear(8, 24).double()

    class WithAdapter(nn.Linear):
        def forward(self, x):
            return super().forward(x) + adapter(x)

    layer.qkv.__class__ = WithAdapter
    assert not torch.allclose(layer(x), before)
    torch.testing.assert_close(layer(x), run_with_keys(layer, x))


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("grid", [(6, 6), (4, 7)])
def test_positions_and_weights_of_one_are_a_convolution_between_projections(size, grid, randn):
    settings = {"similarity_type": "Loc", "weights": "ones", "convolution_type": "standard"}
    layer = ConvNNAttention(4, n_neighbors=size**2, grid_size=grid, **settings).double()
    x = randn(2, grid[0] * grid[1], 4)
    images = layer.qkv(x).mT.unflatten(-1, grid)
    expected = F.conv2d(images, layer.kernel.unflatten(-1, (size, size)), padding=size // 2)
    torch.testing.assert_close(layer(x), layer.proj(expected.flatten(2).mT))


def test_random_candidates_change_in_training_and_stay_in_evaluation():
    layer = ConvNNAttention(4, n_neighbors=3, sampling_type="random", num_samples=5, seed=1)
    assert not torch.equal(layer.candidates(40), layer.candidates(40))
    layer.eval()
    assert torch.equal(layer.candidates(40), layer.candidates(40))
    other = ConvNNAttention(4, n_neighbors=3, sampling_type="random", num_samples=5, seed=2).eval()
    assert not torch.equal(layer.candidates(40), other.candidates(40))


def test_minus_one_sample_is_all(randn):
    x = randn(1, 10, 4)
    all_of_them = ConvNNAttention(4, n_neighbors=3).double()
    for sampling in ("random", "spatial"):
        layer = ConvNNAttention(4, n_neighbors=3, sampling_type=sampling)
        torch.testing.assert_close(with_weights_of(layer, all_of_them)(x), all_of_them(x))


def test_the_number_of_tokens_can_change_between_calls(randn):
    layer = ConvNNAttention(12, 3, n_neighbors=4).double()
    for n_tokens in (4, 197, 65):
        assert layer(randn(1, n_tokens, 12)).shape == (1, n_tokens, 12)


def test_selected_tokens_can_be_inspected(randn):
    layer = ConvNNAttention(4, n_neighbors=3, similarity_type="Loc", grid_size=(2, 2)).double()
    tokens = layer.select_neighbors(randn(1, 4, 4)).tokens()
    assert tokens.shape == (1, 1, 4, 3)
    assert set(tokens.unique().tolist()) <= {-1, 0, 1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 0}, "`n_neighbors` must be an integer of at least 1"),
        ({"sampling_type": "spatail"}, "Did you mean 'spatial'"),
        ({"magnitude_type": "dot"}, "No similarity is called 'dot'"),
        ({"convolution_type": "full"}, "Known: depthwise, depthwise-separable, standard"),
        ({"num_samples": 0}, "`num_samples` must be.* Use −1 for all"),
        ({"similarity_type": "Loc", "aggregation_type": "Loc"}, "must not both be 'Loc'"),
        ({"similarity_type": "Loc_Col", "feature_weight": 0}, "`feature_weight` must be above 0"),
        ({"attn_drop": 1.5}, "`attn_drop` must be a number between 0 and 1, got 1.5"),
        ({"legacy": True, "similarity_type": "Loc_Col"}, "positions only through `coordinate_enco"),
        ({"legacy": True, "weights": "ones"}, "and no weights of one"),
        ({"legacy": True, "coordinate_encoding": True}, "must be 'standard' or 'depthwise-sep"),
        ({"sample_padding": -1}, "`sample_padding` must be"),
        ({"n_neighbors": "9"}, "`n_neighbors` must be"),
        (
            {"n_neighbors": 9, "sampling_type": "random", "num_samples": 4},
            r"`n_neighbors` must be at most 5, .* got 9. Omit it, or increase `num_samples`",
        ),
        (
            {"n_neighbors": 4, "sampling_type": "spatial", "num_samples": 2, "legacy": True},
            "`n_neighbors` must be at most 3",
        ),
    ],
)
def test_invalid_settings_are_refused_by_the_constructor(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        ConvNNAttention(12, **settings)


def test_too_many_neighbors_or_a_wrong_grid_are_refused_by_forward(randn):
    with pytest.raises(InvalidSettingError, match="`n_neighbors` must be at most 5"):
        ConvNNAttention(12, n_neighbors=9)(torch.zeros(1, 5, 12))
    layer = ConvNNAttention(12, n_neighbors=2, sampling_type="spatial", num_samples=2)
    with pytest.raises(InvalidSettingError, match="do not fill a square grid"):
        layer(torch.zeros(1, 5, 12))


@pytest.mark.parametrize(
    ("settings", "n_neighbors"),
    [
        ({}, 9),
        ({"sampling_type": "random", "num_samples": 4}, 6),
        ({"sampling_type": "random", "num_samples": 4, "num_prefix_tokens": 0}, 5),
        ({"sampling_type": "random", "num_samples": 4, "legacy": True}, 5),
        ({"sampling_type": "spatial", "num_samples": 2}, 6),
        ({"sampling_type": "spatial", "num_samples": 3}, 9),
        ({"sampling_type": "spatial", "num_samples": 3, "legacy": True}, 4),
        ({"sampling_type": "spatial"}, 9),
        ({"sampling_type": "random", "num_samples": 4, "similarity_type": "Loc"}, 6),
    ],
)
def test_the_default_number_of_neighbors_fits_the_samples(settings, n_neighbors, randn):
    layer = ConvNNAttention(12, **{"num_prefix_tokens": 1, "grid_size": (3, 4), **settings})
    assert layer.config.n_neighbors == n_neighbors
    n_tokens = 12 + layer.num_prefix_tokens
    for is_training in (True, False):
        out = layer.double().train(is_training)(randn(2, n_tokens, 12))
        assert out.isfinite().all()


def test_the_extra_parameters_are_one_tap_per_channel_and_rank():
    def size(layer):
        return sum(parameter.numel() for parameter in layer.parameters())

    assert size(ConvNNAttention(192, n_neighbors=9)) - size(Attention(192, 1)) == 1728


@pytest.mark.parametrize("magnitude_type", ["cosine", "euclidean"])
@pytest.mark.parametrize("sampling", [{}, {"sampling_type": "random", "num_samples": 3}])
def test_zero_tokens_have_bounded_gradients(magnitude_type, sampling):
    layer = ConvNNAttention(12, n_neighbors=3, magnitude_type=magnitude_type, **sampling)
    x = torch.randn(2, 5, 12)
    x[0, 2] = 0
    x.requires_grad_()
    layer(x).square().sum().backward()
    assert x.grad.abs().max() < 100


def test_tokens_far_from_the_origin_have_distance_zero_to_themselves():
    layer = ConvNNAttention(
        64, n_neighbors=2, magnitude_type="euclidean", sampling_type="random", num_samples=4
    )
    with torch.no_grad():
        eye = torch.eye(64)
        layer.qkv.weight.copy_(torch.cat([eye, eye, eye]))
    neighbors = layer.eval().select_neighbors(20 + torch.randn(1, 9, 64))
    assert (neighbors.scores[..., 0] == 0).all()


@pytest.mark.parametrize("n_prefix", [1, 2])
def test_by_position_prefix_tokens_attend_to_evenly_spread_patches(randn, n_prefix):
    at = {"grid_size": (6, 6), "num_prefix_tokens": n_prefix, "similarity_type": "Loc"}
    layer = ConvNNAttention(4, n_neighbors=9, **at).double().eval()
    x = randn(1, 36 + n_prefix, 4)
    neighbors = layer.select_neighbors(x)
    for row in range(n_prefix):
        seen = neighbors.tokens()[0, 0, row] - n_prefix
        assert sorted(seen.tolist()) == [7, 9, 11, 19, 21, 23, 31, 33, 35]
    weights = neighbors.weights(layer.config)[0, 0, :n_prefix]
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 9))
    sampled = ConvNNAttention(4, n_neighbors=4, sampling_type="spatial", num_samples=3, **at)
    seen = sampled.double().select_neighbors(x).tokens()[0, 0, 0].tolist()
    assert seen[0] == 0
    assert min(seen[1:]) >= n_prefix
    more = ConvNNAttention(4, n_neighbors=40, **at).double().select_neighbors(x)
    assert (more.scores[0, 0, 0] == 0).sum() == 36
