"""Test images that are not what was trained on: noisy, blurred, or pale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from attnknn._validation import check_choice
from attnknn.errors import InvalidInputError, InvalidSettingError

Images = NDArray[np.uint8]
Seed = int | np.random.Generator | None
SEVERITIES = range(1, 6)
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)  # standard deviation, pixels between 0 and 1
BLUR = (0.4, 0.6, 0.8, 1.1, 1.5)  # width of the bell in pixels, of images 32 pixels high
CONTRAST = (0.75, 0.6, 0.45, 0.3, 0.15)  # what is left of the distance to the mean


def shifted(images: Images, kind: str, severity: int, *, random_state: Seed = None) -> Images:
    """New images of the same shape, damaged.

    Parameters
    ----------
    images : uint8, (n, H, W), (n, H, W, 3) or (n, 3, H, W)
    kind : 'noise' adds Gaussian noise, 'blur' mixes neighboring pixels, 'contrast' moves every
        pixel toward the mean of its image
    severity : 1 (hardly seen) to 5 (hard for people too); of 'blur' it grows with the image

    Examples
    --------
    >>> images = np.array([[[0, 200], [0, 200]]], dtype=np.uint8)
    >>> shifted(images, "contrast", 3)
    array([[[ 55, 145],
            [ 55, 145]]], dtype=uint8)
    """
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InvalidInputError(
            "`images` must be uint8 of the shape (n, H, W), (n, H, W, 3) or (n, 3, H, W)."
        )
    check_choice("kind", kind, SHIFTS)
    if not isinstance(severity, int) or severity not in SEVERITIES:
        raise InvalidSettingError(f"`severity` must be an integer from 1 to 5, got {severity!r}.")
    pixels = images.astype(np.float32) / np.float32(255)
    changed = SHIFTS[kind](pixels, severity - 1, np.random.default_rng(random_state))
    return np.clip(np.round(255 * changed), 0, 255).astype(np.uint8)


def _noisy(pixels: NDArray[Any], place: int, rng: np.random.Generator) -> NDArray[Any]:
    return pixels + NOISE[place] * rng.standard_normal(pixels.shape, dtype=np.float32)


def _blurred(pixels: NDArray[Any], place: int, _: np.random.Generator) -> NDArray[Any]:
    rows, columns = _axes(pixels.shape)
    widths = [0.0] * pixels.ndim
    for axis in (rows, columns):
        widths[axis] = BLUR[place] * pixels.shape[axis] / 32
    return gaussian_filter(pixels, widths, mode="reflect")


def _pale(pixels: NDArray[Any], place: int, _: np.random.Generator) -> NDArray[Any]:
    mean = pixels.mean(axis=tuple(range(1, pixels.ndim)), keepdims=True)
    return mean + np.float32(CONTRAST[place]) * (pixels - mean)


def _axes(shape: tuple[int, ...]) -> tuple[int, int]:
    """Where the rows and columns of pixels are."""
    if len(shape) == 3 or shape[3] in (1, 3):
        return 1, 2
    return 2, 3


SHIFTS: dict[str, Callable[[NDArray[Any], int, np.random.Generator], NDArray[Any]]] = {
    "noise": _noisy,
    "blur": _blurred,
    "contrast": _pale,
}
