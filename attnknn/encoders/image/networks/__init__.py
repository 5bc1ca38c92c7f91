"""The networks of image encoders, by name, each built from the same few numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from attnknn.encoders.image.networks.activations import ACTIVATIONS
from attnknn.encoders.image.networks.resnet import ResNet
from attnknn.encoders.image.networks.resnet9 import ResNet9
from attnknn.errors import InvalidSettingError

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
