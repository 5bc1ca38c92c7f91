"""Networks for small images by name, and the embedding network around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn.encoders.image.standard_resnet import EXPANSION, StandardResNet
from attnknn.encoders.image.winograd import convolve
from attnknn.errors import InvalidInputError, InvalidSettingError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "celu": lambda: nn.CELU(alpha=0.3),
    "relu": nn.ReLU,
}


MIN_CHANNELS = 64  # with fewer, the transforms of images cost more than they save
MIN_IMAGES = 32  # with fewer, the transforms of filters do


class Convolution(nn.Conv2d):
    """A 3 × 3 convolution with stride 1, padding 1 and no bias, by Winograd in training.

    Predictions always use torch's convolution, so that they do not depend on the batch.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, 3, padding=1, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and suits_winograd(input, self.weight):
            return convolve(input, self.weight)
        return super().forward(input)


def suits_winograd(images: Tensor, weight: Tensor) -> bool:
    """Whether `convolve` is faster than torch's convolution, and as exact."""
    return (
        not torch.compiler.is_compiling()
        and images.device.type == "cpu"
        and images.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.is_grad_enabled()
        and len(images) >= MIN_IMAGES
        and min(weight.shape[:2]) >= MIN_CHANNELS
    )


SIDE = 2
FLOOR = 5e-4  # added to the variances: axes with little variance are mostly noise


class Whitening(nn.Conv2d):
    """Whitening of 2 × 2 patches: their coordinates on the main axes, with both signs.

    The filters are computed from images, only the bias is learned. Both signs are needed because
    the following activation cuts off one of them.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 2 * channels * SIDE**2, SIDE)
        self.weight.requires_grad_(False)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def measure(self, images: Tensor) -> None:
        """Compute the filters from the patches of normalized images (n, C, H, W)."""
        filters = whitening_filters(images)
        with torch.no_grad():
            self.weight.copy_(torch.cat([filters, -filters]))


def whitening_filters(images: Tensor) -> Tensor:
    """Filters (4C, C, 2, 2) with uncorrelated outputs of variance near one over all patches.

    >>> images = torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> outputs = F.conv2d(images, whitening_filters(images)).transpose(0, 1).flatten(1)
    >>> torch.allclose(torch.cov(outputs), torch.eye(4), atol=0.02)
    True
    """
    channels = images.shape[1]
    patches = F.unfold(images, SIDE).transpose(1, 2).reshape(-1, channels * SIDE**2).double()
    variances, axes = torch.linalg.eigh(torch.cov(patches.T))
    filters = axes.T / (variances.clamp_min(0) + FLOOR).sqrt()[:, None]
    return filters.flip(0).reshape(-1, channels, SIDE, SIDE).to(images.dtype)


NORM_MOMENTUM = 0.4  # a short training has few batches to estimate running statistics


class ResNet9(nn.Module):
    """A fast network of nine layers from small images (B, C, H, W) to features (B, width).

    Whitening, then three stages that each halve the image; the last one is residual. Convolutions
    are initialized as the identity, and norms have no scale, which the next convolution could undo.
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
        whitened = self.activation(self.whitening(images))
        return self.stages(whitened).amax(dim=(2, 3))


