"""Test-time augmentation: deterministic views of an image whose predictions are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn._validation import Limits, check_choice, check_limits
from attnknn.errors import InvalidSettingError
from attnknn.training.augmentation import check_reach, like, move

Kind = Literal["original", "flip", "vertical_flip", "shift", "crop"]
KINDS = ("original", "flip", "vertical_flip", "shift", "crop")
FLIPS: dict[str, int] = {"flip": 3, "vertical_flip": 2}  # the axis that each of them reverses
DIRECTIONS = ((-1, -1), (1, 1), (-1, 1), (1, -1))  # opposite ones side by side
View = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Views:
    """Test-time augmentation: views of a query image that are averaged; one by default.

    Parameters
    ----------
    kinds : tuple of str, default=("original",)
        'original' is the image itself; 'flip' adds the mirror image of every other view,
        'vertical_flip' turns every other view upside down; 'shift' moves by `pixels` in four
        diagonal directions, edges reflected; 'crop' leaves out `pixels` on every side, or twice as
        many on two sides, and resizes the rest.
    count : int, optional
        Number of views to take of these kinds, in order; all by default.
    pixels : int, default=1
        Reach of shifts and crops.
    """

    kinds: tuple[Kind, ...] = ("original",)
    count: int | None = None
    pixels: int = 1

    def __post_init__(self) -> None:
        for kind in self.kinds:
            check_choice("kind of view", kind, KINDS)
        check_limits(
            self,
            {
                "count": Limits(least=1, is_whole=True, may_be_none=True),
                "pixels": Limits(least=1, is_whole=True),
            },
        )
        n_views = len(_views(self))
        if n_views == 0 or (self.count or 0) > n_views:
            raise InvalidSettingError(
                f"`count` must be at most {n_views} for the kinds {', '.join(self.kinds)}, "
                f"got {self.count}. Add kinds: {', '.join(KINDS)}."
            )

    def __len__(self) -> int:
        return self.count or len(_views(self))

    def to_dict(self) -> dict[str, Any]:
        """Settings by name, as JSON can hold them."""
        return {"kinds": list(self.kinds), "count": self.count, "pixels": self.pixels}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore settings from `to_dict`; unknown names and wrong values are errors."""
        return cls(**{**stored, "kinds": tuple(stored["kinds"])})


def views_of(images: Tensor, views: Views) -> Iterator[Tensor]:
    """Each view of images (B, C, H, W), of the same shape, one after the other.

    >>> views = Views(kinds=("original", "flip", "shift"), pixels=2)
    >>> len(list(views_of(torch.zeros(1, 3, 8, 8), views)))
    10
    """
    if {"shift", "crop"} & set(views.kinds):
        check_reach("pixels", 2 * views.pixels, min(images.shape[2:]))
    for view in _views(views)[: len(views)]:
        yield view(images)


def _views(views: Views) -> list[View]:
    """Original, shifts and crops, each followed by its flips."""
    made: list[View] = []
    if "original" in views.kinds:
        made.append(lambda images: images)
    if "shift" in views.kinds:
        made += [_shift(down * views.pixels, right * views.pixels) for down, right in DIRECTIONS]
    if "crop" in views.kinds:
        made += [_crop(down, right, views.pixels) for down, right in ((0, 0), *DIRECTIONS)]
    sides: list[tuple[int, ...]] = [()]  # the axes to reverse
    for kind, axis in FLIPS.items():
        if kind in views.kinds:
            sides += [(*side, axis) for side in sides]
    if not made:
        return [_flipped(lambda images: images, side) for side in sides[1:]]
    return [_flipped(view, side) for view in made for side in sides]


def _flipped(view: View, axes: tuple[int, ...]) -> View:
    return (lambda images: view(images.flip(axes))) if axes else view


def _shift(down: int, right: int) -> View:
    def view(images: Tensor) -> Tensor:
        by = torch.ones(len(images), dtype=torch.int64, device=images.device)
        return move(images, by * down, by * right, edges="reflect")

    return view


def _crop(down: int, right: int, pixels: int) -> View:
    """A window smaller by twice `pixels`, in the middle or moved into a corner."""

    def view(images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        top, left = (1 + down) * pixels, (1 + right) * pixels
        window = images[:, :, top : top + height - 2 * pixels, left : left + width - 2 * pixels]
        stretched = F.interpolate(window, (height, width), mode="bilinear", align_corners=False)
        return like(stretched, images)

    return view
