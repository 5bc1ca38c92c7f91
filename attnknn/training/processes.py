"""Training in several processes: rows shared out, gradients averaged, batch norms synchronized."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm


@dataclass(frozen=True)
class Processes:
    """This process among those of a training; by default it is the only one.

    Several processes give the result of one: each computes the loss of its share of a batch,
    receives what it needs of the other shares through `gather` or `total` (whose gradients flow
    back to the process they came from), and gradients are averaged. `rank` is the number of this
    process, from 0; `count` is the number of processes.

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
        """The part of a batch of rows that belongs to this process."""
        return rows.tensor_split(self.count)[self.rank] if self.are_several else rows

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; a gradient goes to each of them."""
        return all_reduce(tensor) if self.are_several else tensor

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
        """The value of the first process."""
        if self.are_several:
            tensor = tensor.contiguous()
            dist.broadcast(tensor, src=0)
        return tensor

    def same_start(self, state: Mapping[str, Tensor]) -> None:
        """Set the tensors of a state to their values in the first process."""
        if self.are_several:
            for value in state.values():
                value.copy_(self.from_first(value.clone()))

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes; a missing one counts as zero.

        A parameter without a gradient in any process stays without, so that it is not updated.
        """
        if not self.are_several:
            return
        kinds: dict[object, list[nn.Parameter]] = {}  # parameters that fit into one vector
        for parameter in parameters:
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for group in kinds.values():
            has_one = torch.tensor([p.grad is not None for p in group]).to(group[0])
            flat = [(p.grad if p.grad is not None else torch.zeros_like(p)) for p in group]
            mean = self.total(torch.cat([*(g.reshape(-1) for g in flat), has_one])) / self.count
            is_moved = mean[-len(group) :] > 0
            parts = mean[: -len(group)].split([p.numel() for p in group])
            for parameter, part, is_one_moved in zip(group, parts, is_moved, strict=True):
                parameter.grad = part.view_as(parameter).clone() if is_one_moved else None


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The processes that `torchrun` started, within a block; without it, a single process.

    `torchrun --nproc-per-node 2 script.py` runs a script in two processes.

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


def synchronize_batch_norms(module: nn.Module, processes: Processes) -> nn.Module:
    """Replace every batch norm of `module` by one over all processes; parameters are kept.

    A single process keeps its batch norms.
    """
    if not processes.are_several:
        return module
    if isinstance(module, _BatchNorm):
        return SynchronizedBatchNorm(module, processes)
    for name, part in module.named_children():
        setattr(module, name, synchronize_batch_norms(part, processes))
    return module


class SynchronizedBatchNorm(_BatchNorm):
    """A batch norm over the rows of all processes, on any device; torch's own needs a GPU.

    Takes over parameters, buffers and settings of `norm` under the same names.
    """

    def __init__(self, norm: _BatchNorm, processes: Processes) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, affine=False)
        self.processes = processes
        self.affine, self.track_running_stats = norm.affine, norm.track_running_stats
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(self, name, getattr(norm, name))
        self.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept inputs of any number of dimensions."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        numbers = input if input.dtype == torch.float64 else input.float()
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1] + [1] * (input.ndim - 2)
        n_own = input.numel() // input.shape[1]
        n = self.processes.total(numbers.new_tensor(float(n_own)))
        mean = self.processes.total(numbers.sum(axes)) / n
        centered = numbers - mean.view(shape)
        variance = self.processes.total(centered.square().sum(axes)) / n
        self._update_running(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        normed = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normed = normed * self.weight.view(shape) + self.bias.view(shape)
        return normed.to(input.dtype)

    def _update_running(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)
