"""From images to embeddings of unit length: normalization, a network, a projection head."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn.errors import InvalidInputError


class EmbeddingNetwork(nn.Module):
    """Images (B, C, H, W) with numbers from 0 to 1 become embeddings (B, D) of unit length.

    Parameters
    ----------
    network : gives features (B, `width`) of normalized images
    embed_dim : with a number, features go through a projection head to so many; None takes the
        features as they are
    is_frozen : the network stays as it is, and in the mode of prediction; the head is trained
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        channels: int,
        width: int,
        embed_dim: int | None,
        is_frozen: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        self.projection = None if embed_dim is None else projection_head(width, embed_dim)
        self.is_frozen = is_frozen
        self.features_width, self.width = width, embed_dim or width
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))
        if is_frozen:
            network.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return self.embed(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """What the network sees in images (B, C, H, W): (B, width)."""
        features = self.network((images - self.mean) / self.std)
        if features.ndim != 2 or features.shape[1] != self.features_width:
            raise InvalidInputError(
                f"The network must give {self.features_width} numbers per image, "
                f"(B, {self.features_width}), got the shape {tuple(features.shape)}."
            )
        return features

    def embed(self, features: Tensor) -> Tensor:
        """Features (B, width) as embeddings (B, D) of unit length."""
        projected = features if self.projection is None else self.projection(features)
        return F.normalize(projected.float(), dim=1)

    def train(self, mode: bool = True) -> Self:
        """Batch norms of a frozen network must not move either."""
        super().train(mode)
        if self.is_frozen:
            self.network.eval()
        return self


def projection_head(width: int, embed_dim: int) -> nn.Sequential:
    """Linear, LayerNorm, GELU, linear."""
    return nn.Sequential(
        nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, embed_dim)
    )
