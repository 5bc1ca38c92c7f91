"""Rows of images, whatever holds them: arrays, PIL images, paths; read when they are needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnknn.encoders.image.pictures import Pixels, look_at, read_picture, resize
from attnknn.errors import InvalidInputError
from attnknn.records import Integers


@dataclass(frozen=True)
class ImageShape:
    """What every image must be: channels (1 or 3), height and width in pixels."""

    channels: int
    height: int
    width: int


class ImageRows(Protocol):
    """n images that can be read in parts."""

    def __len__(self) -> int: ...

    def shape(self, size: tuple[int, int] | None) -> ImageShape:
        """The shape of all images, or an error for the first that differs; `size` resizes."""

    def take(self, rows: Integers, shape: ImageShape, *, may_resize: bool) -> Pixels:
        """The images at `rows`, (B, C, H, W) uint8, in this shape."""

    def identity(self) -> NDArray[Any]:
        """What tells these images from others: an array of pixels, or of names."""


def image_rows(X: Any) -> ImageRows:
    """`X` as rows of images.

    Parameters
    ----------
    X : uint8 arrays (n, H, W), (n, H, W, 3) or (n, 3, H, W), or a list of PIL images and paths

    >>> image_rows(np.zeros((5, 8, 8, 3), dtype=np.uint8)).shape(None)
    ImageShape(channels=3, height=8, width=8)
    """
    if isinstance(X, str | bytes | os.PathLike):
        raise InvalidInputError(f"`X` must be a list of images, got one path: {X!r}.")
    if hasattr(X, "getexif"):
        raise InvalidInputError("`X` must be a list of images, got one image. Write `[image]`.")
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUS" and X.ndim != 1:
        return ArrayRows(_channels_first(X))
    if hasattr(X, "columns"):
        return ListRows(_only_column(X))
    return ListRows(list(X))


class ArrayRows:
    """Images (n, C, H, W) in one array."""

    def __init__(self, images: Pixels) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def shape(self, size: tuple[int, int] | None) -> ImageShape:
        _, channels, height, width = self.images.shape
        return ImageShape(channels, *(size or (height, width)))

    def take(self, rows: Integers, shape: ImageShape, *, may_resize: bool) -> Pixels:
        images = self.images[rows]
        if images.shape[1] > shape.channels:
            raise _wrong_channels("The array", images.shape[1])
        if images.shape[2:] != (shape.height, shape.width):
            if not may_resize:
                raise _wrong_size("The array", images.shape[2:], shape)
            images = resize(images, (shape.height, shape.width))
        return np.repeat(images, shape.channels // images.shape[1], axis=1)

    def identity(self) -> NDArray[Any]:
        return self.images


class ListRows:
    """Images by themselves: PIL images, paths, or arrays (H, W), (H, W, 3)."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def shape(self, size: tuple[int, int] | None) -> ImageShape:
        looks = [look_at(item, _name(item, row)) for row, item in enumerate(self.items)]
        channels = max(look.channels for look in looks)
        if size is None:
            first = looks[0]
            for row, look in enumerate(looks):
                if (look.height, look.width) != (first.height, first.width):
                    raise InvalidInputError(
                        f"Images must have one size: {_name(self.items[row], row)} is "
                        f"{look.height} × {look.width}, {_name(self.items[0], 0)} is "
                        f"{first.height} × {first.width}. Set `image_size` to resize them."
                    )
            size = first.height, first.width
        return ImageShape(channels, *size)

    def take(self, rows: Integers, shape: ImageShape, *, may_resize: bool) -> Pixels:
        images = np.empty((len(rows), shape.channels, shape.height, shape.width), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            name = _name(self.items[row], row)
            image = read_picture(self.items[row], name)  # (C, H, W)
            if len(image) > shape.channels:
                raise _wrong_channels(name, len(image))
            if image.shape[1:] != (shape.height, shape.width):
                if not may_resize:
                    raise _wrong_size(name, image.shape[1:], shape)
                image = resize(image[None], (shape.height, shape.width))[0]
            images[place] = image  # one channel becomes three equal ones
        return images

    def identity(self) -> NDArray[Any]:
        return np.array([_name(item, row) for row, item in enumerate(self.items)])


def _channels_first(X: NDArray[Any]) -> Pixels:
    """A view (n, C, H, W) of an array of images; nothing is copied."""
    if X.dtype != np.uint8:
        raise InvalidInputError(
            f"Images must be uint8, from 0 to 255, got {X.dtype}. Convert them: numbers from 0 to "
            "1 are multiplied by 255 and rounded."
        )
    if X.ndim == 3:
        return X[:, None]
    is_last, is_first = (X.ndim == 4 and X.shape[axis] in (1, 3) for axis in (3, 1))
    if is_last == is_first:  # neither, or it cannot be told
        raise InvalidInputError(
            "Images must have the shape (n, H, W), (n, H, W, 3) or (n, 3, H, W), with one or three "
            f"channels, got {X.shape}."
        )
    return X.transpose(0, 3, 1, 2) if is_last else X


def _only_column(table: Any) -> list[Any]:
    if table.shape[1] != 1:
        raise InvalidInputError(
            f"`X` must be one column of paths, got {table.shape[1]}. Choose the column to read."
        )
    return table.iloc[:, 0].tolist()


def _name(item: Any, row: int) -> str:
    """What to call an image in an error: its file if it has one, else its row."""
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    file = getattr(item, "filename", "")
    return str(file) if file else f"row {row}"


def _wrong_channels(name: str, channels: int) -> InvalidInputError:
    return InvalidInputError(
        f"{name} has {channels} channels, but the encoder was fitted on gray images. "
        "Convert it to gray, or fit on colors."
    )


def _wrong_size(name: str, size: Sequence[int], shape: ImageShape) -> InvalidInputError:
    return InvalidInputError(
        f"{name} has {size[0]} × {size[1]} pixels, the encoder was fitted on "
        f"{shape.height} × {shape.width}. Set `image_size` to resize images."
    )
