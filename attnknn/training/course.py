"""How a training is to go, and how it went."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from attnknn.training.precision import Precision
from attnknn.training.schedules import Factor


@dataclass(frozen=True)
class Course:
    """How long and how fast to train.

    Parameters
    ----------
    batch_size : rows in a step, those of all processes together
    groups : parameter groups as torch's optimizers take them, each with its own `lr`
    warmup : share of the steps in which the learning rates rise to their height
    patience : epochs without a better judgment after which training stops
    tolerance : a later state is kept although its loss is higher than the lowest by up to this
        share, less than judging rows can tell: where rates fall to zero the last steps do good
    optimizer : a name in `optimizers.OPTIMIZERS`; groups may have settings of their own
    schedule : a name in `schedules.SCHEDULES`, or the factor of the learning rates at each step
    clip : largest norm of the gradient of a step; None leaves gradients as they are
    precision : the numbers that steps compute with; `precision.prepare` sees to the module itself
    """

    epochs: int
    batch_size: int
    groups: list[dict[str, Any]]
    warmup: float = 0.2
    patience: int = 3
    tolerance: float = 0.0
    optimizer: str = "adamw"
    schedule: str | Factor = "cosine"
    clip: float | None = None
    precision: Precision = field(default_factory=Precision)


@dataclass
class Outcome:
    """What a training did: losses per epoch, the best one, and whether a person stopped it."""

    train_losses: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    was_interrupted: bool = False
    seconds: float = 0.0
    tolerance: float = 0.0

    def last_epoch(self, n_epochs: int) -> str:
        """The last epoch in words.

        >>> Outcome([0.5, 0.25], [0.9, 0.5, 0.3], seconds=4.2).last_epoch(10)
        'epoch 2 of 10, loss 0.2500, on held-out rows 0.3000, after 4 s'
        """
        return (
            f"epoch {len(self.train_losses)} of {n_epochs}, loss {self.train_losses[-1]:.4f}, "
            f"on held-out rows {self.validation_losses[-1]:.4f}, after {self.seconds:.0f} s"
        )

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, whose state was kept; 0 is the start.

        >>> Outcome(validation_losses=[0.9, 0.500, 0.501]).best_epoch
        1
        >>> Outcome(validation_losses=[0.9, 0.500, 0.501], tolerance=0.02).best_epoch
        2
        """
        kept, lowest = 0, math.inf
        for epoch, loss in enumerate(self.validation_losses):
            if loss < lowest * (1 + self.tolerance):
                kept = epoch
            lowest = min(lowest, loss)
        return kept
