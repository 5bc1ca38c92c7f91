"""One training in several processes: rows shared out, gradients averaged, batches made whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Processes:
    """This process among those of a training; alone by default, and then everything is free.

    The rules are made so that several processes give the result of one: each computes the loss of
    its share of a batch, what it needs of the others' shares comes through `gather` or `total`
    (whose gradients flow back to the process they came from), and gradients are averaged.

    Parameters
    ----------
    rank : number of this process, from 0
    count : how many there are

    >>> Processes(rank=1, count=2).share(torch.arange(5))
    tensor([3, 4])
    """

    rank: int = 0
    count: int = 1

    @property
    def are_several(self) -> bool:
        return self.count > 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """The part of a batch of rows that is this process's own."""
        return rows.tensor_split(self.count)[self.rank] if self.are_several else rows

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; a gradient goes to each of them."""
        return _Total.apply(tensor) if self.are_several else tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """The rows of all processes, in their order, with gradients back to their owners.

        Processes may have different numbers of rows.
        """
        if not self.are_several:
            return tensor
        counts = torch.zeros(self.count, dtype=torch.int64, device=tensor.device)
        counts[self.rank] = len(tensor)
        counts = self.total(counts)
        before = int(counts[: self.rank].sum())
        after = int(counts.sum()) - before - len(tensor)
        sides = [tensor.new_zeros(n, *tensor.shape[1:]) for n in (before, after)]
        return self.total(torch.cat([sides[0], tensor, sides[1]]))

    def from_first(self, tensor: Tensor) -> Tensor:
        """What the first process has here."""
        if self.are_several:
            tensor = tensor.contiguous()
            dist.broadcast(tensor, src=0)
        return tensor

    def same_start(self, state: Mapping[str, Tensor]) -> None:
        """Give the tensors of a module's state the values they have in the first process."""
        if self.are_several:
            for value in state.values():
                value.copy_(self.from_first(value.clone()))

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes; none counts as zero.

        A parameter that no process has a gradient of keeps none, so that it is not moved.
        """
        if not self.are_several:
            return
        parameters = list(parameters)
        for group in _by_kind(parameters):
            has_one = torch.tensor([p.grad is not None for p in group]).to(group[0])
            flat = [(p.grad if p.grad is not None else torch.zeros_like(p)) for p in group]
            mean = self.total(torch.cat([*(g.reshape(-1) for g in flat), has_one])) / self.count
            is_moved = mean[-len(group) :] > 0
            parts = mean[: -len(group)].split([p.numel() for p in group])
            for parameter, part, is_one_moved in zip(group, parts, is_moved, strict=True):
                parameter.grad = part.view_as(parameter).clone() if is_one_moved else None


class _Total(torch.autograd.Function):
    """The sum over processes, forward and backward."""

    @staticmethod
    def forward(context: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def _by_kind(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters that fit into one vector: of one type, on one device."""
    kinds: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return list(kinds.values())


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The processes that `torchrun` started, for the length of a block; without it, this one alone.

    `torchrun --nproc-per-node 2 script.py` runs a script in two processes, each of which gets here.

    >>> with joined(torch.device("cpu")) as processes:
    ...     processes
    Processes(rank=0, count=1)
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
