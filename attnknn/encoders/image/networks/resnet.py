"""Residual networks of 18 and 50 layers with a first layer for small images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from torch import Tensor, nn

from attnknn.encoders.image.networks.activations import ACTIVATIONS

EXPANSION = 4  # of the bottleneck: its last layer is so many times wider


class ResNet(nn.Module):
    """Images (B, C, H, W) become features (B, width): the mean over places of the last stage.

    The first layer is 3 × 3 and keeps the size, where networks for photographs quarter it.
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int],
        depths: Sequence[int],
        activation: str,
        *,
        is_bottleneck: bool,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_unit(channels, widths[0], 3), ACTIVATIONS[activation]())
        layers_of = _bottleneck if is_bottleneck else _plain
        n_in, blocks = widths[0], []
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            n_out = width * (EXPANSION if is_bottleneck else 1)
            for place in range(depth):
                stride = 2 if stage > 0 and place == 0 else 1
                layers = layers_of(n_in, width, stride, activation)
                blocks.append(Block(layers, n_in, n_out, stride, activation))
                n_in = n_out
        self.blocks = nn.Sequential(*blocks)
        self.width = n_in

    @classmethod
    def of_18(cls, channels: int, widths: tuple[int, ...], activation: str) -> Self:
        """Eight blocks of two layers."""
        return cls(channels, widths, (2, 2, 2, 2), activation, is_bottleneck=False)

    @classmethod
    def of_50(cls, channels: int, widths: tuple[int, ...], activation: str) -> Self:
        """Sixteen blocks of three layers."""
        return cls(channels, widths, (3, 4, 6, 3), activation, is_bottleneck=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.stem(images)).mean(dim=(2, 3))


class Block(nn.Module):
    """Some layers, and what went into them added to what comes out."""

    def __init__(
        self, layers: list[nn.Module], n_in: int, n_out: int, stride: int, activation: str
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(*_shortcut(n_in, n_out, stride))
        self.activation = ACTIVATIONS[activation]()

    def forward(self, images: Tensor) -> Tensor:
        return self.activation(self.layers(images) + self.shortcut(images))


def _shortcut(n_in: int, n_out: int, stride: int) -> list[nn.Module]:
    """Nothing, or a mean over what a stride skips and a change of width.

    A convolution of 1 × 1 with a stride would see a quarter of the places, and torch 2.13 writes
    beyond its memory in the backward pass of such a one with few channels laid out last.
    """
    if n_in == n_out and stride == 1:
        return []
    pooled: list[nn.Module] = [nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)]
    return [*(pooled if stride > 1 else []), *_unit(n_in, n_out, 1)]


def _plain(n_in: int, width: int, stride: int, activation: str) -> list[nn.Module]:
    between = ACTIVATIONS[activation]()
    return [*_unit(n_in, width, 3, stride), between, *_unit(width, width, 3)]


def _bottleneck(n_in: int, width: int, stride: int, activation: str) -> list[nn.Module]:
    return [
        *_unit(n_in, width, 1),
        ACTIVATIONS[activation](),
        *_unit(width, width, 3, stride),
        ACTIVATIONS[activation](),
        *_unit(width, width * EXPANSION, 1),
    ]


def _unit(n_in: int, n_out: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution and its norm."""
    layer = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return [layer, nn.BatchNorm2d(n_out)]
