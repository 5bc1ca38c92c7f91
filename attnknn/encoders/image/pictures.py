"""One image: what it is by a look at its header, and its pixels."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn._optional import require
from attnknn.errors import InvalidInputError

Pixels = NDArray[np.uint8]
GRAY, COLOR = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
ORIENTATION, TURNED = 274, (5, 6, 7, 8)  # EXIF's tag, and its values that swap the sides
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, IndexError)  # what PIL raises


@dataclass(frozen=True)
class Look:
    """Channels, height and width of one image."""

    channels: int
    height: int
    width: int


def look_at(item: Any, name: str) -> Look:
    """What an image is; of a file only the header is read.

    Parameters
    ----------
    item : a path, a PIL image, or an array (H, W) or (H, W, 3) of uint8
    name : what errors call it
    """
    if isinstance(item, np.ndarray):
        return Look(*_from_array(item, name).shape)
    with _opened(item, name) as image:
        width, height = image.size
        try:
            is_turned = image.getexif().get(ORIENTATION) in TURNED
        except UNREADABLE as error:
            raise _unreadable(name, error) from error
        if is_turned:
            width, height = height, width
        return Look(1 if image.mode in GRAY else 3, height, width)


def read_picture(item: Any, name: str) -> Pixels:
    """The pixels (C, H, W) of an image, upright, with one or three channels."""
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
    """Images (n, C, H, W) in another size, without jagged edges when they become smaller.

    >>> resize(np.full((1, 1, 4, 4), 7, dtype=np.uint8), (2, 2)).tolist()
    [[[[7, 7], [7, 7]]]]
    """
    import torch
    from torch.nn import functional as F

    numbers = torch.from_numpy(np.ascontiguousarray(images)).float()
    resized = F.interpolate(numbers, size, mode="bilinear", align_corners=False, antialias=True)
    return resized.round().clamp(0, 255).byte().numpy()


def _opened(item: Any, name: str) -> Any:
    """An open PIL image; closed at the end of a `with` if it came from a file."""
    if not isinstance(item, str | os.PathLike) and not hasattr(item, "getexif"):
        raise InvalidInputError(
            f"Every row must be an image or the path of one, {name} is {str(item)[:40]!r} "
            f"({type(item).__name__})."
        )
    pil = require("PIL.Image", extra="images", needed_by="Reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pil.DecompressionBombWarning)
            image = item.copy() if hasattr(item, "getexif") else pil.open(item)
    except (OSError, ValueError, SyntaxError, pil.DecompressionBombError) as error:
        raise _unreadable(name, error) from error
    except pil.DecompressionBombWarning as error:
        raise _unreadable(name, error) from error
    if image.mode not in (*GRAY, *COLOR):
        image.close()
        raise InvalidInputError(
            f"Images must have 8 bits per channel, gray or color; {name} is of the kind "
            f"{image.mode!r}. Convert it."
        )
    return image


def _refuse_transparent(image: Any, name: str) -> None:
    """Behind transparent pixels stands any color at all: nobody sees what the encoder would."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
        if lowest < 255:
            raise InvalidInputError(
                f"{name} is transparent in parts. Put it on a background, and save it without."
            )


def _from_array(item: NDArray[Any], name: str) -> Pixels:
    if item.dtype == np.uint8 and item.ndim == 2:
        return item[None]
    if item.dtype == np.uint8 and item.ndim == 3 and item.shape[2] in (1, 3):
        return item.transpose(2, 0, 1)
    raise InvalidInputError(
        f"Images must be uint8 of the shape (H, W) or (H, W, 3), {name} is {item.dtype} of the "
        f"shape {item.shape}."
    )


def _unreadable(name: str, error: Exception) -> InvalidInputError:
    if isinstance(error, FileNotFoundError):
        return InvalidInputError(f"There is no image at {name}.")
    if isinstance(error, IsADirectoryError):
        return InvalidInputError(f"{name} is a folder, not an image.")
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return InvalidInputError(f"{name} cannot be read as an image: {reason}")
