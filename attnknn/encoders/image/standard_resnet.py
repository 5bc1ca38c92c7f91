"""ResNets with the layers and tensor names of torchvision, and a first layer for small images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

Activation = Callable[[], nn.Module]
EXPANSION = 4  # widening of the last layer of a bottleneck
STEM, PHOTOGRAPH_SIDE = "conv1.weight", 7


class StandardResNet(nn.Module):
    """ResNet-18 or -50 as in torchvision, from small images (B, C, H, W) to features (B, width).

    The first layer is 3 × 3 with stride 1, and no max-pooling follows; networks for photographs
    begin with 7 × 7, stride 2 and max-pooling. All further layers are the same, under the same
    names, so that a file of torchvision holds their weights.
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int],
        depths: Sequence[int],
        activation: Activation,
        *,
        is_bottleneck: bool,
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(channels, widths[0], 3), nn.BatchNorm2d(widths[0])
        self.relu = activation()
        block = Bottleneck if is_bottleneck else BasicBlock
        n_in = widths[0]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            blocks = []
            for place in range(depth):
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(block(n_in, width, stride, activation))
                n_in = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.n_stages, self.width = len(widths), n_in

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(images)))
        for stage in range(self.n_stages):
            hidden = self.get_submodule(f"layer{stage + 1}")(hidden)
        return hidden.mean(dim=(2, 3))

    def translate(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a file without a first convolution for photographs."""
        stem = tensors.get(STEM)
        is_for_photographs = stem is not None and stem.shape[2:] == (PHOTOGRAPH_SIDE,) * 2
        return {n: t for n, t in tensors.items() if not (is_for_photographs and n == STEM)}


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, n_in: int, width: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(n_in, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _convolution(width, width, 3), nn.BatchNorm2d(width)
        self.relu = activation()
        self.downsample = _downsample(n_in, width, stride)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(images)))
        hidden = self.bn2(self.conv2(hidden))
        return self.relu(hidden + self.downsample(images))


class Bottleneck(nn.Module):
    """Convolutions of 1 × 1, 3 × 3 and 1 × 1, and a shortcut."""

    expansion = EXPANSION

    def __init__(self, n_in: int, width: int, stride: int, activation: Activation) -> None:
        super().__init__()
        n_out = width * EXPANSION
        self.conv1, self.bn1 = _convolution(n_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _convolution(width, n_out, 1), nn.BatchNorm2d(n_out)
        self.relu = activation()
        self.downsample = _downsample(n_in, n_out, stride)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(images)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(hidden))
        return self.relu(hidden + self.downsample(images))


class Subsampled(nn.Conv2d):
    """A 1 × 1 convolution with a stride, computed on every `step`-th pixel.

    torch 2.13 writes out of bounds in the backward pass of the strided convolution, with few
    channels in channels-last layout.
    """

    def __init__(self, n_in: int, n_out: int, step: int) -> None:
        super().__init__(n_in, n_out, 1, bias=False)
        self.step = step
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input[:, :, :: self.step, :: self.step], self.weight)


def _downsample(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    if n_in == n_out and stride == 1:
        return nn.Sequential()
    return nn.Sequential(Subsampled(n_in, n_out, stride), nn.BatchNorm2d(n_out))


def _convolution(n_in: int, n_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
