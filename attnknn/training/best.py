"""The state of a module that is kept so far."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


class Best:
    """A copy of a state, with its loss."""

    def __init__(self) -> None:
        self.loss = math.inf
        self.state: dict[str, Tensor] | None = None

    def keep(self, module: nn.Module, loss: float) -> None:
        """Keep the state of `module` from now on."""
        self.loss = loss
        self.state = {name: value.clone() for name, value in module.state_dict().items()}

    def restore(self, module: nn.Module) -> None:
        """Put `module` into the kept state."""
        if self.state is not None:
            module.load_state_dict(self.state)

    def state_dict(self) -> dict[str, Any]:
        return {"loss": self.loss, "state": self.state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.loss, self.state = saved["loss"], saved["state"]
