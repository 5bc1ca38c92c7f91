"""Optimizers: named, groups with their own rates, no decay for norms and biases, clipping."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.training.optimizers import OPTIMIZERS, clip, optimizer_of, parameter_groups


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
        module, parameter_groups(module, rate=1.0, weight_decay=0.01, lr_scales=lr_scales)
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
    found = by_name(module, parameter_groups(module, rate=1.0))
    assert set(found) == {"head.weight", "head.bias", "header.weight", "header.bias"}
    module.requires_grad_(False)
    with pytest.raises(InvalidSettingError, match="all of them are frozen"):
        parameter_groups(module, rate=1.0)


def test_a_pace_for_no_part_is_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'backbone'"):
        parameter_groups(Network(), rate=1.0, lr_scales={"backbon": 0.1})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_go_downhill_at_the_rate_of_their_group(name):
    slow, fast = (nn.Parameter(torch.tensor([4.0])) for _ in range(2))
    groups = [{"params": [slow], "lr": 0.001}, {"params": [fast], "lr": 0.01}]
    optimizer = optimizer_of(name, groups)
    for _ in range(5):
        optimizer.zero_grad()
        (slow.square() + fast.square()).sum().backward()
        optimizer.step()
    assert fast.item() < slow.item() < 4.0


def test_sgd_is_nesterov_momentum():
    place = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = optimizer_of("sgd", [{"params": [place], "lr": 0.1}])
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
        optimizer_of("adan", [])


@given(gradient=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), most=st.floats(0.01, 100.0))
def test_clipping_keeps_direction_and_bounds_the_norm(gradient, most):
    parameters = [torch.zeros(1, requires_grad=True) for _ in gradient]
    for parameter, value in zip(parameters, gradient, strict=True):
        parameter.grad = torch.tensor([value])
    norm = clip(parameters, most)
    assert norm == pytest.approx(math.hypot(*gradient), rel=1e-4, abs=1e-6)
    factor = min(1.0, most / norm) if norm else 1.0
    for parameter, value in zip(parameters, gradient, strict=True):
        assert parameter.grad.item() == pytest.approx(value * factor, rel=1e-3, abs=1e-5)
