"""A fast network of nine layers for small images: one that whitens, seven that learn, the head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnknn.encoders.image.networks.activations import ACTIVATIONS
from attnknn.encoders.image.networks.convolution import Convolution
from attnknn.encoders.image.networks.whitening import Whitening

NORM_LR_SCALE = 0.4  # a short training has few batches: their statistics must follow at once


class ResNet9(nn.Module):
    """Images (B, C, H, W) become features (B, width of the last stage).

    Whitening, then three stages that each halve the image; the last one is residual. Convolutions
    start as the identity on the channels they can pass on, and norms have no scale of their own:
    the next convolution could undo it.
    """

    def __init__(self, channels: int, widths: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.whitening = Whitening(channels)
        self.activation = ACTIVATIONS[activation]()
        inputs = (self.whitening.out_channels, *widths[:-1])
        self.stages = nn.Sequential(
            *(
                Stage(n_in, n_out, activation, is_residual=place == len(widths) - 1)
                for place, (n_in, n_out) in enumerate(zip(inputs, widths, strict=True))
            )
        )
        self.width = widths[-1]

    def forward(self, images: Tensor) -> Tensor:
        seen = self.activation(self.whitening(images))
        return self.stages(seen).amax(dim=(2, 3))


class Stage(nn.Module):
    """A convolution with pooling, one more, and in the residual stage a third added to the first.

    (B, n_in, H, W) gives (B, n_out, H // 2, W // 2).
    """

    def __init__(self, n_in: int, n_out: int, activation: str, *, is_residual: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(_convolution(n_in, n_out), nn.MaxPool2d(2), _norm(n_out))
        self.second = nn.Sequential(_convolution(n_out, n_out), _norm(n_out))
        self.third = (
            nn.Sequential(_convolution(n_out, n_out), _norm(n_out)) if is_residual else None
        )
        self.activation = ACTIVATIONS[activation]()

    def forward(self, images: Tensor) -> Tensor:
        halved = self.activation(self.first(images))
        seen = self.activation(self.second(halved))
        if self.third is None:
            return seen
        return self.activation(self.third(seen) + halved)


def _convolution(n_in: int, n_out: int) -> Convolution:
    layer = Convolution(n_in, n_out)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[: min(n_in, n_out)])
    return layer


def _norm(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, momentum=NORM_LR_SCALE)
    norm.weight.requires_grad_(False)
    return norm
