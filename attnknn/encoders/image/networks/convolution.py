"""A convolution of 3 × 3 that trains by few multiplications where that is faster."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnknn.encoders.image.networks.winograd import convolve

FEWEST_CHANNELS = 64  # with fewer, the ways to the points and back cost more than they save
FEWEST_IMAGES = 32  # with fewer, those of the filters do


class Convolution(nn.Conv2d):
    """3 × 3, stride 1, the size kept, no bias; the parameter is that of `nn.Conv2d`.

    The plain way is the reference. Predictions always go it, so that they depend neither on the
    batch nor on the machine more than torch's own do.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, 3, padding=1, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and suits_winograd(input, self.weight):
            return convolve(input, self.weight)
        return super().forward(input)


def suits_winograd(images: Tensor, weight: Tensor) -> bool:
    """Whether `convolve` is faster than torch's convolution, and as good."""
    return (
        not torch.compiler.is_compiling()
        and images.device.type == "cpu"
        and images.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.is_grad_enabled()
        and len(images) >= FEWEST_IMAGES
        and min(weight.shape[:2]) >= FEWEST_CHANNELS
    )
