"""Networks for small images by name, and the embedding network around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn.encoders.image.winograd import convolve
from attnknn.errors import InvalidInputError, InvalidSettingError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "celu": lambda: nn.CELU(alpha=0.3),
    "relu": nn.ReLU,
}


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


__all__ = ["ACTIVATIONS", "NETWORKS", "Plan", "build_network"]


@dataclass(frozen=True)
class Plan:
    """A network that can be built by name.

    Parameters
    ----------
    widths : channels of each stage unless others are asked for
    smallest : pixels that the shorter side of an image must have
    """

    build: Callable[[int, tuple[int, ...], str], nn.Module]
    widths: tuple[int, ...]
    activation: str
    smallest: int


NETWORKS: dict[str, Plan] = {
    "resnet9": Plan(ResNet9, (64, 256, 256), "gelu", 9),
    "resnet18": Plan(ResNet.of_18, (64, 128, 256, 512), "relu", 8),
    "resnet50": Plan(ResNet.of_50, (64, 128, 256, 512), "relu", 8),
}


def build_network(
    name: str, channels: int, widths: tuple[int, ...] | None, activation: str | None
) -> nn.Module:
    """The network called `name`, with widths and activation of its plan unless others are given.

    >>> import torch
    >>> network = build_network("resnet9", 3, (8, 16, 16), "celu")
    >>> network(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 16])
    """
    plan = NETWORKS[name]
    if widths is not None and len(widths) != len(plan.widths):
        raise InvalidSettingError(
            f"`widths` of {name!r} must be {len(plan.widths)} numbers, got {widths}."
        )
    return plan.build(channels, widths or plan.widths, activation or plan.activation)


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
