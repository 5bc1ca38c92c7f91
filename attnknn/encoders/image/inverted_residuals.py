"""MobileNetV2 and EfficientNet-Lite0 without their classifiers, for pretrained weights.

Both consist of inverted residual blocks (Sandler et al., 2018): a 1 × 1 convolution widens, a
depthwise one looks at neighboring pixels, and a 1 × 1 convolution narrows. EfficientNet-Lite0 is
EfficientNet-B0 (Tan and Le, 2019) with ReLU6 and without squeeze-and-excitation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

STEM, HEAD = 32, 1280  # channels of the first and the last layer
Normalization = tuple[tuple[float, float, float], tuple[float, float, float]]
IMAGENET: Normalization = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BYTES: Normalization = (127 / 255,) * 3, (128 / 255,) * 3


@dataclass(frozen=True)
class TrunkPlan:
    """The layers of a network, how it was trained, and the names that files give its tensors.

    stages : (expansion, channels, blocks, stride of the first block, size of the filters)
    is_same : whether images are padded as by TensorFlow, with one pixel more at the far sides
    namings : functions from a layer of `Trunk` to its name in a file
    """

    stages: tuple[tuple[int, int, int, int, int], ...]
    normalization: Normalization
    norm_epsilon: float
    is_same: bool
    namings: tuple[Callable[[Layer], str], ...]
    size: int = 224


@dataclass(frozen=True)
class Layer:
    """A convolution or norm of a trunk: its part, the block, and its place among the layers."""

    part: str  # 'stem', 'blocks' or 'head'
    block: int
    place: int
    n_places: int  # layers of the block
    n_blocks: int


class Trunk(nn.Module):
    """A network of inverted residual blocks from images (B, 3, H, W) to features (B, 1280)."""

    def __init__(self, plan: TrunkPlan) -> None:
        super().__init__()
        self.plan, self.width = plan, HEAD
        self.stem = nn.Sequential(*_unit(plan, 3, STEM, 3, 2), nn.ReLU6())
        n_in, blocks = STEM, []
        for expansion, n_out, n_blocks, stride, size in plan.stages:
            for place in range(n_blocks):
                step = stride if place == 0 else 1
                blocks.append(InvertedResidual(plan, n_in, n_out, expansion, size, step))
                n_in = n_out
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(*_unit(plan, n_in, HEAD, 1), nn.ReLU6())

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images))).mean(dim=(2, 3))

    def translate(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of a file by the names of this network, in whichever way they are named."""
        split = {name: name.rpartition(".") for name in tensors}
        prefixes = {prefix for prefix, _, _ in split.values()}
        namings = [
            {naming(layer): own for own, layer in self._layers()} for naming in self.plan.namings
        ]
        names = max(namings, key=lambda names: len(prefixes & set(names)))
        return {
            f"{names[prefix]}.{last}" if prefix in names else name: tensors[name]
            for name, (prefix, _, last) in split.items()
        }

    def _layers(self) -> Iterator[tuple[str, Layer]]:
        """Every convolution and norm with its name in this network."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
                part, *places = name.split(".")
                block = int(places[0]) if part == "blocks" else 0
                n_places = len(self.get_submodule(name.rpartition(".")[0]))  # type: ignore[arg-type]
                yield name, Layer(part, block, int(places[-1]), n_places, len(self.blocks))


class InvertedResidual(nn.Module):
    """Widening, depthwise and narrowing convolution; residual where the shape stays."""

    def __init__(
        self, plan: TrunkPlan, n_in: int, n_out: int, expansion: int, size: int, stride: int
    ) -> None:
        super().__init__()
        hidden = n_in * expansion
        widen = [*_unit(plan, n_in, hidden, 1), nn.ReLU6()] if expansion > 1 else []
        depthwise = [*_unit(plan, hidden, hidden, size, stride, groups=hidden), nn.ReLU6()]
        self.layers = nn.Sequential(*widen, *depthwise, *_unit(plan, hidden, n_out, 1))
        self.is_residual = n_in == n_out and stride == 1

    def forward(self, images: Tensor) -> Tensor:
        return images + self.layers(images) if self.is_residual else self.layers(images)


class SamePadded(nn.Conv2d):
    """A convolution whose output has ceil(side / stride) pixels, padded as by TensorFlow."""

    def forward(self, input: Tensor) -> Tensor:
        padding = []
        for side, size, stride in zip(
            input.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True
        ):
            n_missing = max(0, (-(-side // stride) - 1) * stride + size - side)
            padding += [n_missing // 2, n_missing - n_missing // 2]
        return super().forward(F.pad(input, padding) if any(padding) else input)


def _unit(
    plan: TrunkPlan, n_in: int, n_out: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution and its norm."""
    layer: nn.Conv2d
    if plan.is_same:
        layer = SamePadded(n_in, n_out, size, stride, groups=groups, bias=False)
    else:
        layer = nn.Conv2d(n_in, n_out, size, stride, size // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return [layer, nn.BatchNorm2d(n_out, eps=plan.norm_epsilon)]


def _flat(layer: Layer) -> str:
    """MobileNetV2 with the layers of a block in one list."""
    if layer.part == "blocks":
        return f"features.{layer.block + 1}.conv.{layer.place}"
    return f"features.{0 if layer.part == 'stem' else layer.n_blocks + 1}.{layer.place}"


def _torchvision(layer: Layer) -> str:
    """MobileNetV2 of torchvision, with one list for each activation."""
    is_last_unit = layer.place >= layer.n_places - 2
    if layer.part != "blocks":
        return _flat(layer)
    unit, place = divmod(layer.place, 3)
    inner = f"{unit + place}" if is_last_unit else f"{unit}.{place}"
    return f"features.{layer.block + 1}.conv.{inner}"


def _tensorflow(layer: Layer) -> str:
    """EfficientNet as converted from TensorFlow."""
    if layer.part != "blocks":
        stem, head = ("_conv_stem", "_bn0"), ("_conv_head", "_bn1")
        return (stem if layer.part == "stem" else head)[layer.place]
    unit = layer.place // 3 + (layer.n_places < 8)  # a block without widening lacks the first
    kind = ("_expand_conv", "_depthwise_conv", "_project_conv")[unit]
    return f"_blocks.{layer.block}.{kind if layer.place % 3 == 0 else f'_bn{unit}'}"


TRUNKS: dict[str, TrunkPlan] = {
    "mobilenet-v2": TrunkPlan(
        stages=(
            *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)),
            *((6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)),
        ),
        normalization=IMAGENET,
        norm_epsilon=1e-5,
        is_same=False,
        namings=(_flat, _torchvision),
    ),
    "efficientnet-lite0": TrunkPlan(
        stages=(
            *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
            *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
        ),
        normalization=BYTES,
        norm_epsilon=1e-3,
        is_same=True,
        namings=(_tensorflow,),
    ),
}
