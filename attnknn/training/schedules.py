"""How learning rates move over a training: a factor for each step, chosen by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnknn.errors import unknown_name

Factor = Callable[[int], float]
LOWEST_START = 1 / 25  # where one cycle begins, as a part of its height
N_CYCLES = 3  # of warm restarts


def schedule_of(name: str, n_steps: int, warmup: float) -> Factor:
    """The factor of the learning rate at each step 0 .. n_steps, by the name of its shape.

    Parameters
    ----------
    warmup : share of the steps (of each cycle, for 'restarts') in which the factor rises to one

    >>> factor = schedule_of("linear", 10, warmup=0.2)
    >>> [round(factor(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES)
    return SCHEDULES[name](n_steps, warmup)


def warmup_and_cosine(n_steps: int, warmup: float) -> Factor:
    """Up to one in a share of the steps, then down to zero along half a cosine.

    >>> factor = warmup_and_cosine(10, warmup=0.2)
    >>> [round(factor(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    n_rising = int(warmup * n_steps)

    def factor(step: int) -> float:
        if step < n_rising:
            return (step + 1) / (n_rising + 1)
        return _cosine(_share_fallen(step, n_rising, n_steps))

    return factor


def warmup_and_line(n_steps: int, warmup: float) -> Factor:
    """A triangle: up to one in a share of the steps, then down to zero on a line."""
    n_rising = int(warmup * n_steps)

    def factor(step: int) -> float:
        if step < n_rising:
            return (step + 1) / (n_rising + 1)
        return 1.0 - _share_fallen(step, n_rising, n_steps)

    return factor


def warmup_and_constant(n_steps: int, warmup: float) -> Factor:
    """Up to one in a share of the steps, then one."""
    n_rising = int(warmup * n_steps)
    return lambda step: min(1.0, (step + 1) / (n_rising + 1))


def warm_restarts(n_steps: int, warmup: float, n_cycles: int = N_CYCLES) -> Factor:
    """Several warmups and cosines of the same length, one after the other."""
    length = max(1, math.ceil(n_steps / n_cycles))
    cycle = warmup_and_cosine(length, warmup)
    last = warmup_and_cosine(max(1, n_steps - length * ((n_steps - 1) // length)), warmup)

    def factor(step: int) -> float:
        start = length * min(step // length, (n_steps - 1) // length)
        return (last if start + length >= n_steps else cycle)(step - start)

    return factor


def one_cycle(n_steps: int, warmup: float) -> Factor:
    """From a twenty-fifth up to one and down to zero, both along half a cosine."""
    n_rising = int(warmup * n_steps)

    def factor(step: int) -> float:
        if step < n_rising:
            return 1.0 - (1.0 - LOWEST_START) * _cosine(step / n_rising)
        return _cosine(_share_fallen(step, n_rising, n_steps))

    return factor


def _share_fallen(step: int, n_rising: int, n_steps: int) -> float:
    return min(1.0, (step - n_rising) / max(1, n_steps - n_rising))


def _cosine(share: float) -> float:
    """From one at 0 to zero at 1, level at both ends."""
    return 0.5 * (1 + math.cos(math.pi * share))


@dataclass(frozen=True)
class Stairs:
    """Constant, and times `gamma` after every so many steps.

    >>> [Stairs(10, 0.5)(step) for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """

    every: int
    gamma: float

    def __call__(self, step: int) -> float:
        """The factor at a step."""
        return float(self.gamma ** (step // self.every))


class Plateau:
    """Constant, and times `gamma` once `patience` epochs in a row were no better than the best.

    The loss of every epoch must be told to `left_out`; what it remembers is its `state_dict`.

    >>> plateau = Plateau(gamma=0.5, patience=2)
    >>> for loss in (0.9, 0.8, 0.8, 0.85, 0.7):
    ...     plateau.left_out(loss)
    >>> plateau(0)
    0.5
    """

    def __init__(self, gamma: float = 0.1, patience: int = 10) -> None:
        self.gamma, self.patience = gamma, patience
        self.factor, self.best, self.n_since = 1.0, math.inf, 0

    def left_out(self, loss: float) -> None:
        """The loss of an epoch, smaller is better."""
        self.n_since = 0 if loss < self.best else self.n_since + 1
        self.best = min(self.best, loss)
        if self.n_since >= self.patience:
            self.factor, self.n_since = self.factor * self.gamma, 0

    def __call__(self, step: int) -> float:
        """The factor now, whatever the step."""
        del step
        return self.factor

    def state_dict(self) -> dict[str, float]:
        """Everything that moves."""
        return {"factor": self.factor, "best": self.best, "n_since": self.n_since}

    def load_state_dict(self, saved: Mapping[str, float]) -> None:
        """Go on from there."""
        self.factor, self.best, self.n_since = saved["factor"], saved["best"], int(saved["n_since"])

    def __repr__(self) -> str:
        return f"Plateau(gamma={self.gamma}, patience={self.patience})"


SCHEDULES: dict[str, Callable[[int, float], Factor]] = {
    "cosine": warmup_and_cosine,
    "linear": warmup_and_line,
    "constant": warmup_and_constant,
    "restarts": warm_restarts,
    "one_cycle": one_cycle,
}
