"""A training loop in small steps: batches, best state so far, Ctrl-C, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.learning.progress import progress_bar
from attnknn.learning.schedules import warmup_and_cosine


@dataclass(frozen=True)
class Course:
    """How long and how fast to train.

    Parameters
    ----------
    groups : parameter groups as torch's optimizers take them, each with its own `lr`
    warmup : share of the steps in which the learning rates rise to their height
    patience : epochs without a better judgment after which training stops
    """

    epochs: int
    batch_size: int
    groups: list[dict[str, Any]]
    warmup: float = 0.2
    patience: int = 3


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


def train(
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    judge: Callable[[], float],
    n_rows: int,
    course: Course,
    generator: torch.Generator,
    *,
    title: str = "Training",
    verbose: int = 0,
) -> Outcome:
    """Train `module` and leave it in the state that `judge` liked best.

    Parameters
    ----------
    loss_of : mean loss of a batch of row numbers, with a gradient
    judge : loss on rows that are not trained on, asked before the first and after every epoch
    """
    outcome, started = Outcome(), time.perf_counter()
    best = _Best(module, _or_worst(judge()))
    outcome.judged_losses.append(best.loss)
    steps_per_epoch = math.ceil(n_rows / course.batch_size)
    optimizer, schedule = _optimizer(course, steps_per_epoch)
    try:
        with progress_bar(title, course.epochs * steps_per_epoch, verbose) as advance:
            for _ in range(course.epochs):
                total = 0.0
                for rows in _batches(n_rows, course.batch_size, generator):
                    total += _step(loss_of, rows, optimizer) * len(rows)
                    schedule.step()
                    advance(f"loss {best.loss:.4f}")
                outcome.train_losses.append(total / n_rows)
                outcome.judged_losses.append(_or_worst(judge()))
                best.offer(module, outcome.judged_losses[-1])
                if len(outcome.judged_losses) - 1 - outcome.best_epoch >= course.patience:
                    break
    except KeyboardInterrupt:
        outcome.was_interrupted = True
    module.load_state_dict(best.state)
    outcome.seconds = time.perf_counter() - started
    return outcome


def _or_worst(loss: float) -> float:
    """NaN is neither above nor below anything: without this it could never be beaten."""
    return math.inf if math.isnan(loss) else loss


class _Best:
    """The best state seen so far."""

    def __init__(self, module: nn.Module, loss: float) -> None:
        self.loss = math.inf
        self.offer(module, loss)

    def offer(self, module: nn.Module, loss: float) -> None:
        if loss < self.loss or not hasattr(self, "state"):
            self.loss = loss
            self.state = {name: value.clone() for name, value in module.state_dict().items()}


def _optimizer(course: Course, steps_per_epoch: int) -> tuple[Any, Any]:
    optimizer = torch.optim.AdamW(course.groups, betas=(0.9, 0.98), weight_decay=0.0)
    factor = warmup_and_cosine(course.epochs * steps_per_epoch, course.warmup)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    return optimizer, schedule


def _batches(n_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    yield from torch.randperm(n_rows, generator=generator).split(batch_size)


def _step(loss_of: Callable[[Tensor], Tensor], rows: Tensor, optimizer: Any) -> float:
    loss = loss_of(rows)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()
