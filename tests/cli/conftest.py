"""A fitted model and files of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from .samples import animals, fit_quickly, write


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return write(animals(), tmp_path / "train.csv")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write(animals(9, seed=1).drop(columns="kind"), tmp_path / "rows.csv")


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    return write(animals(12, seed=2), tmp_path / "labeled.csv")


@pytest.fixture
def model(train: Path, tmp_path: Path) -> Path:
    fit_quickly(train, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def without_pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their PDF files, which take half the time; tests/reports looks at those."""
    monkeypatch.setattr(
        "attnknn.research.reports.writing._write_book", lambda path, *_: path.touch()
    )
    monkeypatch.setattr("attnknn.research.reports.writing.as_bytes", lambda *_: b"")
