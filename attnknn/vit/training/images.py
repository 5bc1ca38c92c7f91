"""Images as the input of a model: resized, normalized, and augmented in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attnknn.training.augmentation import Augmentation, augment

MAX_SAMPLED = 10_000  # images from which mean and standard deviation are computed


class ImageSource(Protocol):
    """Images that are read in batches: any object with a length and a `take` method."""

    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images at `rows`, (B, C, H, W)."""


Images = ImageSource | NDArray[np.uint8]


@dataclass(frozen=True)
class ImagePreprocessor:
    """Resize and normalize images, with optional noise and augmentation.

    Parameters
    ----------
    size : (int, int)
        (height, width) of the output.
    mean, std : tuple of float
        Mean and standard deviation of each channel, for pixels between 0 and 1.
    noise : float, default=0.0
        Standard deviation of Gaussian noise on pixels between 0 and 1.

    Examples
    --------
    >>> preprocessor = ImagePreprocessor((4, 4), mean=(0.5,), std=(0.25,))
    >>> images = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    >>> preprocessor.transform(images, torch.Generator()).unique()
    tensor([2.])
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    noise: float = 0.0

    @classmethod
    def from_images(
        cls, images: Images, size: tuple[int, int], noise: float = 0.0
    ) -> ImagePreprocessor:
        """Build a preprocessor with the mean and standard deviation of some images.

        Parameters
        ----------
        images : ndarray of uint8 of shape (n_images, C, H, W), or ImageSource
            Training images; at most ten thousand, evenly spaced, are read. An `ImageSource` is any
            object with a length and a method `take(rows)` that reads some of the images.
        size : (int, int)
            (height, width) of the output.
        noise : float, default=0.0
            Standard deviation of noise.

        Returns
        -------
        ImagePreprocessor
            The preprocessor.
        """
        every = max(1, -(-len(images) // MAX_SAMPLED))
        rows = np.arange(0, len(images), every)
        n_channels = take_images(images, rows[:1]).shape[1]
        total, squares, count = np.zeros(n_channels), np.zeros(n_channels), 0
        for part in np.array_split(rows, max(1, len(rows) // 256)):
            pixels = take_images(images, part).astype(np.float64) / 255
            total += pixels.sum((0, 2, 3))
            squares += (pixels**2).sum((0, 2, 3))
            count += pixels.size // n_channels
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 1e-8))
        return cls(size, tuple(mean.tolist()), tuple(std.tolist()), noise)

    def transform(
        self,
        images: Tensor,
        generator: torch.Generator,
        *,
        with_augmentation: bool = False,
        with_mirroring: bool = True,
    ) -> Tensor:
        """Convert uint8 images to the input of a model.

        Parameters
        ----------
        images : Tensor of shape (B, C, H, W)
            Images of type uint8.
        generator : torch.Generator
            Source of noise and augmentation.
        with_augmentation : bool, default=False
            Whether to crop images at random out of a frame that is an eighth wider.
        with_mirroring : bool, default=True
            Whether augmentation mirrors half of the images.

        Returns
        -------
        Tensor of shape (B, C, *size)
            Normalized images.
        """
        pixels = images.float() / 255
        if tuple(pixels.shape[2:]) != self.size:
            pixels = F.interpolate(
                pixels, self.size, mode="bilinear", align_corners=False, antialias=True
            )
        if with_augmentation:
            frame = max(1, min(self.size) // 8)
            recipe = Augmentation("random" if with_mirroring else "none", crop=frame)
            pixels = augment(pixels, recipe, generator)
        if self.noise:
            drawn = torch.randn(pixels.shape, generator=generator, device=generator.device)
            pixels = pixels + self.noise * drawn.to(pixels.device)
        mean, std = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels - mean) / std


def take_images(images: Images, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The images at `rows`, (B, C, H, W)."""
    return images[rows] if isinstance(images, np.ndarray) else images.take(rows)


def read_images(images: Images, rows: Tensor) -> Tensor:
    """The images at `rows` as a uint8 tensor (B, C, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(take_images(images, rows.numpy())))
