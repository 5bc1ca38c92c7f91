"""Adam, AdamW and SGD, and parameter groups with their own learning rate and weight decay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from attnknn._validation import check_choice
from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.training.config import OPTIMIZERS

Group = dict[str, Any]


def make_optimizer(name: str, groups: list[Group]) -> torch.optim.Optimizer:
    """The optimizer called `name` over parameter groups, each with its own `lr`.

    >>> groups = [{"params": nn.Linear(1, 1).parameters(), "lr": 0.1}]
    >>> make_optimizer("sgd", groups).defaults["nesterov"]
    True
    """
    check_choice("optimizer", name, OPTIMIZERS)
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, nesterov=True, weight_decay=0.0)
    if name == "adam":
        return torch.optim.Adam(groups, weight_decay=0.0)
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)


def parameter_groups(
    module: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    lr_scales: Mapping[str, float] | None = None,
    undecayed: Collection[str] = (),
) -> list[Group]:
    """Trainable parameters of `module` in groups of one learning rate and one weight decay.

    Vectors and scalars (biases, gains of norms) are not decayed: their size does not overfit, and a
    gain near zero switches its channel off.

    Parameters
    ----------
    lr_scales : factors of the learning rate by prefix of parameter names; the longest prefix
        counts. `{"backbone": 0.1}` trains `backbone.conv.weight` at a tenth
    undecayed : names of further parameters that are not decayed

    >>> module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    >>> groups = parameter_groups(
    ...     module, learning_rate=0.1, weight_decay=0.01, lr_scales={"1": 0.5}
    ... )
    >>> [(group["lr"], group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 0.01, 1), (0.1, 0.0, 1), (0.05, 0.0, 2)]
    """
    lr_scales = dict(lr_scales or {})
    names = [name for name, _ in module.named_parameters()]
    for prefix in lr_scales:
        if not any(_has_prefix(name, prefix) for name in names):
            raise unknown_name("part of the module", prefix, {name.split(".")[0] for name in names})
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.ndim > 1 and name not in undecayed else 0.0
            prefixes = [prefix for prefix in lr_scales if _has_prefix(name, prefix)]
            scale = lr_scales[max(prefixes, key=len)] if prefixes else 1.0
            groups.setdefault((learning_rate * scale, decay), []).append(parameter)
    if not groups:
        raise InvalidSettingError("No parameter is trainable: all of them are frozen.")
    return [
        {"params": parameters, "lr": lr, "weight_decay": decay}
        for (lr, decay), parameters in groups.items()
    ]


def _has_prefix(name: str, prefix: str) -> bool:
    """Whole words only: `head` is not a prefix of `header.weight`."""
    return name == prefix or name.startswith(f"{prefix}.")
