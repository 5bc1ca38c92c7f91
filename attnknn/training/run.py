"""One training under way: everything that moves in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidSettingError
from attnknn.training.best import Best
from attnknn.training.course import Course, Outcome
from attnknn.training.optimizers import clip, optimizer_of
from attnknn.training.precision import autocast, loss_scaler
from attnknn.training.processes import Processes
from attnknn.training.schedules import schedule_of
from attnknn.training.weight_average import AveragedWeights


def n_batches(n_rows: int, batch_size: int) -> int:
    """How many batches make an epoch; one row alone joins the batch before.

    >>> n_batches(6, 3), n_batches(7, 3), n_batches(8, 3), n_batches(1, 3)
    (2, 2, 3, 1)
    """
    n_whole, n_left = divmod(n_rows, batch_size)
    return max(1, n_whole + (n_left > 1))


class Keeps(Protocol):
    """Something whose state a checkpoint can hold: numbers, texts, tensors in dicts and lists."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, saved: dict[str, Any], /) -> Any: ...


@dataclass
class Run:
    """The moving parts of one training: weights, optimizer, step, chance, best state, outcome."""

    module: nn.Module
    n_rows: int
    course: Course
    generator: torch.Generator
    average: AveragedWeights | None = None
    keeps: Mapping[str, Keeps] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    marks: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups = [dict(group) for group in self.course.groups]  # the optimizer changes its own
        self.optimizer = optimizer_of(self.course.optimizer, groups)
        self.heights = [group["lr"] for group in self.optimizer.param_groups]
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.device = self.parameters[0].device
        schedule = self.course.schedule
        self.factor = (
            schedule_of(schedule, self.n_steps, self.course.warmup)
            if isinstance(schedule, str)
            else schedule
        )
        self.scaler = loss_scaler(self.course.precision, self.device)
        self.best, self.step = Best(), 0
        self.outcome = Outcome(tolerance=self.course.tolerance)
        self._check_shares()
        self.processes.same_start(self.module.state_dict())
        if self.average is not None:
            self.processes.same_start(self.average.state)

    def _check_shares(self) -> None:
        n_last = self.n_rows - self._cuts()[-1]
        if n_last < self.processes.count:
            raise InvalidSettingError(
                f"`batch_size={self.course.batch_size}` leaves a last batch of {n_last} of "
                f"{self.n_rows} rows, too few for {self.processes.count} processes. "
                "Choose another `batch_size`."
            )

    @property
    def n_steps(self) -> int:
        return self.course.epochs * n_batches(self.n_rows, self.course.batch_size)

    def _cuts(self) -> list[int]:
        """Where the batches of an epoch begin."""
        size = self.course.batch_size
        return [size * batch for batch in range(n_batches(self.n_rows, size))]

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.outcome.train_losses)

    @property
    def is_over(self) -> bool:
        if self.epoch >= self.course.epochs:
            return True
        return self.epoch > 0 and self.epoch - self.outcome.best_epoch >= self.course.patience

    def batches(self) -> tuple[Tensor, ...]:
        """The rows of an epoch in random order; the first process draws it for all."""
        order = torch.randperm(self.n_rows, generator=self.generator, device=self.generator.device)
        return self.processes.from_first(order).tensor_split(self._cuts()[1:])

    def computing(self) -> AbstractContextManager[object]:
        """A context in which losses are computed in the numbers of the course."""
        return autocast(self.course.precision, self.device)

    def descend(self, loss: Tensor) -> None:
        """One step along the gradient of `loss`."""
        for group, height in zip(self.optimizer.param_groups, self.heights, strict=True):
            group["lr"] = height * self.factor(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.processes.average_gradients(self.parameters)
        if self.course.clip is not None:
            self.scaler.unscale_(self.optimizer)
            clip(self.parameters, self.course.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        if self.average is not None:
            self.average.update(self.module)
