"""Learning-rate schedules: a factor of the learning rate for each step, chosen by name."""

# Factors per step instead of `torch.optim.lr_scheduler`: they need no state in checkpoints, resume
# bit for bit, and those of two trainings can be compared.

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnknn._validation import check_choice
from attnknn.training.config import SCHEDULES, TrainConfig, WarmRestarts

Schedule = Callable[[int], float]
ONE_CYCLE_START = 1 / 25  # of the highest learning rate
N_CYCLES = 3  # of warm restarts, unless the length of the first is given


def schedule_of(config: TrainConfig, steps_per_epoch: int) -> Schedule:
    """The schedule that the settings give, by name, as `WarmRestarts` or as a function."""
    schedule, n_steps = config.schedule, config.epochs * steps_per_epoch
    if isinstance(schedule, WarmRestarts):
        first = schedule.first_cycle * steps_per_epoch
        return warm_restarts(n_steps, config.warmup, first, schedule.cycle_factor)
    return schedule if callable(schedule) else make_schedule(schedule, n_steps, config.warmup)


def make_schedule(name: str, n_steps: int, warmup: float) -> Schedule:
    """The factor of the learning rate at each step 0 .. n_steps.

    Parameters
    ----------
    name : 'cosine', 'linear' and 'constant' rise on a line and then fall to 0 along half a cosine,
        fall on a line, or stay; 'one_cycle' rises from 1/25 and falls along half cosines;
        'restarts' repeats 'cosine' three times
    warmup : share of the steps (of each cycle, for 'restarts') in which the factor rises to one

    >>> schedule = make_schedule("linear", 10, warmup=0.2)
    >>> [round(schedule(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    check_choice("schedule", name, SCHEDULES)
    if name == "restarts":
        return warm_restarts(n_steps, warmup)
    n_rising = int(warmup * n_steps)

    def factor(step: int) -> float:
        if step < n_rising:
            if name == "one_cycle":
                return 1.0 - (1.0 - ONE_CYCLE_START) * _cosine(step / n_rising)
            return (step + 1) / (n_rising + 1)
        if name == "constant":
            return 1.0
        fallen = min(1.0, (step - n_rising) / max(1, n_steps - n_rising))
        return 1.0 - fallen if name == "linear" else _cosine(fallen)

    return factor


def warm_restarts(
    n_steps: int, warmup: float, first_cycle: int | None = None, cycle_factor: float = 1.0
) -> Schedule:
    """One 'cosine' schedule after the other, each `cycle_factor` times as long as the last.

    The first takes `first_cycle` steps; None makes three cycles. The last one is shortened to end
    with the training.

    >>> factor = warm_restarts(35, warmup=0.0, first_cycle=5, cycle_factor=2.0)
    >>> [step for step in range(35) if factor(step) == 1.0]
    [0, 5, 15]
    """
    if first_cycle is None:
        first_cycle = math.ceil(n_steps / sum(cycle_factor**i for i in range(N_CYCLES)))
    bounds = [0]
    while bounds[-1] < n_steps:
        # Rounded before, because 10 · 1.1 is more than 11 in floating point.
        length = math.ceil(round(first_cycle * cycle_factor ** (len(bounds) - 1), 6))
        bounds.append(min(bounds[-1] + max(1, length), n_steps))

    def factor(step: int) -> float:
        cycle = min(bisect_right(bounds, step), len(bounds) - 1)
        start, end = bounds[cycle - 1], bounds[cycle]
        return make_schedule("cosine", end - start, warmup)(step - start)

    return factor


def _cosine(share: float) -> float:
    """From one at 0 to zero at 1, level at both ends."""
    return 0.5 * (1 + math.cos(math.pi * share))


@dataclass(frozen=True)
class Stairs:
    """Constant, multiplied by `gamma` after every `every` steps.

    >>> [Stairs(10, 0.5)(step) for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """

    every: int
    gamma: float

    def __call__(self, step: int) -> float:
        """The factor at a step."""
        return float(self.gamma ** (step // self.every))


class Plateau:
    """Constant, multiplied by `gamma` after `patience` epochs without a lower validation loss.

    Call `update` with the validation loss of every epoch. `ReduceLROnPlateau` is not used because
    it needs the optimizer, and waits one epoch longer.

    >>> plateau = Plateau(gamma=0.5, patience=2)
    >>> for loss in (0.9, 0.8, 0.8, 0.85, 0.7):
    ...     plateau.update(loss)
    >>> plateau(0)
    0.5
    """

    def __init__(self, gamma: float = 0.1, patience: int = 10) -> None:
        self.gamma, self.patience = gamma, patience
        self.factor, self.best, self.n_since = 1.0, math.inf, 0

    def update(self, loss: float) -> None:
        """Take in the validation loss of an epoch."""
        self.n_since = 0 if loss < self.best else self.n_since + 1
        self.best = min(self.best, loss)
        if self.n_since >= self.patience:
            self.factor, self.n_since = self.factor * self.gamma, 0

    def __call__(self, step: int) -> float:
        """The current factor, whatever the step."""
        del step
        return self.factor

    def state_dict(self) -> dict[str, float]:
        return {"factor": self.factor, "best": self.best, "n_since": self.n_since}

    def load_state_dict(self, saved: Mapping[str, float]) -> None:
        self.factor, self.best, self.n_since = saved["factor"], saved["best"], int(saved["n_since"])

    def __repr__(self) -> str:
        return f"Plateau(gamma={self.gamma}, patience={self.patience})"
