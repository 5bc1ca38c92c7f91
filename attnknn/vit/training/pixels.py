"""Images as a model sees them: of one size, around zero, changed at random while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attnknn.training.augmentation import Augmentation, augment

LOOKED_AT = 10_000  # images whose pixels give mean and spread


class Images(Protocol):
    """n images that can be read in parts."""

    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images at `rows`, (B, C, H, W)."""


@dataclass(frozen=True)
class Pixels:
    """What becomes of images before a model sees them.

    Parameters
    ----------
    size
        (height, width) to which they are resized.
    mean, std
        Of each channel, on a scale from 0 to 1; pixels are moved and scaled by them.
    noise
        Standard deviation of what is added to each pixel on that scale.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    noise: float = 0.0

    @classmethod
    def like(cls, images: Images, size: tuple[int, int], noise: float = 0.0) -> Pixels:
        """With the mean and spread of (at most ten thousand, evenly spread) images."""
        every = max(1, -(-len(images) // LOOKED_AT))
        rows = np.arange(0, len(images), every)
        first = images.take(rows[:1]).shape[1]  # channels
        total, squares, count = np.zeros(first), np.zeros(first), 0
        for part in np.array_split(rows, max(1, len(rows) // 256)):
            pixels = images.take(part).astype(np.float64) / 255
            total += pixels.sum((0, 2, 3))
            squares += (pixels**2).sum((0, 2, 3))
            count += pixels.size // first
        mean = total / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 1e-8))
        return cls(size, tuple(mean.tolist()), tuple(spread.tolist()), noise)

    def seen(
        self,
        images: Tensor,
        generator: torch.Generator,
        *,
        is_augmented: bool = False,
        is_mirrored: bool = True,
    ) -> Tensor:
        """uint8 images (B, C, H, W) as a model sees them, (B, C, *size).

        If they are augmented they are shifted, and half of them may be mirrored.
        """
        pixels = images.float() / 255
        if tuple(pixels.shape[2:]) != self.size:
            pixels = F.interpolate(
                pixels, self.size, mode="bilinear", align_corners=False, antialias=True
            )
        if is_augmented:
            frame = max(1, min(self.size) // 8)
            recipe = Augmentation(horizontal_flip="random" if is_mirrored else "none", crop=frame)
            pixels = augment(pixels, recipe, generator)
        if self.noise:
            drawn = torch.randn(pixels.shape, generator=generator, device=generator.device)
            pixels = pixels + self.noise * drawn.to(pixels.device)
        return (pixels - self._channels(self.mean, pixels)) / self._channels(self.std, pixels)

    @staticmethod
    def _channels(values: Sequence[float], like: Tensor) -> Tensor:
        return like.new_tensor(values)[:, None, None]

    def state(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "size": list(self.size),
            "mean": list(self.mean),
            "std": list(self.std),
            "noise": self.noise,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Pixels:
        """What `state` gave."""
        size, mean, std = (tuple(state[name]) for name in ("size", "mean", "std"))
        return cls(size, mean, std, state["noise"])
