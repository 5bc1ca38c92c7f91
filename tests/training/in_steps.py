"""A training that uses every kind of chance and memory, to be stopped and begun again.

python tests/learning/in_steps.py CHECKPOINT RESULT      prints a line after each step
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from attnknn.training.loop import Course, Outcome, train
from attnknn.training.optimizers import parameter_groups
from attnknn.training.weight_average import Lookahead, MovingAverage

N_ROWS = 20


class Counter:
    """Something beside the module that a loss remembers."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.count = saved["count"]


class Lesson:
    """A network with dropout and batch norm, noise from a generator, averaged weights."""

    def __init__(
        self,
        optimizer: str = "adamw",
        average: str = "moving",
        weight_decay: float = 0.01,
        marks: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        torch.random.manual_seed(0)  # as any program would begin
        self.generator = torch.Generator().manual_seed(1)
        self.rows = torch.randn(N_ROWS, 5, generator=torch.Generator().manual_seed(2))
        self.labels = torch.arange(N_ROWS) % 2
        self.module = nn.Sequential(
            nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2)
        )
        kinds = {"moving": MovingAverage(self.module, 0.9), "lookahead": Lookahead(self.module, 3)}
        self.average = kinds.get(average)
        self.counter = Counter()
        self.marks = marks
        groups = parameter_groups(
            self.module, rate=0.02, weight_decay=weight_decay, lr_scales={"3": 0.5}
        )
        self.course = Course(
            **({"epochs": 4, "batch_size": 6, "patience": 9} | settings),
            groups=groups,
            optimizer=optimizer,
            clip=1.0,
        )

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        self.module.train()
        self.counter.count += 1
        inputs = self.rows[rows]
        noise = torch.randn(inputs.shape, generator=self.generator) / self.counter.count
        return nn.functional.cross_entropy(self.module(inputs + noise), self.labels[rows])

    def judge(self) -> float:
        self.module.eval()
        with torch.no_grad():
            return nn.functional.cross_entropy(self.module(self.rows), self.labels).item()

    def learn(self, path: Path | None, after_step: Callable[[], None] = lambda: None) -> Outcome:
        def loss_of(rows: torch.Tensor) -> torch.Tensor:
            loss = self.loss(rows)
            after_step()
            return loss

        return train(
            self.module,
            loss_of,
            self.judge,
            N_ROWS,
            self.course,
            self.generator,
            average=self.average,
            checkpoint=path,
            keeps={"counter": self.counter},
            marks=self.marks,
        )

    def result(self, outcome: Outcome) -> dict[str, torch.Tensor]:
        """Everything that must come out the same."""
        losses = [*outcome.train_losses, *outcome.validation_losses, float(self.counter.count)]
        return self.module.state_dict() | {
            "losses": torch.tensor(losses, dtype=torch.float64),
            "chance": self.generator.get_state(),
            "dropout": torch.get_rng_state(),
        }


def main(checkpoint: str, result: str) -> None:
    lesson = Lesson()
    outcome = lesson.learn(Path(checkpoint), lambda: print("step", flush=True))  # noqa: T201
    save_file(lesson.result(outcome), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
