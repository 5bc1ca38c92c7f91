"""Two images in one, and labels in the same proportion: MixUp and CutMix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn._validation import Limits, check_limits
from attnknn.errors import InvalidSettingError
from attnknn.training.augment.chance import uniform
from attnknn.training.augment.moves import box


@dataclass(frozen=True)
class Mixing:
    """How often and how strongly images are mixed; never by default.

    Parameters
    ----------
    mixup, cutmix : share of the batches that are mixed this way; together at most one
    strength : 1 draws the proportions evenly from 0 to 1; less, and most images stay nearly whole
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    strength: float = 1.0

    def __post_init__(self) -> None:
        share = Limits(least=0)
        check_limits(self, {"mixup": share, "cutmix": share, "strength": Limits(above=0)})
        if self.mixup + self.cutmix > 1:
            raise InvalidSettingError(
                f"`mixup` and `cutmix` must add up to at most 1, got {self.mixup:g} and "
                f"{self.cutmix:g}: they are shares of the batches."
            )


@dataclass(frozen=True)
class Mixed:
    """Mixed images and everything a loss needs to know about them.

    Parameters
    ----------
    images : (B, C, H, W)
    labels : shares of the classes (B, C); each row sums to one
    partners : place in the batch of the image that was mixed in (B,)
    shares : how much of each image is its own (B,); the rest is its partner's
    """

    images: Tensor
    labels: Tensor
    partners: Tensor
    shares: Tensor


def mix(images: Tensor, labels: Tensor, mixing: Mixing, generator: torch.Generator) -> Mixed:
    """A batch mixed in one of the ways of `mixing`, or as it is.

    Parameters
    ----------
    labels : shares of the classes (B, C); `one_hot` makes them of label numbers
    """
    drawn = torch.rand((), generator=generator, device=generator.device).item()
    if drawn < mixing.mixup:
        return mixup(images, labels, mixing.strength, generator)
    if drawn < mixing.mixup + mixing.cutmix:
        return cutmix(images, labels, mixing.strength, generator)
    places = torch.arange(len(images), device=images.device)
    return Mixed(images, labels, places, torch.ones(len(images), device=images.device))


def mixup(images: Tensor, labels: Tensor, strength: float, generator: torch.Generator) -> Mixed:
    """Each image blended with a partner: share · own + (1 − share) · partner's.

    >>> images, labels = torch.tensor([0.0, 1.0])[:, None, None, None], torch.eye(2)
    >>> mixed = mixup(images, labels, 1.0, torch.Generator().manual_seed(0))
    >>> torch.allclose(mixed.labels[:, 1], mixed.images.flatten())  # the second image is all ones
    True
    """
    partners, shares = _pairs(images, strength, generator)
    own = shares.to(images.dtype)[:, None, None, None]
    blended = own * images + (1 - own) * images[partners]
    return Mixed(blended, _blend(labels, partners, shares), partners, shares)


def cutmix(images: Tensor, labels: Tensor, strength: float, generator: torch.Generator) -> Mixed:
    """Each image with a box of its partner pasted in; labels go by the pasted area itself.

    The box has its middle anywhere, so it may be cut off at an edge: counted are the pixels that
    were pasted, not those that were drawn.
    """
    partners, drawn = _pairs(images, strength, generator)
    height, width = images.shape[2:]
    side = (1 - drawn).sqrt()
    is_pasted = (
        _extent(side, height, images, generator)[:, :, None]
        & _extent(side, width, images, generator)[:, None, :]
    )  # (B, H, W)
    shares = 1 - is_pasted.sum(dim=(1, 2)) / (height * width)
    pasted = torch.where(is_pasted[:, None], images[partners], images)
    return Mixed(pasted, _blend(labels, partners, shares), partners, shares)


def one_hot(labels: Tensor, n_classes: int) -> Tensor:
    """Label numbers (B,) as shares of the classes (B, C)."""
    return F.one_hot(labels, n_classes).to(torch.get_default_dtype())


def _pairs(images: Tensor, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A partner for each image, and the share that stays its own, drawn from Beta(s, s)."""
    partners = torch.randperm(len(images), generator=generator, device=generator.device)
    seed = torch.randint(2**62, (), generator=generator, device=generator.device).item()
    shares = np.random.default_rng(int(seed)).beta(strength, strength, size=len(images))
    return partners.to(images.device), torch.from_numpy(shares).float().to(images.device)


def _extent(side: Tensor, size: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """Which places (B, size) a box of this share of the side covers, its middle anywhere."""
    middle = uniform(images, 0.0, float(size), generator)
    half = side * size / 2
    return box((middle - half).round(), (middle + half).round(), size)


def _blend(labels: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    own = shares.to(labels.dtype)[:, None]
    return own * labels + (1 - own) * labels[partners]
