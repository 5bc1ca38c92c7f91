"""Tests that apply to every layer."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from attnknn.errors import InvalidInputError, InvalidSettingError
from tests.vit.layers.every_layer import DIM, LAYERS, N

TAKES_MASK = [name for name in LAYERS if "conv_" not in name and "legacy" not in name]


@pytest.fixture(params=LAYERS)
def layer(request) -> nn.Module:
    return LAYERS[request.param](dtype=torch.float64)


def test_the_shape_is_kept_and_every_parameter_has_a_gradient(layer, randn):
    out = layer(randn(2, N, DIM, grad=True))
    assert out.shape == (2, N, DIM)
    out.square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).any(), name


def test_evaluation_is_deterministic_per_image_and_for_a_copy(layer, randn, request):
    name = request.node.callspec.id
    if "legacy_random" in name:
        pytest.skip("the original implementation draws again in evaluation")
    x, other = randn(3, N, DIM), LAYERS[name](dtype=torch.float64).eval()
    other.load_state_dict(layer.eval().state_dict())
    out = layer(x)
    torch.testing.assert_close(out, layer(x), rtol=0, atol=0)
    torch.testing.assert_close(out[1:2], layer(x[1:2]))
    torch.testing.assert_close(out, other(x))


def test_activation_checkpointing_gives_the_same_gradients(layer, randn):
    from torch.utils.checkpoint import checkpoint

    x, gradients = randn(2, N, DIM, grad=True), []
    for again in (False, True):
        torch.manual_seed(0)  # of samples that are drawn
        out = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        gradients.extend(torch.autograd.grad(out.square().sum(), x))
    torch.testing.assert_close(*gradients)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("n_images", [1, 2, 5])
def test_inference_mode_gives_the_same_outputs(layer, randn, n_images, request):
    x = randn(n_images, N, DIM)
    expected = layer.eval()(x).detach()
    with torch.inference_mode():
        out = layer(x)
    assert out.is_inference()
    if "legacy_random" in request.node.callspec.id:  # draws again in evaluation
        assert out.isfinite().all()
    else:
        torch.testing.assert_close(out, expected)


def test_the_constructor_accepts_timms_arguments():
    for make in LAYERS.values():
        known = set()
        for kind in type(make()).__mro__[:-2]:
            known |= set(inspect.signature(kind).parameters)
        assert {"dim", "num_heads", "qkv_bias", "proj_drop", "device", "dtype"} <= known


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in ("conv_1d", "conv_2d")])
def test_further_arguments_of_timm_are_accepted(name):
    layer = LAYERS[name](qk_norm=False, norm_layer=nn.LayerNorm, scale_norm=False, proj_bias=False)
    assert not any(key.endswith("proj.bias") for key in layer.state_dict())
    with pytest.raises(InvalidSettingError, match="must be False"):
        LAYERS["attention"](qk_norm=True)


def test_other_shapes_than_tokens_are_refused(layer, randn):
    for shape in ((N, DIM), (2, N, DIM + 1)):
        with pytest.raises(InvalidInputError, match="Tokens must be"):
            layer(randn(*shape))


def test_shapes_are_known_without_numbers():
    for make in LAYERS.values():
        tokens = torch.empty(2, N, DIM, device="meta")
        assert make(device="meta").eval()(tokens).shape == (2, N, DIM)


def test_no_images_give_no_tokens(layer, randn):
    x = randn(0, N, DIM).requires_grad_()
    out = layer(x)
    assert out.shape == (0, N, DIM)
    out.sum().backward()


@pytest.mark.parametrize("name", TAKES_MASK)
def test_masks_are_booleans_or_floats_that_broadcast(name, randn):
    layer, x = LAYERS[name](dtype=torch.float64).eval(), randn(2, N, DIM)
    allowed = torch.ones(N, 1, dtype=torch.bool)
    torch.testing.assert_close(layer(x, allowed), layer(x))
    with pytest.raises(InvalidInputError, match=r"got torch\.int64"):
        layer(x, allowed.long())
    with pytest.raises(InvalidInputError, match="A mask must broadcast"):
        layer(x, torch.ones(N + 1, N + 1, dtype=torch.bool))
    for shape in (
        (5, 1, N, N),
        (2, N, N),
        (3, N, N),
        (1, 2, 1, N, N),
    ):
        with pytest.raises(InvalidInputError, match=r"broadcast .* A mask per image has"):
            layer(x, torch.ones(shape, dtype=torch.bool))
    with pytest.raises(InvalidInputError, match="must be a tensor, got ndarray"):
        layer(x, allowed.numpy())
    each = torch.ones(2, 1, N, N, dtype=torch.bool)
    torch.testing.assert_close(layer(x, each), layer(x))


@pytest.mark.parametrize("weights", ["raw", "ones"])
def test_float_masks_need_softmax_weights(weights, randn):
    layer = LAYERS["convnn"](weights=weights, dtype=torch.float64)
    with pytest.raises(InvalidSettingError, match="needs `weights='softmax'`, got "):
        layer(randn(2, N, DIM), torch.zeros(N, N, dtype=torch.float64))


def test_heads_that_do_not_divide_the_width_are_refused():
    for make in LAYERS.values():
        with pytest.raises(InvalidSettingError, match=r"`num_heads` must divide `dim=12`.*got 5"):
            make(num_heads=5)
        with pytest.raises(InvalidSettingError, match="`num_heads` must be an integer of at least"):
            make(num_heads=0)


@pytest.mark.parametrize("name", LAYERS)
def test_dropout_only_acts_in_training(name, randn):
    drops = {"proj_drop": 0.5} if name in ("conv_1d", "conv_2d") else {"attn_drop": 0.5}
    if name in ("branching_conv_1d_0", "branching_conv_2d_0"):
        drops = {"proj_drop": 0.5}
    layer, x = LAYERS[name](dtype=torch.float64, **drops), randn(2, N, DIM)
    assert not torch.equal(layer(x), layer(x))
    if "legacy_random" not in name:
        layer.eval()
        assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("name", TAKES_MASK)
def test_a_masked_token_does_not_affect_others(name, randn):
    layer, x = LAYERS[name](dtype=torch.float64).eval(), randn(2, N, DIM)
    mask = torch.ones(N, N, dtype=torch.bool)
    mask[:, 5] = False
    mask[5, 5] = True
    changed = x.clone()
    changed[:, 5] += 1
    others = torch.arange(N) != 5
    one, other = layer(x, attn_mask=mask), layer(changed, attn_mask=mask)
    torch.testing.assert_close(one[:, others], other[:, others])
    assert not torch.allclose(one[:, 5], other[:, 5])


@pytest.mark.parametrize("name", ["attention", "kvt", "convnn", "local", "branching_attention"])
def test_causal_attention_does_not_depend_on_later_tokens(name, randn):
    layer, x = LAYERS[name](dtype=torch.float64).eval(), randn(1, N, DIM)
    changed = x.clone()
    changed[:, 7:] += 1
    one, other = layer(x, is_causal=True), layer(changed, is_causal=True)
    torch.testing.assert_close(one[:, :7], other[:, :7])


@pytest.mark.parametrize(
    "name", ["attention", "kvt", "convnn", "convnn_cosine", "convnn_euclidean"]
)
@pytest.mark.parametrize("heads", [1, 3, 6])
def test_layers_are_permutation_equivariant(name, heads, randn):
    layer, x = LAYERS[name](num_heads=heads, dtype=torch.float64).eval(), randn(2, N, DIM)
    order = torch.randperm(N)
    torch.testing.assert_close(layer(x)[:, order], layer(x[:, order]))


@pytest.mark.parametrize("name", ["attention", "kvt", "convnn", "convnn_standard", "sparse_local"])
def test_a_single_token_is_enough(name, randn):
    settings = {} if name in ("attention", "sparse_local") else {"n_neighbors": 1}
    layer = LAYERS[name](dtype=torch.float64, **settings)
    assert layer(randn(2, 1, DIM)).shape == (2, 1, DIM)
