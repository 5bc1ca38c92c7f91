"""Every layer in bfloat16 and float16, and under autocast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.vit.layers.every_layer import DIM, LAYERS, N

HALVES = (torch.bfloat16, torch.float16)
DRAWS_AGAIN = "convnn_legacy_random"  # in evaluation too


@pytest.fixture(params=LAYERS)
def name(request) -> str:
    return request.param


def copies(name: str, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    """A layer in float32, and one of a lower precision with the same weights."""
    layer, low = LAYERS[name]().eval(), LAYERS[name](dtype=dtype).eval()
    low.load_state_dict(layer.state_dict())
    return layer, low


def assert_similar(name: str, out: Tensor, expected: Tensor) -> None:
    """Equal but for rounding, except where rounding changes the selected neighbors."""
    assert out.isfinite().all()
    if name != DRAWS_AGAIN:
        assert (out.float() - expected).abs().quantile(0.9) < 0.02 * expected.abs().max() + 0.01


@pytest.mark.parametrize("dtype", HALVES)
def test_the_dtype_is_kept_and_outputs_are_similar(name, dtype, randn):
    layer, low = copies(name, dtype)
    x = randn(2, N, DIM).float()
    halved = x.to(dtype).requires_grad_()
    out = low(halved)
    assert out.dtype == dtype
    assert_similar(name, out, layer(x))
    out.sum().backward()
    gradients = [halved.grad, *(parameter.grad for parameter in low.parameters())]
    assert all(grad.dtype == dtype and grad.isfinite().all() for grad in gradients)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", HALVES)
def test_autocast_gives_its_dtype_and_similar_outputs(name, dtype, randn):
    layer, x = LAYERS[name]().eval(), randn(2, N, DIM).float()
    expected = layer(x)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode(), torch.autocast("cpu", dtype=dtype):
            out = layer(x)
        assert out.dtype == dtype
        assert_similar(name, out, expected)


@pytest.mark.parametrize("dtype", HALVES)
def test_autocast_trains(name, dtype, randn):
    layer, x = LAYERS[name](), randn(2, N, DIM).float().requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        out = layer(x)
    out.float().sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    assert all(grad.dtype == torch.float32 and grad.isfinite().all() for grad in gradients)


@pytest.mark.parametrize("name", ["attention", "kvt", "local", "convnn", "convnn_random"])
@pytest.mark.parametrize("dtype", HALVES)
def test_float_masks_have_any_precision(name, dtype, randn):
    layer, low = copies(name, dtype)
    x, mask = randn(2, N, DIM).float(), randn(2, 1, N, N).float()
    expected = layer(x, mask)
    for given in (mask, mask.to(dtype)):
        assert_similar(name, low(x.to(dtype), given), expected)
        with torch.autocast("cpu", dtype=dtype):
            assert_similar(name, layer(x, given), expected)
