"""Rows of images from arrays, PIL images or paths, read when they are needed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnknn._limits import check_fits
from attnknn._optional import require
from attnknn.errors import InvalidInputError
from attnknn.records import Integers

Pixels = NDArray[np.uint8]
GRAY, COLOR = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
ORIENTATION, TURNED = 274, (5, 6, 7, 8)  # EXIF's tag, and its values that swap the sides
MIN_CHECKED_PIXELS = 1 << 24
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, IndexError)  # what PIL raises


@dataclass(frozen=True)
class ImageShape:
    """Channels (1 or 3), height and width of images, in pixels."""

    channels: int
    height: int
    width: int


def image_shape(item: Any, name: str) -> ImageShape:
    """Shape of a path, PIL image or uint8 array; of a file only the header is read."""
    if isinstance(item, np.ndarray):
        return ImageShape(*_from_array(item, name).shape)
    with _opened(item, name) as image:
        width, height = image.size
        try:
            is_turned = image.getexif().get(ORIENTATION) in TURNED
        except UNREADABLE as error:
            raise _unreadable(name, error) from error
        if is_turned:
            width, height = height, width
        return ImageShape(1 if image.mode in GRAY else 3, height, width)


def read_picture(item: Any, name: str) -> Pixels:
    """Pixels (C, H, W) of an image, rotated by its EXIF tag, with one or three channels."""
    if isinstance(item, np.ndarray):
        return _from_array(item, name)
    from PIL import ImageOps

    with _opened(item, name) as opened:
        try:
            image = ImageOps.exif_transpose(opened)
            _refuse_transparent(image, name)
            pixels = np.array(image.convert("L" if image.mode in GRAY else "RGB"))
        except InvalidInputError:  # a ValueError too
            raise
        except UNREADABLE as error:
            raise _unreadable(name, error) from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def resize(images: Pixels, size: tuple[int, int]) -> Pixels:
    """Resize images (n, C, H, W), with antialiasing.

    >>> resize(np.full((1, 1, 4, 4), 7, dtype=np.uint8), (2, 2)).tolist()
    [[[[7, 7], [7, 7]]]]
    """
    import torch
    from torch.nn import functional as F

    pixels = torch.from_numpy(np.ascontiguousarray(images)).float()
    resized = F.interpolate(pixels, size, mode="bilinear", align_corners=False, antialias=True)
    return resized.round().clamp(0, 255).byte().numpy()


def _opened(item: Any, name: str) -> Any:
    """An open PIL image, to be used in a `with` statement."""
    if not isinstance(item, str | os.PathLike) and not hasattr(item, "getexif"):
        raise InvalidInputError(
            f"Every row must be an image or the path of one, {name} is {str(item)[:40]!r} "
            f"({type(item).__name__})."
        )
    if isinstance(item, str | os.PathLike) and _is_endless(item):
        raise InvalidInputError(f"Every image must be a regular file, but {name} is not.")
    pil = require("PIL.Image", extra="images", needed_by="Reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pil.DecompressionBombWarning)
            image = item.copy() if hasattr(item, "getexif") else pil.open(item)
    except (OSError, ValueError, SyntaxError, pil.DecompressionBombError) as error:
        raise _unreadable(name, error) from error
    except pil.DecompressionBombWarning as error:
        raise _unreadable(name, error) from error
    width, height = image.size
    if width * height > MIN_CHECKED_PIXELS:
        check_fits(name, 8 * width * height, "Make the image smaller.")
    if image.mode not in (*GRAY, *COLOR):
        image.close()
        raise InvalidInputError(
            f"Images must have 8 bits per channel, gray or color; {name} has mode {image.mode!r}. "
            "Convert it."
        )
    return image


def _is_endless(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pipe or device, from which reading may never end."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def _refuse_transparent(image: Any, name: str) -> None:
    """Transparent pixels have arbitrary colors that nobody sees, but the encoder would."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
        if lowest < 255:
            raise InvalidInputError(
                f"{name} has transparent pixels. Save it on an opaque background."
            )


def _from_array(item: NDArray[Any], name: str) -> Pixels:
    if item.dtype == np.uint8 and item.ndim == 2:
        return item[None]
    if item.dtype == np.uint8 and item.ndim == 3 and item.shape[2] in (1, 3):
        return item.transpose(2, 0, 1)
    raise InvalidInputError(
        f"Images must be uint8 of shape (H, W) or (H, W, 3), {name} is {item.dtype} of shape "
        f"{item.shape}."
    )


