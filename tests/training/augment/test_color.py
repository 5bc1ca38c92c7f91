"""Color: neutral factors change nothing, extreme ones do what their names say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnknn.errors import InvalidInputError
from attnknn.training.augment.color import brighten, contrast, saturate, turn_hue

NEUTRAL = [(brighten, 1.0), (contrast, 1.0), (saturate, 1.0), (turn_hue, 0.0), (turn_hue, 1.0)]


def numbers(value: float, images: torch.Tensor) -> torch.Tensor:
    return torch.full((len(images),), value)


@pytest.mark.parametrize(("change", "neutral"), NEUTRAL)
def test_neutral_factors_change_nothing(images, change, neutral):
    assert torch.allclose(change(images, numbers(neutral, images)), images, atol=1e-5)


def test_factors_are_per_image(images):
    factors = torch.linspace(0.5, 1.5, len(images))
    for change in (brighten, contrast, saturate, turn_hue):
        together = change(images, factors)
        apart = [change(images[i : i + 1], factors[i : i + 1]) for i in range(len(images))]
        assert torch.allclose(together, torch.cat(apart), atol=1e-6)


def test_extremes(images):
    assert brighten(images, numbers(0.0, images)).abs().max() == 0
    flat = contrast(images, numbers(0.0, images))
    assert torch.allclose(flat, images.mean(dim=(1, 2, 3), keepdim=True).expand_as(flat))
    gray = saturate(images, numbers(0.0, images))
    assert torch.allclose(gray, images.mean(dim=1, keepdim=True).expand_as(gray))


def test_a_third_of_the_circle_moves_each_channel_to_the_next(images):
    turned = turn_hue(images, numbers(1 / 3, images))
    assert torch.allclose(turned, images.roll(1, dims=1), atol=1e-5)


@given(first=st.floats(-0.5, 0.5), second=st.floats(-0.5, 0.5))
def test_turns_of_hue_add_up_and_keep_gray(first, second):
    images = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    twice = turn_hue(turn_hue(images, numbers(first, images)), numbers(second, images))
    once = turn_hue(images, numbers(first + second, images))
    assert torch.allclose(twice, once, atol=1e-5)
    assert torch.allclose(once.mean(dim=1), images.mean(dim=1), atol=1e-5)
    assert torch.allclose(once.square().sum(1), images.square().sum(1), atol=1e-4)


@pytest.mark.parametrize("change", [saturate, turn_hue])
def test_images_without_color_are_refused(images, change):
    with pytest.raises(InvalidInputError, match="three channels, got 1"):
        change(images[:, :1], numbers(1.0, images))
