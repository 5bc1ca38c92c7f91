"""Weights averaged over the steps of a training: exponential moving average, or lookahead."""

# Not `torch.optim.swa_utils.AveragedModel`: it copies the module with the data that it may hold,
# its decay cannot grow with the steps, and its state is not that of a checkpoint.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.training.config import TrainConfig

N_FORGETFUL = 9  # the larger, the faster a moving average forgets the random start
LAST_SHARE = 0.25  # of the way to the fast weights, at the end of a training with lookahead


def make_average(module: nn.Module, config: TrainConfig, n_steps: int) -> AveragedWeights | None:
    """The averaged weights that `config` asks for, or None."""
    if config.average:
        return MovingAverage(module, config.average)
    if config.lookahead:
        return Lookahead(module, config.lookahead, LAST_SHARE, n_steps)
    return None


class AveragedWeights(ABC):
    """Weights kept beside those of a module and updated after every step.

    Running means and variances of batch norms are averaged as the weights are
    (`torch.optim.swa_utils.update_bn` recomputes them). Counters are copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self.n_updates = 0
        self.state = _copy(module)

    @abstractmethod
    def update(self, module: nn.Module) -> None:
        """Take in the weights of `module` after a step."""

    @contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """A context in which `module` has these weights; its own are restored afterward."""
        own = _copy(module)
        module.load_state_dict(self.state)
        try:
            yield
        finally:
            module.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        return {"n_updates": self.n_updates, "state": self.state}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.n_updates = saved["n_updates"]
        for name, value in self.state.items():
            value.copy_(saved["state"][name])

    def _move_toward(self, module: nn.Module, share: float) -> None:
        with torch.no_grad():
            for name, value in module.state_dict().items():
                if value.is_floating_point():
                    self.state[name].lerp_(value, share)
                else:
                    self.state[name].copy_(value)


class MovingAverage(AveragedWeights):
    """An exponential moving average: after step n, average ← d·average + (1 − d)·weights.

    d = min(`decay`, n / (n + 9)), so that the random start is soon forgotten.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__(module)
        self.decay = decay

    def update(self, module: nn.Module) -> None:
        self.n_updates += 1
        decay = min(self.decay, self.n_updates / (self.n_updates + N_FORGETFUL))
        self._move_toward(module, 1 - decay)


class Lookahead(AveragedWeights):
    """Every `every` steps: slow ← slow + `share`·(fast − slow), then fast ← slow.

    With `n_steps`, the length of the training, the share falls from one to `share` with the cube of
    the elapsed part, so that the start is not slowed down.
    """

    def __init__(
        self, module: nn.Module, every: int = 5, share: float = 0.5, n_steps: int | None = None
    ) -> None:
        super().__init__(module)
        self.every, self.share, self.n_steps = every, share, n_steps

    def update(self, module: nn.Module) -> None:
        self.n_updates += 1
        if self.n_updates % self.every == 0:
            share = self.share
            if self.n_steps is not None:
                share = 1 - (1 - share) * (self.n_updates / self.n_steps) ** 3
            self._move_toward(module, share)
            module.load_state_dict(self.state)


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
