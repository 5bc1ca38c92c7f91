"""The best state of a module seen so far."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


class Best:
    """A copy of the state with the smallest loss that was offered."""

    def __init__(self) -> None:
        self.loss = math.inf
        self.state: dict[str, Tensor] | None = None

    def offer(self, module: nn.Module, loss: float) -> None:
        """Keep the state of `module` if its loss is smaller, or if it is the first."""
        if loss < self.loss or self.state is None:
            self.loss = loss
            self.state = {name: value.clone() for name, value in module.state_dict().items()}

    def restore(self, module: nn.Module) -> None:
        """Put `module` into the best state."""
        if self.state is not None:
            module.load_state_dict(self.state)

    def state_dict(self) -> dict[str, Any]:
        return {"loss": self.loss, "state": self.state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.loss, self.state = saved["loss"], saved["state"]
