"""The same images seen several times when they are asked about, without chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn._validation import Limits, check_choice, check_limits
from attnknn.errors import InvalidSettingError
from attnknn.training.augment.moves import check_reach, like, move

Kind = Literal["original", "flip", "shift", "crop"]
KINDS = ("original", "flip", "shift", "crop")
DIRECTIONS = ((-1, -1), (1, 1), (-1, 1), (1, -1))  # opposite ones side by side
Look = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Views:
    """Which views of an image are averaged when it is asked about; only itself by default.

    Parameters
    ----------
    kinds : 'original'; 'flip' adds the mirror image of every other view; 'shift' moves by `pixels`
        in four diagonal directions, edges reflected; 'crop' leaves out `pixels` on every side, or
        twice as many on two, and stretches the rest
    count : take the first so many views of these kinds; all if None
    pixels : how far shifts and crops go
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
        n_views = len(_looks(self))
        if n_views == 0 or (self.count or 0) > n_views:
            raise InvalidSettingError(
                f"`count` must be at most {n_views} for the kinds {', '.join(self.kinds)}, "
                f"got {self.count}. Add kinds: {', '.join(KINDS)}."
            )

    def __len__(self) -> int:
        return self.count or len(_looks(self))

    def to_dict(self) -> dict[str, Any]:
        """Every setting as JSON can hold it."""
        return {"kinds": list(self.kinds), "count": self.count, "pixels": self.pixels}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """The settings that `to_dict` gave; unknown names and wrong values are errors."""
        return cls(**{**stored, "kinds": tuple(stored["kinds"])})


def views_of(images: Tensor, views: Views) -> Iterator[Tensor]:
    """Each view of images (B, C, H, W), of the same shape, one after the other.

    >>> views = Views(kinds=("original", "flip", "shift"), pixels=2)
    >>> len(list(views_of(torch.zeros(1, 3, 8, 8), views)))
    10
    """
    if {"shift", "crop"} & set(views.kinds):
        check_reach("pixels", 2 * views.pixels, min(images.shape[2:]))
    for look in _looks(views)[: len(views)]:
        yield look(images)


def _looks(views: Views) -> list[Look]:
    """The views of each kind in the order of `KINDS`, each followed by its mirror image."""
    looks: list[Look] = []
    if "original" in views.kinds:
        looks.append(lambda images: images)
    if "shift" in views.kinds:
        looks += [_shift(down * views.pixels, right * views.pixels) for down, right in DIRECTIONS]
    if "crop" in views.kinds:
        looks += [_crop(down, right, views.pixels) for down, right in ((0, 0), *DIRECTIONS)]
    if "flip" not in views.kinds:
        return looks
    if not looks:
        return [_mirror(lambda images: images)]
    return [side for look in looks for side in (look, _mirror(look))]


def _mirror(look: Look) -> Look:
    return lambda images: look(images.flip(3))


def _shift(down: int, right: int) -> Look:
    def look(images: Tensor) -> Tensor:
        by = torch.ones(len(images), dtype=torch.int64, device=images.device)
        return move(images, by * down, by * right, edges="reflect")

    return look


def _crop(down: int, right: int, pixels: int) -> Look:
    """A window smaller by twice `pixels`, in the middle or moved into a corner."""

    def look(images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        top, left = (1 + down) * pixels, (1 + right) * pixels
        window = images[:, :, top : top + height - 2 * pixels, left : left + width - 2 * pixels]
        stretched = F.interpolate(window, (height, width), mode="bilinear", align_corners=False)
        return like(stretched, images)

    return look
