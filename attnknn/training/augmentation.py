"""Random changes of image batches on their device: flips, crops, colors, MixUp and CutMix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn._validation import Limits, check_choice, check_limits
from attnknn.errors import InvalidInputError, InvalidSettingError

ACROSS, DOWN = 3, 2  # the axis that a horizontal and a vertical flip reverse
Flip = Literal["none", "random", "alternating"]
FLIPS = ("none", "random", "alternating")
LIMITS = {
    "crop": Limits(least=0, is_whole=True),
    "shift": Limits(least=0, is_whole=True),
    "rotation": Limits(least=0),
    "brightness": Limits(least=0, below=1),
    "contrast": Limits(least=0, below=1),
    "saturation": Limits(least=0),
    "hue": Limits(least=0),
    "cutout": Limits(least=0, is_whole=True),
}


@dataclass(frozen=True)
class Augmentation:
    """Random changes of training images; none by default.

    Parameters
    ----------
    horizontal_flip, vertical_flip : {"none", "random", "alternating"}, default="none"
        'random' mirrors half of the images in each epoch; 'alternating' mirrors each row in every
        other epoch.
    crop : int, default=0
        Pixels that are reflected at the edges before a window of the old size is cut out.
    shift : int, default=0
        Largest translation in pixels; the gap is filled with zeros.
    rotation : float, default=0.0
        Largest rotation in degrees.
    brightness, contrast, saturation : float, default=0.0
        Largest relative change: 0.2 draws factors from 0.8 to 1.2.
    hue : float, default=0.0
        Largest rotation of colors, as a part of the color circle; 0.5 gives any color.
    cutout : int, default=0
        Side of a square that is replaced by the mean of its image.
    """

    horizontal_flip: Flip = "none"
    vertical_flip: Flip = "none"
    crop: int = 0
    shift: int = 0
    rotation: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    cutout: int = 0

    def __post_init__(self) -> None:
        check_choice("horizontal_flip", self.horizontal_flip, FLIPS)
        check_choice("vertical_flip", self.vertical_flip, FLIPS)
        check_limits(self, LIMITS)
        for name, most in (("saturation", 1.0), ("hue", 0.5)):
            if getattr(self, name) > most:
                raise InvalidSettingError(
                    f"`{name}` must be at most {most:g}, got {getattr(self, name)!r}."
                )

    @property
    def needs_rows(self) -> bool:
        """Whether changes depend on row numbers, as alternating flips do."""
        return "alternating" in (self.horizontal_flip, self.vertical_flip)


def augment(
    images: Tensor,
    recipe: Augmentation,
    generator: torch.Generator,
    *,
    rows: Tensor | None = None,
    epoch: int = 0,
    seed: int = 0,
) -> Tensor:
    """Images (B, C, H, W) after every change of `recipe`, in their memory format.

    Random numbers come from `generator`; alternating flips depend on `rows`, `epoch` and `seed`.

    >>> images = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> recipe = Augmentation(horizontal_flip="alternating")
    >>> sides = [
    ...     augment(images, recipe, torch.Generator(), rows=torch.tensor([7]), epoch=epoch)
    ...     for epoch in (0, 1, 2)
    ... ]
    >>> torch.equal(sides[0], sides[1]), torch.equal(sides[0], sides[2])
    (False, True)
    """
    if recipe.needs_rows and (rows is None or len(rows) != len(images)):
        raise InvalidInputError("Alternating flips need `rows`, the row number of each image.")
    if not len(images):
        return images
    for name, axis in (("horizontal_flip", ACROSS), ("vertical_flip", DOWN)):
        if getattr(recipe, name) == "random":
            images = random_flip(images, generator, axis)
        elif getattr(recipe, name) == "alternating" and rows is not None:
            images = alternating_flip(images, rows, epoch, seed, axis)
    for name, change in CHANGES.items():
        if getattr(recipe, name):
            images = change(images, getattr(recipe, name), generator)
    return images


# Flips


def flip(images: Tensor, is_flipped: Tensor, axis: int = ACROSS) -> Tensor:
    """Images (B, C, H, W), those marked in `is_flipped` (B,) mirrored."""
    return torch.where(is_flipped[:, None, None, None], images.flip(axis), images)


def random_flip(images: Tensor, generator: torch.Generator, axis: int = ACROSS) -> Tensor:
    """Each image mirrored with probability one half."""
    return flip(images, uniform(images, 0.0, 1.0, generator) < 0.5, axis)


def alternating_flip(
    images: Tensor, rows: Tensor, epoch: int, seed: int, axis: int = ACROSS
) -> Tensor:
    """Each image mirrored or not at random in epoch 0, and the other way in every next epoch.

    Two epochs in a row show each row from both sides, where random flips show half of the rows
    twice from one. The side is a function of `seed`, row number and epoch, so the order of the rows
    and the process do not matter.
    """
    first = _random_bits(rows, 2 * seed + (axis == DOWN))
    return flip(images, ((first + epoch) % 2 == 1).to(images.device), axis)


def _random_bits(rows: Tensor, seed: int) -> Tensor:
    """One bit per row (B,), on the CPU: a finalizing hash of row and seed in 64 bits."""
    mixed = rows.cpu().to(torch.int64) + _signed(seed * 0x9E3779B97F4A7C15)
    for factor, shift in ((0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)):
        mixed = (mixed ^ _shifted(mixed, shift)) * _signed(factor)  # wraps, as hashes do
    return (mixed ^ _shifted(mixed, 31)) & 1


def _shifted(value: Tensor, by: int) -> Tensor:
    """A shift to the right that fills with zeros; torch's own repeats the sign."""
    return (value >> by) & ((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


# Crops, shifts, rotations, cutout


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """A window of the old size out of each image after reflecting `padding` pixels at its edges."""
    check_reach("crop", padding, min(images.shape[2:]))
    down = whole(images, -padding, padding, generator)
    right = whole(images, -padding, padding, generator)
    return move(images, down, right, edges="reflect")


def random_shift(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `most` pixels in both directions; the gap is filled with zeros."""
    down = whole(images, -most, most, generator)
    right = whole(images, -most, most, generator)
    return move(images, down, right, edges="zero")


def move(
    images: Tensor, down: Tensor, right: Tensor, *, edges: Literal["reflect", "zero"]
) -> Tensor:
    """Images (B, C, H, W) whose content is moved by (B,) pixels down and to the right.

    The gap is filled with the image mirrored at its outermost pixels (at most its own size), or
    with zeros.
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
    """Raise an error if an image of `size` pixels is too small for this reach."""
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


# Colors: each change is one affine map of the colors of an image


def brighten(images: Tensor, factors: Tensor) -> Tensor:
    """Images (B, C, H, W) times (B,) factors."""
    return images * _per_image(factors, images)


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Images whose distance from their own mean is multiplied by (B,) factors."""
    means = images.mean(dim=(1, 2, 3), keepdim=True)
    return means + (images - means) * _per_image(factors, images)


def saturate(images: Tensor, factors: Tensor) -> Tensor:
    """Images whose distance from gray is multiplied by (B,) factors; 0 gives gray."""
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
    """Raise an error for images without color."""
    if images.shape[1] != 3:
        raise InvalidInputError(
            f"`{name}` needs images of three channels, got {images.shape[1]}. Set `{name}` to 0."
        )


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.dtype)[:, None, None, None]


# MixUp and CutMix


@dataclass(frozen=True)
class Mixing:
    """How often and how strongly images are mixed; never by default.

    Parameters
    ----------
    mixup, cutmix : float, default=0.0
        Share of the batches that are mixed this way; together at most 1.
    strength : float, default=1.0
        Parameter of the Beta distribution of the proportions: 1 is uniform; with less, most images
        change little.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    strength: float = 1.0

    def __post_init__(self) -> None:
        share = Limits(least=0)
        check_limits(self, {"mixup": share, "cutmix": share, "strength": Limits(above=0)})
        if self.mixup + self.cutmix > 1:
            raise InvalidSettingError(
                f"`mixup` and `cutmix` must add up to at most 1, got {self.mixup:g} and "
                f"{self.cutmix:g}: they are shares of the batches."
            )


@dataclass(frozen=True)
class Mixed:
    """Mixed images, their label distributions, and what they were mixed of."""

    images: Tensor  # (B, C, H, W)
    labels: Tensor  # (B, C), each row sums to one
    partners: Tensor  # (B,) position in the batch of the image that was mixed in
    shares: Tensor  # (B,) how much of each image is its own; the rest is its partner's


def mix(images: Tensor, labels: Tensor, mixing: Mixing, generator: torch.Generator) -> Mixed:
    """Mix a batch with MixUp or CutMix as `mixing` says, or not; labels are (B, C)."""
    drawn = torch.rand((), generator=generator, device=generator.device).item()
    if drawn < mixing.mixup:
        return mixup(images, labels, mixing.strength, generator)
    if drawn < mixing.mixup + mixing.cutmix:
        return cutmix(images, labels, mixing.strength, generator)
    places = torch.arange(len(images), device=images.device)
    return Mixed(images, labels, places, torch.ones(len(images), device=images.device))


def mixup(images: Tensor, labels: Tensor, strength: float, generator: torch.Generator) -> Mixed:
    """Each image blended with a partner: share · own + (1 − share) · partner's.

    >>> images, labels = torch.tensor([0.0, 1.0])[:, None, None, None], torch.eye(2)
    >>> mixed = mixup(images, labels, 1.0, torch.Generator().manual_seed(0))
    >>> torch.allclose(mixed.labels[:, 1], mixed.images.flatten())  # the second image is all ones
    True
    """
    partners, shares = _pairs(images, strength, generator)
    own = shares.to(images.dtype)[:, None, None, None]
    blended = own * images + (1 - own) * images[partners]
    return Mixed(blended, _blend(labels, partners, shares), partners, shares)


def cutmix(images: Tensor, labels: Tensor, strength: float, generator: torch.Generator) -> Mixed:
    """Each image with a box of its partner pasted in; labels follow the pasted area.

    The center of the box is anywhere, so the box may be cut off at an edge: the pixels that were
    pasted count, not those that were drawn.
    """
    partners, drawn = _pairs(images, strength, generator)
    height, width = images.shape[2:]
    side = (1 - drawn).sqrt()
    is_pasted = (
        _extent(side, height, images, generator)[:, :, None]
        & _extent(side, width, images, generator)[:, None, :]
    )  # (B, H, W)
    shares = 1 - is_pasted.sum(dim=(1, 2)) / (height * width)
    pasted = torch.where(is_pasted[:, None], images[partners], images)
    return Mixed(pasted, _blend(labels, partners, shares), partners, shares)


def _pairs(images: Tensor, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A partner for each image, and the share that stays its own, drawn from Beta(s, s)."""
    partners = torch.randperm(len(images), generator=generator, device=generator.device)
    seed = torch.randint(2**62, (), generator=generator, device=generator.device).item()
    shares = np.random.default_rng(int(seed)).beta(strength, strength, size=len(images))
    return partners.to(images.device), torch.from_numpy(shares).float().to(images.device)


def _extent(side: Tensor, size: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """Which places (B, size) a box of this share of the side covers, its middle anywhere."""
    middle = uniform(images, 0.0, float(size), generator)
    half = side * size / 2
    return box((middle - half).round(), (middle + half).round(), size)


def _blend(labels: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    own = shares.to(labels.dtype)[:, None]
    return own * labels + (1 - own) * labels[partners]


def uniform(images: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """One number per image (B,) in [low, high), on the device of the images."""
    drawn = torch.rand(len(images), generator=generator, device=generator.device)
    return (low + (high - low) * drawn).to(images.device)


def whole(images: Tensor, low: int, high: int, generator: torch.Generator) -> Tensor:
    """One integer per image (B,) in low .. high, both ends included."""
    size = (len(images),)
    drawn = torch.randint(low, high + 1, size, generator=generator, device=generator.device)
    return drawn.to(images.device)


def _jitter(change: Callable[[Tensor, Tensor], Tensor], middle: float) -> Callable[..., Tensor]:
    """A change by one random number per image around `middle`."""

    def jitter(images: Tensor, most: float, generator: torch.Generator) -> Tensor:
        return change(images, uniform(images, middle - most, middle + most, generator))

    return jitter


CHANGES: dict[str, Callable[..., Tensor]] = {
    "rotation": random_rotation,
    "crop": random_crop,
    "shift": random_shift,
    "brightness": _jitter(brighten, 1.0),
    "contrast": _jitter(contrast, 1.0),
    "saturation": _jitter(saturate, 1.0),
    "hue": _jitter(turn_hue, 0.0),
    "cutout": cutout,
}
