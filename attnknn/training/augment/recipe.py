"""Which changes images go through, and their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnknn._validation import Limits, check_choice, check_limits
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.training.augment import color, flips, moves
from attnknn.training.augment.chance import uniform

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
    """How images are changed at random while training; nothing by default.

    Parameters
    ----------
    horizontal_flip, vertical_flip : 'random' mirrors half of the images in each epoch;
        'alternating' shows each row from one side and, an epoch later, from the other
    crop : pixels that are reflected at the edges before a window of the old size is cut out
    shift : pixels by which an image moves at most; zeros come in
    rotation : degrees by which an image is turned at most
    brightness, contrast, saturation : 0.2 draws factors from 0.8 to 1.2
    hue : part of the color circle by which colors are turned at most; 0.5 gives any color
    cutout : side of a square that is replaced by the mean of its image
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
        """Whether the rows' numbers decide: each row must see its other side next."""
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
    """Images (B, C, H, W) after every change of the recipe, in the memory format they came in.

    Parameters
    ----------
    generator : where chance comes from; the same state gives the same images
    rows, epoch, seed : what alternating flips depend on, instead of the generator

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
        raise InvalidInputError("Alternating flips need `rows`: the number of each image's row.")
    if not len(images):
        return images
    for name, axis in (("horizontal_flip", flips.ACROSS), ("vertical_flip", flips.DOWN)):
        if getattr(recipe, name) == "random":
            images = flips.random_flip(images, generator, axis)
        elif getattr(recipe, name) == "alternating" and rows is not None:
            images = flips.alternating_flip(images, rows, epoch, seed, axis)
    for name, change in CHANGES.items():
        if getattr(recipe, name):
            images = change(images, getattr(recipe, name), generator)
    return images


def _jitter(change: Callable[[Tensor, Tensor], Tensor], middle: float) -> Callable[..., Tensor]:
    """A change by one random number per image around `middle`."""

    def jitter(images: Tensor, most: float, generator: torch.Generator) -> Tensor:
        return change(images, uniform(images, middle - most, middle + most, generator))

    return jitter


CHANGES: dict[str, Callable[..., Tensor]] = {
    "rotation": moves.random_rotation,
    "crop": moves.random_crop,
    "shift": moves.random_shift,
    "brightness": _jitter(color.brighten, 1.0),
    "contrast": _jitter(color.contrast, 1.0),
    "saturation": _jitter(color.saturate, 1.0),
    "hue": _jitter(color.turn_hue, 0.0),
    "cutout": moves.cutout,
}