def _unreadable(name: str, error: Exception) -> InvalidInputError:
    if isinstance(error, FileNotFoundError):
        return InvalidInputError(f"There is no image at {name}.")
    if isinstance(error, IsADirectoryError):
        return InvalidInputError(f"{name} is a folder, not an image.")
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return InvalidInputError(f"{name} cannot be read as an image: {reason}")


class ImageRows(Protocol):
    """n images that can be read in parts."""

    def __len__(self) -> int: ...

    def shape(self, size: tuple[int, int] | None) -> ImageShape:
        """Shape of all images after resizing to `size`; without it their sizes must be equal."""

    def take(self, rows: Integers, shape: ImageShape, *, may_resize: bool) -> Pixels:
        """The images at `rows` in this shape, (B, C, H, W) uint8."""

    def identity(self) -> NDArray[Any]:
        """An array of pixels or of names that identifies the images."""


def image_rows(X: Any) -> ImageRows:
    """`X` as rows of images.

    `X`: uint8 arrays (n, H, W), (n, H, W, 3) or (n, 3, H, W), or a list of PIL images and paths.

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
        images = _in_shape(self.images[rows], "The array", shape, may_resize)
        return np.repeat(images, shape.channels // images.shape[1], axis=1)

    def identity(self) -> NDArray[Any]:
        return self.images


class ListRows:
    """A list of PIL images, paths, or arrays (H, W), (H, W, 3)."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def shape(self, size: tuple[int, int] | None) -> ImageShape:
        shapes = [image_shape(item, _name(item, row)) for row, item in enumerate(self.items)]
        channels = max(shape.channels for shape in shapes)
        if size is None:
            first = shapes[0]
            for row, shape in enumerate(shapes):
                if (shape.height, shape.width) != (first.height, first.width):
                    raise InvalidInputError(
                        f"Images must have one size: {_name(self.items[row], row)} is "
                        f"{shape.height} × {shape.width}, {_name(self.items[0], 0)} is "
                        f"{first.height} × {first.width}. Set `image_size` to resize them.",
                        parameter="image_size",
                    )
            size = first.height, first.width
        return ImageShape(channels, *size)

    def take(self, rows: Integers, shape: ImageShape, *, may_resize: bool) -> Pixels:
        images = np.empty((len(rows), shape.channels, shape.height, shape.width), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            name = _name(self.items[row], row)
            image = read_picture(self.items[row], name)[None]  # (1, C, H, W)
            # One channel becomes three equal ones.
            images[place] = _in_shape(image, name, shape, may_resize)[0]
        return images

    def identity(self) -> NDArray[Any]:
        return np.array([_name(item, row) for row, item in enumerate(self.items)])


def _channels_first(X: NDArray[Any]) -> Pixels:
    """A view (n, C, H, W) of an array of images; nothing is copied."""
    if X.dtype != np.uint8:
        raise InvalidInputError(
            f"Images must be uint8, from 0 to 255, got {X.dtype}. Convert them: multiply numbers "
            "from 0 to 1 by 255 and round."
        )
    if X.ndim == 3:
        return X[:, None]
    is_last, is_first = (X.ndim == 4 and X.shape[axis] in (1, 3) for axis in (3, 1))
    if is_last == is_first:  # neither, or ambiguous
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
    """Name of an image in errors: its file, or its row number."""
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    file = getattr(item, "filename", "")
    return str(file) if file else f"row {row}"


def _in_shape(images: Pixels, name: str, shape: ImageShape, may_resize: bool) -> Pixels:
    """Images (n, C, H, W) in the size of `shape`, with at most its channels."""
    _, channels, height, width = images.shape
    if channels > shape.channels:
        raise InvalidInputError(
            f"{name} has {channels} channels, but the encoder was fitted on gray images. "
            "Convert it to gray, or fit on colors."
        )
    if (height, width) == (shape.height, shape.width):
        return images
    if not may_resize:
        raise InvalidInputError(
            f"{name} has {height} × {width} pixels, the encoder was fitted on "
            f"{shape.height} × {shape.width}. Set `image_size` to resize images.",
            parameter="image_size",
        )
    return resize(images, (shape.height, shape.width))
