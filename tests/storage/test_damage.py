"""A store with changed bytes is refused or predicts as before; it never predicts otherwise."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.errors import ModelFolderError
from attnknn.storage.store.schema import wrap_database_errors

from .samples import predict

PAGE = 4096


@pytest.fixture
def store(path: Path) -> Path:
    with open_for_editing(path) as model:
        model.relabel([3], "cat")
    assert not (path / "entries.sqlite-wal").exists()
    return path / "entries.sqlite"


def damages(content: bytes, rng: np.random.Generator) -> list[bytes]:
    """A zeroed page, a truncated file, and random bytes."""
    kept = np.frombuffer(content, dtype=np.uint8)
    found = []
    for start in range(0, len(kept), PAGE):
        found.append(kept.copy())
        found[-1][start : start + PAGE] = 0
        found.append(kept[: start + int(rng.integers(PAGE))])
        found.append(kept.copy())
        found[-1][start + rng.integers(PAGE, size=8)] ^= rng.integers(1, 256, 8).astype(np.uint8)
    return [each.tobytes() for each in found]


def test_no_damage_changes_predictions(store: Path, rng: np.random.Generator) -> None:
    expected = predict(AttnKNNClassifier.load(store.parent))
    n_refused = 0
    for content in damages(store.read_bytes(), rng):
        store.write_bytes(content)
        for name in ("-wal", "-shm"):
            store.with_name(store.name + name).unlink(missing_ok=True)
        try:
            np.testing.assert_array_equal(predict(AttnKNNClassifier.load(store.parent)), expected)
        except ModelFolderError:
            n_refused += 1
        with suppress(ModelFolderError), open_for_editing(store.parent) as model:
            np.testing.assert_array_equal(predict(model.classifier), expected)
    assert n_refused > 10


def test_damage_is_distinguished_from_other_failures(tmp_path: Path) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorname = "SQLITE_FULL"
    with (
        pytest.raises(ModelFolderError, match=r"fails \(database or disk is full\)"),
        wrap_database_errors(tmp_path),
    ):
        raise full
    with (
        pytest.raises(ModelFolderError, match=r"is damaged\. Restore a copy"),
        wrap_database_errors(tmp_path),
    ):
        raise sqlite3.DatabaseError("database disk image is malformed")
    with (
        pytest.raises(ModelFolderError, match=r"fails \(UNIQUE constraint failed\)"),
        wrap_database_errors(tmp_path),
    ):
        raise sqlite3.IntegrityError("UNIQUE constraint failed")
