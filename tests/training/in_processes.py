"""What each of several processes runs in `test_processes.py`; alone, it is the reference.

torchrun --nproc-per-node 2 tests/training/in_processes.py WHAT RESULT
"""

from __future__ import annotations

import contextlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

from attnknn.training.config import TrainConfig
from attnknn.training.loop import train
from attnknn.training.losses import contrastive_loss
from attnknn.training.optimizers import parameter_groups
from attnknn.training.processes import Processes, joined, synchronize_batch_norms


def data(n_rows: int = 22) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(n_rows, 3, 6, 6, generator=generator)
    return images, torch.arange(n_rows) % 3


class Network(nn.Module):
    """A small network with batch norms of images and of vectors, and a part no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, bias=False),
            nn.BatchNorm2d(6),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(6 * 16, 8),
            nn.BatchNorm1d(8, momentum=None),
        )
        self.head = nn.Linear(8, 3)
        self.idle = nn.Linear(2, 2)


def network(seed: int) -> Network:
    torch.random.manual_seed(seed)
    return Network()


def loss(module: Network, rows: torch.Tensor, processes: Processes) -> torch.Tensor:
    """Cross-entropy of the own rows, and contrast among the rows of all processes."""
    images, labels = data()
    first = module.body(images[rows])
    second = module.body(images[rows].flip(3))
    contrast = contrastive_loss(
        processes.gather(first), processes.gather(second), processes.gather(labels[rows])
    )
    return nn.functional.cross_entropy(module.head(first), labels[rows]) + contrast


def by_hand(processes: Processes) -> dict[str, torch.Tensor]:
    """Four steps of plain descent."""
    module = network(seed=processes.rank)  # each starts elsewhere, until they agree
    processes.same_start(module.state_dict())
    synchronize_batch_norms(module, processes)
    for step in range(4):
        batch = torch.arange(11) + 11 * (step % 2)  # one process has more rows than the other
        own = processes.share(batch)
        module.zero_grad()
        scale = len(own) * processes.count / len(batch)
        (scale * loss(module, own, processes)).backward()
        processes.average_gradients(module.parameters())
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter -= 0.05 * parameter.grad
    return module.state_dict()


def by_loop(processes: Processes, path: str | None = None, stop_at: int = 99) -> dict:
    """Three epochs of the loop, with everything it has."""
    module = network(seed=processes.rank)
    synchronize_batch_norms(module, processes)
    config = TrainConfig(
        epochs=3,
        batch_size=8,  # 22 rows: the last batch has 6
        optimizer="sgd",
        schedule="linear",
        clip=1.0,
        average=0.8,
    )

    def before_epoch(epoch: int) -> None:
        module.train()
        if epoch == stop_at:
            raise InterruptedError

    def validate() -> float:
        module.eval()
        images, labels = data()
        with torch.no_grad():
            return nn.functional.cross_entropy(module.head(module.body(images)), labels).item()

    result = train(
        module,
        lambda rows: loss(module, rows, processes),
        validate,
        22,
        config,
        parameter_groups(module, learning_rate=0.05, weight_decay=0.01),
        torch.Generator().manual_seed(processes.rank),
        checkpoint=path,
        before_epoch=before_epoch,
        processes=processes,
    )
    losses = torch.tensor([result.train_losses, result.validation_losses[1:]])
    return module.state_dict() | {"losses": losses}


def by_loop_resumed(processes: Processes) -> dict:
    """The same, stopped before the last epoch and begun again."""
    path = f"{sys.argv[2]}.checkpoint"
    with contextlib.suppress(InterruptedError):
        by_loop(processes, path, stop_at=2)
    return by_loop(processes, path)


def main(what: str, result: str) -> None:
    with joined(torch.device("cpu")) as processes:
        state = globals()[what](processes)
        save_file({name: v.contiguous() for name, v in state.items()}, f"{result}.{processes.rank}")


if __name__ == "__main__":
    main(*sys.argv[1:])
