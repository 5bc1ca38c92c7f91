"""What moves parameters along their gradients: Adam, AdamW and SGD, rates per group, clipping."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidSettingError, unknown_name

Group = dict[str, Any]


def optimizer_of(name: str, groups: list[Group]) -> torch.optim.Optimizer:
    """The optimizer called `name` over parameter groups, each with its own `lr`.

    >>> groups = [{"params": nn.Linear(1, 1).parameters(), "lr": 0.1}]
    >>> optimizer_of("sgd", groups).defaults["nesterov"]
    True
    """
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name](groups)


def _adamw(groups: list[Group]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)


def _adam(groups: list[Group]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, weight_decay=0.0)


def _sgd(groups: list[Group]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, momentum=0.9, nesterov=True, weight_decay=0.0)


OPTIMIZERS: dict[str, Callable[[list[Group]], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
}


def parameter_groups(
    module: nn.Module,
    *,
    rate: float,
    weight_decay: float = 0.0,
    lr_scales: Mapping[str, float] | None = None,
    undecayed: Collection[str] = (),
) -> list[Group]:
    """The parameters of `module` that are trained, as groups of one rate and one weight decay.

    Vectors and scalars (biases, the gains of norms) are not decayed: nothing is overfitted by
    their size, and a gain near zero switches its channel off.

    Parameters
    ----------
    lr_scales : factors of the rate by the start of parameters' names; the longest start counts.
        `{"backbone": 0.1}` trains `backbone.conv.weight` at a tenth
    undecayed : names of further parameters that are not decayed

    >>> module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    >>> groups = parameter_groups(module, rate=0.1, weight_decay=0.01, lr_scales={"1": 0.5})
    >>> [(group["lr"], group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 0.01, 1), (0.1, 0.0, 1), (0.05, 0.0, 2)]
    """
    lr_scales = dict(lr_scales or {})
    _check_lr_scales(module, lr_scales)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.ndim > 1 and name not in undecayed else 0.0
            groups.setdefault((rate * _lr_scale(name, lr_scales), decay), []).append(parameter)
    if not groups:
        raise InvalidSettingError("No parameter is to be trained: all of them are frozen.")
    return [
        {"params": parameters, "lr": lr, "weight_decay": decay}
        for (lr, decay), parameters in groups.items()
    ]


def _check_lr_scales(module: nn.Module, lr_scales: Mapping[str, float]) -> None:
    names = [name for name, _ in module.named_parameters()]
    for start in lr_scales:
        if not any(_starts(name, start) for name in names):
            raise unknown_name("part of the module", start, {name.split(".")[0] for name in names})


def _lr_scale(name: str, lr_scales: Mapping[str, float]) -> float:
    starts = [start for start in lr_scales if _starts(name, start)]
    return lr_scales[max(starts, key=len)] if starts else 1.0


def _starts(name: str, start: str) -> bool:
    """Whole words only: `head` is not the start of `header.weight`."""
    return name == start or name.startswith(f"{start}.")


def clip(parameters: Iterable[Tensor], most: float) -> float:
    """Shrink all gradients together so that their common norm is at most `most`; the norm before.

    >>> weight = torch.zeros(2, requires_grad=True)
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip([weight], 1.0), round(weight.grad.norm().item(), 4)
    (5.0, 1.0)
    """
    return float(nn.utils.clip_grad_norm_(parameters, most))
