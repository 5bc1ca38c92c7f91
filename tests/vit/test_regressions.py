"""Defects of the original implementation, by the numbers of their list.

Elsewhere, each with a test that would fail:

    B2, B3  heads are merged once, for any N    layers/test_contract.py (moving tokens)
    B4      convolutions stay local             layers/test_branching.py
    B5, B27, B28  ratios 0, 1, 0.3              layers/test_branching.py
    B10     evaluation is repeatable            layers/test_contract.py
    B12     every dtype with samples            layers/test_contract.py
    B13     dropout only in training            layers/test_contract.py
    B16     too many neighbors are named        functional/test_attention.py

    B17 to B20, B25  the training itself        training/test_trainer.py
    B21, B22  the summary is of the model       tests/cli/test_vit.py
    B24     half precision on a processor       training/test_trainer.py (`use_amp`)

Cannot occur: B14, there is no cache of past tokens; B23's unshuffled images, every training draws
the order of its epochs in one place (`attnknn.training.run`); B26, coordinates are made for each
call and nothing is stored.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from attnknn.cli import main
from attnknn.cli.vit.options import model_settings
from attnknn.cli.vit.train import train
from attnknn.vit.functional import NeighborConfig, convnn_attention, select_neighbors
from attnknn.vit.functional.grid import infer_grid, token_coordinates
from attnknn.vit.layers import ConvNNAttention, LocalAttention, NeighborhoodAttention1D
from attnknn.vit.training import ImagePreprocessor
from attnknn.vit.training.storage import build_vit


def test_b1_neighborhood_attention_needs_no_other_package_and_trains():
    layer = NeighborhoodAttention1D(8, 2, kernel_size=3)
    layer(torch.randn(1, 9, 8)).square().sum().backward()
    assert all((parameter.grad != 0).any() for parameter in layer.parameters())


@pytest.mark.parametrize("convolution", ["depthwise", "standard", "depthwise-separable"])
def test_b6_coordinates_go_with_every_convolution(convolution):
    layer = ConvNNAttention(
        8, 2, n_neighbors=3, coordinate_encoding=True, convolution_type=convolution
    )
    assert layer(torch.randn(2, 9, 8)).shape == (2, 9, 8)


@pytest.mark.parametrize("similarity", ["matmul", "cosine", "euclidean"])
def test_b7_no_token_selects_itself_twice(randn, similarity):
    same = torch.ones(1, 1, 6, 4) + 1e-3 * randn(1, 1, 6, 4).float()  # nearest to itself
    chosen = select_neighbors(
        same, same, NeighborConfig(4, similarity), candidates=torch.arange(6)
    ).tokens()
    assert all(len(set(row)) == 4 for row in chosen[0, 0].tolist())


@pytest.mark.parametrize("sampling", ["random", "spatial"])
def test_b8_distances_train_with_samples(sampling):
    layer = ConvNNAttention(
        8, n_neighbors=3, sampling_type=sampling, num_samples=3, magnitude_type="euclidean"
    )
    layer(torch.randn(2, 16, 8)).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e4])
def test_b9_distances_have_finite_gradients_at_zero_and_far_away(scale):
    same = (scale * torch.ones(1, 1, 6, 4)).requires_grad_()
    convnn_attention(same, same, same, None, NeighborConfig(3, "euclidean")).sum().backward()
    assert same.grad.isfinite().all()


def test_b11_sampled_tokens_keep_their_own_coordinates(randn):
    grid, value = infer_grid(16, None, 0), randn(1, 1, 16, 4)
    taps = torch.zeros(2, 2, 2, dtype=torch.float64)
    taps[0, 0, 1] = taps[1, 1, 1] = 1.0  # position of the nearest sample
    some, rule = torch.tensor([3, 8, 14]), NeighborConfig(2, weights="ones")
    places = {"candidates": some, "grid": grid, "position_kernel": taps}
    out = convnn_attention(value, -value, None, None, rule, **places)
    known = token_coordinates(grid).double()[some]
    assert all((known - row).abs().sum(-1).min() < 1e-6 for row in out[0, 0])


def test_b15_no_padding_is_attended_to(randn):
    layer = LocalAttention(8, 2, window_size=4, is_rotary=False).double()
    query, key, value = layer.project(randn(1, 7, 8))
    ones = torch.ones_like(value)
    torch.testing.assert_close(layer.attend(query, key, ones, None), ones)


def test_b29_local_attention_has_the_requested_width_heads_and_window():
    layer = LocalAttention(12, 3, window_size=5)
    assert layer.qkv.weight.shape == (36, 12)
    assert (layer.num_heads, layer.head_dim, layer.window_size) == (3, 4, 5)


def test_b29_k_of_the_command_is_the_window():
    arguments = ["--layer", "LocalAttention", "--K", "5", "--resize", "32", "--num_layers", "1"]
    options = train.make_context("train", arguments).params
    settings = model_settings(options, in_chans=3, num_classes=10)
    assert build_vit(settings).blocks[0].attn.window_size == 5


@pytest.fixture
def folders(tmp_path):
    """Images of two classes, as ImageNet has them."""
    chance = np.random.default_rng(0)
    for number in range(16):
        for part in ("train", "val"):
            place = tmp_path / part / ("cat", "dog")[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            pixels = chance.integers(0, 255, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize("flag", ["", "--augment", "--noise 0.3"])
def test_b23_images_of_folders_are_augmented_and_noisy_as_requested(folders, monkeypatch, flag):
    moved, usual = {True: 0.0, False: 0.0}, ImagePreprocessor.transform

    def transform(pixels, images, generator, **arguments):
        shown = usual(pixels, images, generator, **arguments)
        clean = usual(replace(pixels, noise=0.0), images, torch.Generator())
        is_step = torch.is_grad_enabled()
        moved[is_step] = max(moved[is_step], (shown - clean).abs().max().item())
        return shown

    monkeypatch.setattr(ImagePreprocessor, "transform", transform)
    small = "--resize 16 --patch_size 8 --num_layers 1 --d_hidden 12 --d_mlp 12 --num_epochs 1"
    given = f"--dataset imagenet --data_path {folders} --output_dir {folders / 'out'} {flag}"
    done = CliRunner().invoke(main, shlex.split(f"vit train --device cpu {small} {given}"))
    assert done.exit_code == 0, done.output
    assert (moved[True] > 0.1) == bool(flag)
    assert (moved[False] > 0.1) == ("noise" in flag)
