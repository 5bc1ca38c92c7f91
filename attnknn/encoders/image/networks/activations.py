"""What stands between the layers of a network, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "celu": lambda: nn.CELU(alpha=0.3),
    "relu": nn.ReLU,
}
