"""What the tests of the memories share."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.memory import selection, torch_memory


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def products_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest search goes through the matrix product."""
    monkeypatch.setattr(torch_memory, "SMALL", 0)


@pytest.fixture
def many_blocks(products_always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that a short test crosses many of their borders, multiplied by torch."""
    monkeypatch.setattr(selection, "SMALL_PRODUCT", 0)
    monkeypatch.setattr(torch_memory, "ROWS", 8)
    monkeypatch.setattr(torch_memory, "COLUMNS", 256)
    monkeypatch.setattr(selection, "MIN_PART", 1)
