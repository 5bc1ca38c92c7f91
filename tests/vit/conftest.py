"""Shared fixtures: seeded tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def randn() -> Callable[..., Tensor]:
    """Normal numbers of a shape, float64, from one generator per test."""
    generator = torch.Generator().manual_seed(0)

    def make(*shape: int, grad: bool = False) -> Tensor:
        made = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return made.requires_grad_(grad)

    return make


@pytest.fixture
def two_threads(monkeypatch) -> None:
    """Images are shared between two threads, as without a limit by the environment."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


@pytest.fixture(autouse=True)
def _seeded():
    """Layers draw initial weights from torch's generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
