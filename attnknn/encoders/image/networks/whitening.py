"""A first layer that sees small patches along their main axes, each of variance one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 2
FLOOR = 5e-4  # added to the variances: axes that hardly vary would be mostly noise


class Whitening(nn.Conv2d):
    """Patches of 2 × 2 pixels become their whitened coordinates and the negatives of those.

    The filters are measured, not learned; the bias is learned. Both signs are given because the
    activation that follows would cut one of them off.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 2 * channels * SIDE**2, SIDE)
        self.weight.requires_grad_(False)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def measure(self, images: Tensor) -> None:
        """Set the filters by the patches of normalized images (n, C, H, W)."""
        filters = whitening_filters(images)
        with torch.no_grad():
            self.weight.copy_(torch.cat([filters, -filters]))


def whitening_filters(images: Tensor) -> Tensor:
    """Filters (4C, C, 2, 2) whose answers over all patches are uncorrelated, of variance near one.

    >>> images = torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> answers = F.conv2d(images, whitening_filters(images)).transpose(0, 1).flatten(1)
    >>> torch.allclose(torch.cov(answers), torch.eye(4), atol=0.02)
    True
    """
    channels = images.shape[1]
    patches = F.unfold(images, SIDE).transpose(1, 2).reshape(-1, channels * SIDE**2).double()
    variances, axes = torch.linalg.eigh(torch.cov(patches.T))
    filters = axes.T / (variances.clamp_min(0) + FLOOR).sqrt()[:, None]
    return filters.flip(0).reshape(-1, channels, SIDE, SIDE).to(images.dtype)
