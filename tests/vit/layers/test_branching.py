"""Layers with branches, and convolutions of tokens."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.vit.layers import (
    Attention,
    BranchingAttention,
    BranchingConv,
    ConvNNAttention,
    TokenConv1d,
    TokenConv2d,
)
from attnknn.vit.layers.branching import count_near_channels


@pytest.mark.parametrize(("ratio", "kind"), [(0.0, Attention), (1.0, ConvNNAttention)])
def test_at_zero_and_one_the_layer_is_a_single_branch(ratio, kind, randn):
    layer = BranchingAttention(12, 3, branch_ratio=ratio, n_neighbors=3).double()
    branch = kind(12, 3, **({"n_neighbors": 3} if ratio else {})).double()
    assert [p.shape for p in layer.parameters()] == [p.shape for p in branch.parameters()]
    branch.load_state_dict({k.split(".", 1)[1]: v for k, v in layer.state_dict().items()})
    x = randn(2, 7, 12)
    torch.testing.assert_close(layer(x), branch(x))


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.25, 0.3, 0.5, 0.7, 0.99])
@pytest.mark.parametrize("heads", [1, 3, 6])
def test_any_ratio_gives_both_branches_channels_for_all_heads(ratio, heads):
    n_near = count_near_channels(192, heads, ratio)
    assert n_near % heads == (192 - n_near) % heads == 0
    assert 0 < n_near < 192
    assert n_near == pytest.approx(ratio * 192, abs=heads)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, "half", float("nan"), True])
def test_a_ratio_outside_zero_and_one_is_refused(ratio):
    with pytest.raises(InvalidSettingError, match="`branch_ratio` must be a number between"):
        BranchingConv(12, 3, branch_ratio=ratio)


def test_a_single_channel_per_head_cannot_be_split():
    with pytest.raises(InvalidSettingError, match="two channels for each head"):
        BranchingAttention(3, 3, branch_ratio=0.5)


def test_each_branch_sees_its_own_channels(randn):
    layer = BranchingAttention(12, 3, n_neighbors=3).double()
    x = randn(1, 7, 12)
    near, other = layer.near(x[..., :6]), layer.other(x[..., 6:])
    torch.testing.assert_close(layer(x), layer.proj(torch.cat([near, other], -1)))


def test_convolution_along_the_sequence_equals_torchs_and_is_local(randn):
    layer, x = TokenConv1d(12, 3, kernel_size=5).double(), randn(2, 17, 12)
    heads = layer.value(x).unflatten(-1, (3, 4))
    mixed = [layer.conv(F.pad(heads[:, :, h].mT, (2, 2))).mT for h in range(3)]
    torch.testing.assert_close(layer(x), layer.proj(torch.cat(mixed, -1)))
    changed = x.clone()
    changed[:, 0] += 1
    moved = (layer(x) - layer(changed)).abs().amax((0, 2)) > 1e-9
    assert moved.nonzero().flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize("n_prefix", [0, 1, 3])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_at_zero_the_layer_is_exactly_a_conv2d_over_the_grid(randn, size, heads, n_prefix):
    layer = BranchingConv(
        12, heads, branch_ratio=0.0, kernel_size=size, grid_size=(3, 5), num_prefix_tokens=n_prefix
    ).double()
    conv = nn.Conv2d(12, 12, size, padding="same").double()
    conv.load_state_dict(
        {key.removeprefix("other.conv."): value for key, value in layer.state_dict().items()}
    )
    x, other = randn(2, n_prefix + 15, 12, grad=True), randn(2, 12, 3, 5)
    images = x[:, n_prefix:].mT.unflatten(-1, (3, 5))
    out, expected = layer(x), conv(images)
    assert torch.equal(out[:, :n_prefix], x[:, :n_prefix])
    torch.testing.assert_close(out[:, n_prefix:].mT.unflatten(-1, (3, 5)), expected)
    (layer(x)[:, n_prefix:] * other.flatten(2).mT).sum().backward()
    (expected * other).sum().backward()
    torch.testing.assert_close(layer.other.conv.weight.grad, conv.weight.grad)


def test_between_zero_and_one_the_other_channels_go_through_a_conv2d(randn):
    layer = BranchingConv(12, 3, branch_ratio=0.25, grid_size=(3, 5), n_neighbors=4).double()
    x = randn(2, 15, 12)
    near, images = layer.near(x[..., :3]), x[..., 3:].mT.unflatten(-1, (3, 5))
    conv = layer.other.conv
    others = F.conv2d(images, conv.weight, conv.bias, padding=1).flatten(2).mT
    torch.testing.assert_close(layer(x), layer.proj(torch.cat([near, others], -1)))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_even_kernels_keep_the_number_of_tokens(size, randn):
    assert TokenConv1d(4, 1, kernel_size=size).double()(randn(1, 6, 4)).shape == (1, 6, 4)
    layer = TokenConv2d(4, 1, kernel_size=size, grid_size=(2, 3)).double()
    assert layer(randn(1, 6, 4)).shape == (1, 6, 4)


def test_a_convolution_takes_no_mask():
    with pytest.raises(InvalidSettingError, match="cannot take an attention mask"):
        BranchingConv(12, 3, n_neighbors=2)(torch.zeros(1, 4, 12), is_causal=True)
    with pytest.raises(InvalidSettingError, match="cannot take an attention mask"):
        BranchingConv(12, 3, n_neighbors=2, n_axes=1)(torch.zeros(1, 5, 12), is_causal=True)
    with pytest.raises(InvalidSettingError, match="`n_axes` must be 1 or 2"):
        BranchingConv(12, 3, n_axes=3)


@pytest.mark.parametrize("kind", [BranchingAttention, BranchingConv])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_settings_of_neighbors_are_checked_at_every_ratio(kind, ratio):
    for wrong in ({"n_neighbors": 0}, {"magnitude_type": "manhattan"}, {"weights": "soft"}):
        with pytest.raises(InvalidSettingError):
            kind(12, 3, branch_ratio=ratio, **wrong)
    with pytest.raises(TypeError, match="unexpected keyword"):
        kind(12, 3, branch_ratio=ratio, n_neighbours=3)
