"""A small model of a table, served in memory and from a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from attnknn import AttnKNNClassifier

from .samples import client_of, flowers


@pytest.fixture(scope="session")
def fitted() -> AttnKNNClassifier:
    return flowers()


@pytest.fixture
def folder(fitted: AttnKNNClassifier, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def client() -> Iterator[TestClient]:
    with client_of(flowers()) as client:
        yield client


@pytest.fixture
def durable(folder: Path) -> Iterator[TestClient]:
    with client_of(folder) as client:
        yield client
