"""Images for the tests of augmentation."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(9, 3, 8, 6, generator=torch.Generator().manual_seed(1))
