"""A store with changed bytes is refused or predicts as before; it never predicts otherwise."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.errors import ModelFolderError
from attnknn.storage.store.changes import write_trust
from attnknn.storage.store.schema import transaction, wrap_database_errors

from .samples import assert_same, labels, predict, rows

PAGE = 4096
WAL_HEADER, FRAME = 32, 24 + PAGE
LOST = r"was acknowledged, but entries\.sqlite can be read only up to edit \d"


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


def leave_as_killed(path: Path, killed: Path) -> list[AttnKNNClassifier]:
    """Copy what a writer leaves that is killed after some edits; returns the state after each."""
    with open_for_editing(path) as model:
        states = [AttnKNNClassifier.load(path)]
        for edit in (
            lambda: model.relabel([1], "cat"),
            lambda: model.add(rows(30, seed=2), labels(30)),
            lambda: model.forget([2, 3]),
            lambda: model.undo(),
            lambda: model.rollback(1),
        ):
            edit()
            states.append(AttnKNNClassifier.load(path))
        shutil.copytree(path, killed)
    return states


def wal_damages(wal: bytes, rng: np.random.Generator) -> Iterator[bytes | None]:
    """For each frame a flipped bit and a truncation before it; no file, a flip in the header."""
    yield None
    for start in (0, *range(WAL_HEADER, len(wal), FRAME)):
        yield wal[:start]
        size = FRAME if start else WAL_HEADER
        flipped = bytearray(wal)
        flipped[start + int(rng.integers(size))] ^= 1 << int(rng.integers(8))
        yield bytes(flipped)


def test_a_store_whose_log_of_writes_is_damaged_anywhere_is_refused_and_can_be_recovered(
    path: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    states = leave_as_killed(path, tmp_path / "killed")
    wal = (tmp_path / "killed" / "entries.sqlite-wal").read_bytes()
    assert (len(wal) - WAL_HEADER) % FRAME == 0
    assert len(wal) > 20 * FRAME
    seen = set()
    for number, damaged in enumerate(wal_damages(wal, rng)):
        folder = shutil.copytree(tmp_path / "killed", tmp_path / f"damaged {number}")
        file = folder / "entries.sqlite-wal"
        (folder / "entries.sqlite-shm").unlink()
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(ModelFolderError, match=LOST):
            AttnKNNClassifier.load(folder)
        with pytest.raises(ModelFolderError, match=LOST):
            open_for_editing(folder)
        assert damaged in (None, b"") or file.read_bytes() == damaged  # it can be examined
        with open_for_editing(folder, by="ann", recover=True) as model:
            line = model.log()[-1]
            assert (line.action, line.by) == ("recover", "ann")
            kept = line.edit - 1
            assert line.message == (
                f"Recovered the state after edit {kept}; later edits up to 5 are lost"
            )
            assert_same(model.classifier, states[kept])
            model.relabel([5], "ant")
        assert len(AttnKNNClassifier.load(folder).memory_) == len(states[kept].memory_)
        seen.add(kept)
    assert seen == {0, 1, 2, 3, 4}


def test_a_lost_snapshot_is_noticed(path: Path) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
    with open_for_editing(path) as model:
        model.snapshot("monday")
        shutil.copytree(path, path.with_name("killed"))
    (path.with_name("killed") / "entries.sqlite-wal").unlink()
    with pytest.raises(ModelFolderError, match=r"a snapshot was acknowledged, but .* edit 1"):
        AttnKNNClassifier.load(path.with_name("killed"))


def test_a_lost_cache_of_trust_is_not_a_lost_edit(path: Path) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
    with open_for_editing(path) as model:
        with transaction(model.database):
            write_trust(model.database, np.ones(40), model.head)
        shutil.copytree(path, path.with_name("killed"))
    (path.with_name("killed") / "entries.sqlite-wal").unlink()
    AttnKNNClassifier.load(path.with_name("killed"))


def test_a_writer_killed_before_it_notes_an_edit_leaves_a_store_that_opens(
    path: Path, tmp_path: Path
) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        before = (path / "head.jsonl").read_bytes()
        model.relabel([2], "bee")
        shutil.copytree(path, tmp_path / "killed")
    (tmp_path / "killed" / "head.jsonl").write_bytes(before)
    AttnKNNClassifier.load(tmp_path / "killed")
    with open_for_editing(tmp_path / "killed", recover=True) as model:
        assert [line.action for line in model.log()] == ["create", "edit", "edit"]
        head = (tmp_path / "killed" / "head.jsonl").read_text().splitlines()
        assert max(json.loads(line)["edit"] for line in head) == 2


def test_one_damaged_line_of_the_note_is_spared_and_two_are_refused(store: Path) -> None:
    head = store.parent / "head.jsonl"
    content = head.read_bytes()
    for start in (0, 512):
        head.write_bytes(content[:start] + b"torn" + content[start + 4 :])
        AttnKNNClassifier.load(store.parent)
    for content in (b"", b"\0" * 1024, b"[" * 5000, b'{"commit": "x"}', b"7"):
        head.write_bytes(content)
        with pytest.raises(ModelFolderError, match=r"head\.jsonl is missing or damaged"):
            AttnKNNClassifier.load(store.parent)
    head.unlink()
    with pytest.raises(ModelFolderError, match=r"head\.jsonl is missing or damaged"):
        open_for_editing(store.parent)
    with open_for_editing(store.parent, recover=True) as model:
        assert model.log()[-1].message == "Recovered the state after edit 1"
        model.undo()
        assert model.log()[-1].message == "Undid edit 1: Relabeled 1 entry"
    AttnKNNClassifier.load(store.parent)


def test_a_changed_last_line_of_the_log_is_refused(store: Path) -> None:
    database = sqlite3.connect(store)
    database.execute("update log set next_id = next_id + 1 where edit = 1")
    database.commit()
    database.close()
    with pytest.raises(ModelFolderError, match=r"edit 1 in the log .* is not what was written"):
        AttnKNNClassifier.load(store.parent)


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
