"""A training that uses every kind of chance and memory, to be stopped and begun again.

python tests/training/in_steps.py CHECKPOINT RESULT      prints a line after each step
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.loop import train
from attnknn.training.optimizers import parameter_groups

N_ROWS = 20
AVERAGES = {"none": {}, "moving": {"average": 0.9}, "lookahead": {"lookahead": 3}}


class Counter:
    """Something beside the module that a loss remembers."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.count = saved["count"]


class Training:
    """A network with dropout and batch norm, noise from a generator, averaged weights."""

    def __init__(
        self,
        optimizer: str = "adamw",
        average: str = "moving",
        weight_decay: float = 0.01,
        fingerprint: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        torch.random.manual_seed(0)  # as any program would begin
        self.generator = torch.Generator().manual_seed(1)
        self.rows = torch.randn(N_ROWS, 5, generator=torch.Generator().manual_seed(2))
        self.labels = torch.arange(N_ROWS) % 2
        self.module = nn.Sequential(
            nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2)
        )
        self.counter = Counter()
        self.fingerprint = fingerprint
        self.groups = parameter_groups(
            self.module, learning_rate=0.02, weight_decay=weight_decay, lr_scales={"3": 0.5}
        )
        self.config = TrainConfig(
            **({"epochs": 4, "batch_size": 6, "patience": 9} | settings),
            **AVERAGES[average],
            optimizer=optimizer,
            clip=1.0,
        )

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        self.module.train()
        self.counter.count += 1
        inputs = self.rows[rows]
        noise = torch.randn(inputs.shape, generator=self.generator) / self.counter.count
        return nn.functional.cross_entropy(self.module(inputs + noise), self.labels[rows])

    def validate(self) -> float:
        self.module.eval()
        with torch.no_grad():
            return nn.functional.cross_entropy(self.module(self.rows), self.labels).item()

    def run(self, path: Path | None, after_step: Callable[[], None] = lambda: None) -> TrainResult:
        def loss_of(rows: torch.Tensor) -> torch.Tensor:
            loss = self.loss(rows)
            after_step()
            return loss

        return train(
            self.module,
            loss_of,
            self.validate,
            N_ROWS,
            self.config,
            self.groups,
            self.generator,
            checkpoint=path,
            extra_state={"counter": self.counter},
            fingerprint=self.fingerprint,
        )

    def state(self, result: TrainResult) -> dict[str, torch.Tensor]:
        """Everything that must come out the same."""
        losses = [*result.train_losses, *result.validation_losses, float(self.counter.count)]
        return self.module.state_dict() | {
            "losses": torch.tensor(losses, dtype=torch.float64),
            "generator": self.generator.get_state(),
            "dropout": torch.get_rng_state(),
        }


def main(checkpoint: str, path: str) -> None:
    training = Training()
    result = training.run(Path(checkpoint), lambda: print("step", flush=True))  # noqa: T201
    save_file(training.state(result), path)


if __name__ == "__main__":
    main(*sys.argv[1:])
