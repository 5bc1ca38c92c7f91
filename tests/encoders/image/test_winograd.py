"""The convolution by few multiplications agrees with torch's, forward and gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from attnknn.encoders.image import networks, winograd
from attnknn.encoders.image.networks import Convolution, ResNet9, suits_winograd
from attnknn.encoders.image.winograd import axis_of, convolve

SIZES = [(1, 1), (3, 3), (7, 7), (8, 5), (15, 15), (15, 7), (23, 23), (31, 6)]
LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last}


def drawn(*shape, dtype=torch.float32, layout="last"):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return numbers.to(dtype).contiguous(memory_format=LAYOUTS[layout]).requires_grad_()


def outcome(convolution, images, weight, slopes):
    """Outputs and both gradients."""
    outputs = convolution(images, weight)
    return outputs.detach(), *torch.autograd.grad(outputs, (images, weight), slopes)


def plain(images, weight):
    return F.conv2d(images, weight, padding=1)


def distances(n_images, n_in, n_out, height, width, dtype, layout="last"):
    """Of outputs and gradients to those of torch in float64, relative to the largest."""
    images = drawn(n_images, n_in, height, width, dtype=dtype, layout=layout)
    weight = drawn(n_out, n_in, 3, 3, dtype=dtype, layout=layout)
    slopes = drawn(n_images, n_out, height, width, dtype=dtype, layout=layout).detach()
    exact = [t.detach().double().requires_grad_() for t in (images, weight)]
    found = outcome(convolve, images, weight, slopes)
    wanted = outcome(plain, *exact, slopes.double())
    return [
        ((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, wanted, strict=True)
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_outputs_and_gradients_are_those_of_torch(size, layout):
    assert max(distances(5, 6, 4, *size, torch.float64, layout)) < 1e-10
    assert max(distances(5, 6, 4, *size, torch.float32, layout)) < 1e-4


@pytest.mark.parametrize("size", SIZES)
def test_parts_of_a_batch_give_what_the_whole_gives(size, monkeypatch):
    monkeypatch.setattr(winograd, "BYTES_AT_ONCE", 200_000)
    assert max(distances(7, 6, 4, *size, torch.float64)) < 1e-10
    monkeypatch.setattr(winograd, "BYTES_AT_ONCE", 1)
    assert max(distances(3, 6, 4, *size, torch.float64)) < 1e-10


@pytest.mark.parametrize("side", [3, 7, 15])
def test_many_channels_lose_little_to_rounding(side):
    assert max(distances(8, 128, 64, side, side, torch.float32)) < 1e-4
    assert max(distances(1, 64, 64, side, side, torch.float32)) < 1e-4


def test_gradients_are_those_of_differences():
    images = drawn(1, 2, 3, 8, dtype=torch.float64)
    weight = drawn(1, 2, 3, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(convolve, (images, weight))
    assert torch.autograd.gradcheck(lambda w: convolve(images.detach(), w), (weight,))
    assert torch.autograd.gradcheck(lambda x: convolve(x, weight.detach()), (images,))


def test_tiles_minimize_the_number_of_multiplications():
    assert [axis_of(size).tile for size in (3, 7, 15, 16, 23)] == [3, 7, 5, 4, 6]
    for size in range(1, 70):
        axis = axis_of(size)
        assert axis.tiled - axis.tile < size <= axis.tiled


@pytest.fixture
def calls(monkeypatch):
    """What went the fast way."""
    seen = []

    def counted(images, weight):
        seen.append(images.shape)
        return convolve(images, weight)

    monkeypatch.setattr(networks, "convolve", counted)
    return seen


def test_the_fast_way_is_for_training_on_large_batches_in_float32(calls, monkeypatch):
    layer = Convolution(64, 64)
    images = drawn(64, 64, 3, 3)
    assert torch.allclose(layer(images), plain(images, layer.weight), atol=1e-4)
    assert len(calls) == 1
    layer(images[:8])
    Convolution(64, 16)(images)
    layer.eval()(images)
    layer.train().double()(images.double())
    layer.float()
    with torch.no_grad():
        layer(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(images).dtype == torch.bfloat16
    assert len(calls) == 1
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    layer(images)
    assert len(calls) == 1
    assert not suits_winograd(images.to("meta"), layer.weight.to("meta"))


@pytest.mark.slow
def test_a_compiled_layer_goes_the_plain_way(calls):
    layer, images = Convolution(64, 64), drawn(64, 64, 3, 3)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(images), plain(images, layer.weight), atol=1e-5)
    assert not calls


def test_both_ways_train_a_network_alike(calls, monkeypatch):
    torch.manual_seed(0)
    network, images = ResNet9(3, (64, 64, 64), "gelu").train(), torch.randn(64, 3, 9, 9)
    network.whitening.measure(images)
    network.to(memory_format=torch.channels_last)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    gradients = []
    for _ in range(2):
        network.load_state_dict(state)
        network.zero_grad()
        network(images).square().sum().backward()
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
        assert len(calls) == 6  # all but the first, which sees few channels
        monkeypatch.setattr(networks, "suits_winograd", lambda *_: False)
    assert all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3 * b.abs().max().item())
        for a, b in zip(*gradients, strict=True)
    )


def test_the_fast_way_gives_the_same_bytes_again():
    results = [
        outcome(convolve, drawn(64, 64, 7, 7), drawn(64, 64, 3, 3), drawn(64, 64, 7, 7).detach())
        for _ in range(2)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
