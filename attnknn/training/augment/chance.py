"""Random numbers from a generator, moved to where the images are."""

from __future__ import annotations

import torch
from torch import Tensor


def uniform(images: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """One number per image (B,) in [low, high), on the device of the images."""
    drawn = torch.rand(len(images), generator=generator, device=generator.device)
    return (low + (high - low) * drawn).to(images.device)


def whole(images: Tensor, low: int, high: int, generator: torch.Generator) -> Tensor:
    """One integer per image (B,) in low .. high, both ends included."""
    size = (len(images),)
    drawn = torch.randint(low, high + 1, size, generator=generator, device=generator.device)
    return drawn.to(images.device)
