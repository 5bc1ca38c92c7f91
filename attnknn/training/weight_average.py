"""Weights averaged over the steps of a training: a moving average, or lookahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

N_FORGETFUL = 9  # the larger, the faster a moving average forgets the random start


class AveragedWeights(ABC):
    """Weights kept beside a module's own, and moved after every step.

    Means and variances of batch norms are averaged as the weights are: they belong to the weights
    they were measured with (`measure_statistics` measures them again). Counters are copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self.n_updates = 0
        self.state = _copy(module)

    @abstractmethod
    def update(self, module: nn.Module) -> None:
        """Take in the weights of `module` after a step."""

    @contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """A context in which `module` has these weights; afterward it has its own again."""
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

    Parameters
    ----------
    decay : 0.99 averages over about the last hundred steps; higher, over more

    >>> module = nn.Linear(1, 1)
    >>> average = MovingAverage(module, decay=0.99)
    >>> average.update(module)
    >>> with average.applied(module):
    ...     pass  # judge it here
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__(module)
        self.decay = decay

    def update(self, module: nn.Module) -> None:
        self.n_updates += 1
        decay = min(self.decay, self.n_updates / (self.n_updates + N_FORGETFUL))
        self._move_toward(module, 1 - decay)


class Lookahead(AveragedWeights):
    """Slow weights from which the module's fast ones set out, and to which they return.

    Every `every` steps: slow ← slow + `share`·(fast − slow), then fast ← slow.

    Parameters
    ----------
    n_steps : how long the training is, if known. Then the share falls from one to `share` with the
        cube of what is over: the start, which has far to go, is not held back
    """

    def __init__(
        self, module: nn.Module, every: int = 5, share: float = 0.5, n_steps: int | None = None
    ) -> None:
        super().__init__(module)
        self.every, self.share, self.n_steps = every, share, n_steps

    def update(self, module: nn.Module) -> None:
        self.n_updates += 1
        if self.n_updates % self.every == 0:
            self._move_toward(module, self._share_now())
            module.load_state_dict(self.state)

    def _share_now(self) -> float:
        if self.n_steps is None:
            return self.share
        return 1 - (1 - self.share) * (self.n_updates / self.n_steps) ** 3


def measure_statistics(module: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the means and variances of all batch norms to those of `batches`, alike in weight.

    For weights that no batch was seen with, such as averaged ones.
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    momenta, was_training = [norm.momentum for norm in norms], module.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # torch's way to ask for the plain mean over batches
    module.train()
    with torch.no_grad():
        for batch in batches:
            module(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.train(was_training)


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
