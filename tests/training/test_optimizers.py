"""Optimizers: named, groups with their own rates, no decay for norms and biases, clipping."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.training.config import OPTIMIZERS
from attnknn.training.optimizers import make_optimizer, parameter_groups


class Network(nn.Module):
    """A backbone, a norm, and two parts whose names begin alike."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 2)
        self.header = nn.Linear(4, 2)


def by_name(module, groups):
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {
        names[id(parameter)]: (group["lr"], group["weight_decay"])
        for group in groups
        for parameter in group["params"]
    }


def test_every_parameter_has_its_rate_and_decay():
    module = Network()
    lr_scales = {"backbone": 0.1, "backbone.1": 0.5, "head": 2.0}
    found = by_name(
        module, parameter_groups(module, learning_rate=1.0, weight_decay=0.01, lr_scales=lr_scales)
    )
    assert found == {
        "backbone.0.weight": (0.1, 0.01),
        "backbone.0.bias": (0.1, 0.0),
        "backbone.1.weight": (0.5, 0.0),
        "backbone.1.bias": (0.5, 0.0),
        "head.weight": (2.0, 0.01),
        "head.bias": (2.0, 0.0),
        "header.weight": (1.0, 0.01),
        "header.bias": (1.0, 0.0),
    }


def test_frozen_parameters_are_left_out():
    module = Network()
    module.backbone.requires_grad_(False)
    found = by_name(module, parameter_groups(module, learning_rate=1.0))
    assert set(found) == {"head.weight", "head.bias", "header.weight", "header.bias"}
    module.requires_grad_(False)
    with pytest.raises(InvalidSettingError, match="all of them are frozen"):
        parameter_groups(module, learning_rate=1.0)


def test_an_lr_scale_for_no_part_is_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'backbone'"):
        parameter_groups(Network(), learning_rate=1.0, lr_scales={"backbon": 0.1})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_go_downhill_at_the_rate_of_their_group(name):
    slow, fast = (nn.Parameter(torch.tensor([4.0])) for _ in range(2))
    groups = [{"params": [slow], "lr": 0.001}, {"params": [fast], "lr": 0.01}]
    optimizer = make_optimizer(name, groups)
    for _ in range(5):
        optimizer.zero_grad()
        (slow.square() + fast.square()).sum().backward()
        optimizer.step()
    assert fast.item() < slow.item() < 4.0


def test_sgd_is_nesterov_momentum():
    place = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = make_optimizer("sgd", [{"params": [place], "lr": 0.1}])
    expected, speed = 1.0, 0.0
    for _ in range(4):
        optimizer.zero_grad()
        place.square().sum().backward()
        optimizer.step()
        speed = 0.9 * speed + 2 * expected
        expected -= 0.1 * (2 * expected + 0.9 * speed)
    assert place.item() == pytest.approx(expected)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(InvalidSettingError, match="No optimizer is called 'adan'"):
        make_optimizer("adan", [])
