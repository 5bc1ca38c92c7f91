"""A small stored model, whose rows belong to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from .samples import fitted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fitted().save(tmp_path / "model")
    return tmp_path / "model"
