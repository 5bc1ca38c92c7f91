"""Images in other light: each change is one affine map of the colors of an image."""

from __future__ import annotations

import math

from torch import Tensor

from attnknn.errors import InvalidInputError


def brighten(images: Tensor, factors: Tensor) -> Tensor:
    """Images (B, C, H, W) times (B,) factors."""
    return images * _per_image(factors, images)


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Images whose distance from their own mean is multiplied by (B,) factors."""
    means = images.mean(dim=(1, 2, 3), keepdim=True)
    return means + (images - means) * _per_image(factors, images)


def saturate(images: Tensor, factors: Tensor) -> Tensor:
    """Images whose distance from gray is multiplied by (B,) factors; gray is 0, as it is is 1."""
    check_three_channels("saturation", images)
    gray = images.mean(dim=1, keepdim=True)
    return gray + (images - gray) * _per_image(factors, images)


def turn_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Images whose colors are turned around the gray axis by (B,) parts of a full circle.

    A third of a circle makes red green, green blue and blue red. Gray stays, and so does the mean
    of the three channels; the map is linear, so nothing has to be clipped.
    """
    check_three_channels("hue", images)
    angles = 2 * math.pi * _per_image(turns, images)
    even, odd = (1 - angles.cos()) / 3, angles.sin() / math.sqrt(3)
    before, after = images.roll(1, dims=1), images.roll(2, dims=1)
    return (angles.cos() + even) * images + (even + odd) * before + (even - odd) * after


def check_three_channels(name: str, images: Tensor) -> None:
    """An error for images that have no color to change."""
    if images.shape[1] != 3:
        raise InvalidInputError(
            f"`{name}` needs images of three channels, got {images.shape[1]}. Set `{name}` to 0."
        )


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.dtype)[:, None, None, None]
