"""Batch norms that see the batch of all processes; torch's own needs a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnknn.training.processes import Processes


def synchronize_batch_norms(module: nn.Module, processes: Processes) -> nn.Module:
    """`module` with every batch norm replaced by one over all processes; parameters stay the same.

    One process alone keeps its batch norms as they are.
    """
    if not processes.are_several:
        return module
    if isinstance(module, _BatchNorm):
        return SynchronizedBatchNorm(module, processes)
    for name, part in module.named_children():
        setattr(module, name, synchronize_batch_norms(part, processes))
    return module


class SynchronizedBatchNorm(_BatchNorm):
    """A batch norm whose means and variances are those of the rows of all processes.

    Takes over parameters, buffers and settings of `norm`, under the same names.
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
        """Rows of any number of dimensions."""

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
        self._remember(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        normed = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normed = normed * self.weight.view(shape) + self.bias.view(shape)
        return normed.to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)