class Stage(nn.Module):
    """Convolution and pooling, a second convolution, and in a residual stage a third one.

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
        hidden = self.activation(self.second(halved))
        if self.third is None:
            return hidden
        return self.activation(self.third(hidden) + halved)


def _convolution(n_in: int, n_out: int) -> Convolution:
    layer = Convolution(n_in, n_out)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[: min(n_in, n_out)])
    return layer


def _norm(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, momentum=NORM_MOMENTUM)
    norm.weight.requires_grad_(False)
    return norm


DEPTHS_18, DEPTHS_50 = (2, 2, 2, 2), (3, 4, 6, 3)  # blocks of each stage


class ResNet(nn.Module):
    """ResNet-18 or -50 from small images (B, C, H, W) to features (B, width).

    The first layer is 3 × 3 and keeps the size, where networks for photographs reduce it to a
    quarter.
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
        return cls(channels, widths, DEPTHS_18, activation, is_bottleneck=False)

    @classmethod
    def of_50(cls, channels: int, widths: tuple[int, ...], activation: str) -> Self:
        """Sixteen blocks of three layers."""
        return cls(channels, widths, DEPTHS_50, activation, is_bottleneck=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.stem(images)).mean(dim=(2, 3))

    def translate(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of a file; those of torchvision belong to other shortcuts."""
        if "layer1.0.conv1.weight" in tensors:
            raise InvalidInputError(
                "The weights are those of a ResNet as in torchvision, whose shortcuts have no "
                "average pooling. Use `network='resnet18-cifar'` or `'resnet50-cifar'`."
            )
        return tensors


class Block(nn.Module):
    """A residual block."""

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
    """Identity, or average pooling for a stride and a change of width.

    A 1 × 1 convolution with a stride would ignore three quarters of the pixels, and torch 2.13
    writes out of bounds in its backward pass with few channels in channels-last layout.
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


def _standard_18(channels: int, widths: tuple[int, ...], activation: str) -> StandardResNet:
    make = ACTIVATIONS[activation]
    return StandardResNet(channels, widths, DEPTHS_18, make, is_bottleneck=False)


def _standard_50(channels: int, widths: tuple[int, ...], activation: str) -> StandardResNet:
    make = ACTIVATIONS[activation]
    return StandardResNet(channels, widths, DEPTHS_50, make, is_bottleneck=True)


@dataclass(frozen=True)
class NetworkPlan:
    """How to build a network by name, its defaults, and the smallest side of an image."""

    build: Callable[[int, tuple[int, ...], str], nn.Module]
    widths: tuple[int, ...]
    activation: str
    min_side: int


NETWORKS: dict[str, NetworkPlan] = {
    "resnet9": NetworkPlan(ResNet9, (64, 256, 256), "gelu", 9),
    "resnet18": NetworkPlan(ResNet.of_18, (64, 128, 256, 512), "relu", 8),
    "resnet50": NetworkPlan(ResNet.of_50, (64, 128, 256, 512), "relu", 8),
    "resnet18-cifar": NetworkPlan(_standard_18, (64, 128, 256, 512), "relu", 8),
    "resnet50-cifar": NetworkPlan(_standard_50, (64, 128, 256, 512), "relu", 8),
}


def build_network(
    name: str, channels: int, widths: tuple[int, ...] | None, activation: str | None
) -> nn.Module:
    """The network `name`, with its default widths and activation unless others are given.

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
    """A network with normalization before and a projection head behind it.

    Images (B, C, H, W) with values from 0 to 1 become embeddings (B, D) of unit length.

    Parameters
    ----------
    network : from normalized images to features (B, `width`)
    embed_dim : output size of the projection head; None has no head
    is_frozen : whether only the head is trained, with the network in evaluation mode

    `pretrained` names the parameters of `network` that hold pretrained weights.
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
        self.pretrained: frozenset[str] = frozenset()
        self.features_width, self.width = width, embed_dim or width
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))
        if is_frozen:
            network.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return self.embed(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Features (B, width) of images (B, C, H, W)."""
        features = self.network((images - self.mean) / self.std)
        if features.ndim != 2 or features.shape[1] != self.features_width:
            raise InvalidInputError(
                f"The network must return (B, {self.features_width}), "
                f"got shape {tuple(features.shape)}."
            )
        return features

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of unit length for features (B, width)."""
        projected = features if self.projection is None else self.projection(features)
        return F.normalize(projected.float(), dim=1)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen network stays in evaluation mode, for its batch norms."""
        super().train(mode)
        if self.is_frozen:
            self.network.eval()
        return self


def projection_head(width: int, embed_dim: int) -> nn.Sequential:
    """Linear, LayerNorm, GELU, linear."""
    return nn.Sequential(
        nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, embed_dim)
    )


def layer_depths(network: nn.Module) -> dict[str, int]:
    """The stage of every parameter, counted from the output, where the last stage is 0.

    A stage is a block of the network; layers beside the blocks form stages with their neighbors. A
    network that knows better has a method `layer_depths` of its own.

    >>> network = build_network("resnet9", 3, (8, 16, 16), None)
    >>> depths = layer_depths(network)
    >>> [depths[name] for name in ("whitening.bias", "stages.0.first.0.weight")]
    [3, 2]
    """
    known: Callable[[], dict[str, int]] | None = getattr(network, "layer_depths", None)
    if known is not None:
        return known()
    stages: list[list[str]] = []
    is_open = False  # whether single layers belong to the last stage
    for prefix, part in _parts(network):
        names = [f"{prefix}.{name}" for name, _ in part.named_parameters()]
        is_layer = not any(part.children())
        if is_layer and is_open:
            stages[-1] += names
        elif names:
            stages.append(names)
            is_open = is_layer
    own = [name for name, _ in network.named_parameters(recurse=False)]
    depths = {name: len(stages) - 1 - i for i, names in enumerate(stages) for name in names}
    return depths | dict.fromkeys(own, max(0, len(stages) - 1))


def _parts(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Children by name; a sequence of blocks counts as its blocks."""
    for name, child in network.named_children():
        if isinstance(child, nn.Sequential) and any(any(part.children()) for part in child):
            yield from ((f"{name}.{place}", part) for place, part in child.named_children())
        else:
            yield name, child
