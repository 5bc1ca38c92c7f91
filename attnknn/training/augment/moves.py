"""Moved images: crops of reflected ones, shifts, rotations, holes."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn.errors import InvalidSettingError
from attnknn.training.augment.chance import uniform, whole


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """A window of the old size out of each image after reflecting `padding` pixels at its edges."""
    check_reach("crop", padding, min(images.shape[2:]))
    down = whole(images, -padding, padding, generator)
    right = whole(images, -padding, padding, generator)
    return move(images, down, right, edges="reflect")


def random_shift(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `most` pixels in both directions; zeros come in."""
    down = whole(images, -most, most, generator)
    right = whole(images, -most, most, generator)
    return move(images, down, right, edges="zero")


def move(
    images: Tensor, down: Tensor, right: Tensor, *, edges: Literal["reflect", "zero"]
) -> Tensor:
    """Images (B, C, H, W) whose content is moved by (B,) pixels down and to the right.

    Parameters
    ----------
    edges : what comes in: the image mirrored at its outermost pixels (no farther than its size),
        or zeros
    """
    height, width = images.shape[2:]
    y, y_is_inside = _places(down, height, edges)
    x, x_is_inside = _places(right, width, edges)
    moved = images.gather(2, y[:, None, :, None].expand(images.shape))
    moved = moved.gather(3, x[:, None, None, :].expand(images.shape))
    if edges == "zero":
        is_inside = y_is_inside[:, :, None] & x_is_inside[:, None, :]  # (B, H, W)
        moved = moved * is_inside[:, None]
    return like(moved, images)


def _places(by: Tensor, size: int, edges: str) -> tuple[Tensor, Tensor]:
    """Where each place of the result comes from (B, size), and whether that lies in the image."""
    places = torch.arange(size, device=by.device) - by[:, None]
    is_inside = (places >= 0) & (places < size)
    if edges == "zero":
        return places.clamp(0, size - 1), is_inside
    return (size - 1) - ((size - 1) - places.abs()).abs(), is_inside


def check_reach(name: str, pixels: int, size: int) -> None:
    """An error if an image of `size` pixels has too few to be reflected or cut so far."""
    if pixels >= size:
        raise InvalidSettingError(
            f"`{name}` must be below the size of the images, got {pixels} for {size} pixels."
        )


def random_rotation(images: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Each image turned by up to `most` degrees either way."""
    return rotate(images, uniform(images, -most, most, generator))


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Images turned counterclockwise around their middle by (B,) degrees; edges are reflected."""
    height, width = images.shape[2:]
    angles = degrees.to(images.dtype) * (math.pi / 180)
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    # affine_grid measures both axes in -1 .. 1, so a turn has to undo the ratio of the sides.
    top = torch.stack([cos, -sin * height / width, zero], dim=1)
    bottom = torch.stack([sin * width / height, cos, zero], dim=1)
    turns = torch.stack([top, bottom], dim=1)  # (B, 2, 3)
    grid = F.affine_grid(turns, list(images.shape), align_corners=False)
    turned = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return like(turned, images)


def cutout(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """A square of `size` × `size` pixels of each image replaced by the mean of that image."""
    height, width = images.shape[2:]
    check_reach("cutout", size, min(height, width))
    top = whole(images, 0, height - size, generator)
    left = whole(images, 0, width - size, generator)
    is_cut = box(top, top + size, height)[:, :, None] & box(left, left + size, width)[:, None]
    means = images.mean(dim=(1, 2, 3), keepdim=True)
    return torch.where(is_cut[:, None], means, images)


def box(start: Tensor, end: Tensor, size: int) -> Tensor:
    """Which of the places 0 .. size - 1 lie in start .. end - 1, as (B, size)."""
    places = torch.arange(size, device=start.device)
    return (places >= start[:, None]) & (places < end[:, None])


def like(result: Tensor, images: Tensor) -> Tensor:
    """`result` in the memory format of `images`."""
    if images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous():
        return result.contiguous(memory_format=torch.channels_last)
    return result
