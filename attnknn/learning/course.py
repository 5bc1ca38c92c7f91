"""How a training is to go, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from attnknn.learning.precision import Precision


@dataclass(frozen=True)
class Course:
    """How long and how fast to train.

    Parameters
    ----------
    batch_size : rows in a step, those of all processes together
    groups : parameter groups as torch's optimizers take them, each with its own `lr`
    warmup : share of the steps in which the learning rates rise to their height
    patience : epochs without a better judgment after which training stops
    optimizer, schedule : names in `optimizers.OPTIMIZERS` and `schedules.SCHEDULES`
    clip : largest norm of the gradient of a step; None leaves gradients as they are
    precision : the numbers that steps compute with; `precision.prepare` sees to the module itself
    """

    epochs: int
    batch_size: int
    groups: list[dict[str, Any]]
    warmup: float = 0.2
    patience: int = 3
    optimizer: str = "adamw"
    schedule: str = "cosine"
    clip: float | None = None
    precision: Precision = field(default_factory=Precision)


@dataclass
class Outcome:
    """What a training did: losses per epoch, the best one, and whether a person stopped it."""

    train_losses: list[float] = field(default_factory=list)
    judged_losses: list[float] = field(default_factory=list)
    was_interrupted: bool = False
    seconds: float = 0.0

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, whose state was kept; 0 is the start."""
        return self.judged_losses.index(min(self.judged_losses)) if self.judged_losses else 0
