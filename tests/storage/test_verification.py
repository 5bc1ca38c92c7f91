"""`verify` finds every damage of every state, and `backup` copies models that are in use."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnknn import AttnKNNClassifier, backup, open_for_editing, verify
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage.editor import list_edits

from .samples import assert_same, fitted, rows


@pytest.fixture
def edited(path: Path) -> Path:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        model.add(rows(2, seed=2), ["dog", "bee"])
        model.snapshot("monday")
        model.forget([2, 3])
        model.rollback("monday")
        model.forget(subject="person-5")
    return path


def test_intact_models_have_no_problems(path: Path, edited: Path, tmp_path: Path) -> None:
    fitted().save(tmp_path / "files")
    of_files, of_store = verify(tmp_path / "files"), verify(str(edited))
    assert of_files.problems == of_store.problems == []
    assert "the checksums of" in str(of_files)
    assert "of 6 states" in str(of_store)
    assert str(of_store).endswith("model is intact.")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            "update versions set label = '\"bee\"' where seq = 2 and until = 3",
            "checksums of 1 versions of entries do not",
        ),
        ("update rows set payload = 'x' where seq = 2", "checksums of 1 entries do not"),
        ("update parts set content = x'00' where until = 2", "of edit 0 is not what was written"),
        ("delete from versions where seq = 2 and until = 3", "34 entries after edit 0, but 35"),
        ("delete from log where edit = 2", "edit 2 is missing in the log"),
        ("update snapshots set edit = 77", "the edit of snapshot 'monday' is not in the log"),
        ("update parts set until = 4 where until = 2", "two of the same parts"),
        ("insert into cache values ('erasure', 5, x'')", "An erasure is not finished"),
    ],
)
def test_damage_of_earlier_states_is_found(edited: Path, harm: str, message: str) -> None:
    with sqlite3.connect(edited / "entries.sqlite") as database:
        changed = database.execute(harm).rowcount
    database.close()
    assert changed
    found = verify(edited)
    assert not found.is_intact
    assert message in str(found)


def test_every_changed_byte_of_a_file_is_found(path: Path, tmp_path: Path) -> None:
    for file in sorted(path.iterdir()):
        folder = shutil.copytree(path, tmp_path / f"with {file.name} changed")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        (folder / file.name).write_bytes(content)
        assert not verify(folder).is_intact
        with pytest.raises(ModelFolderError):
            backup(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not verify(tmp_path / "nothing").is_intact


def test_a_lost_edit_is_a_problem(edited: Path, tmp_path: Path) -> None:
    with open_for_editing(edited) as model:
        model.relabel([1], "bee")
        shutil.copytree(edited, tmp_path / "killed")
    (tmp_path / "killed" / "entries.sqlite-wal").unlink()
    found = verify(tmp_path / "killed")
    assert len(found.problems) == 1
    assert "edit 6 was acknowledged" in found.problems[0]
    with pytest.raises(ModelFolderError, match="edit 6 was acknowledged"):
        backup(tmp_path / "killed", tmp_path / "copy")


def test_a_backup_is_the_same_model_and_can_be_edited(edited: Path, tmp_path: Path) -> None:
    assert backup(edited, tmp_path / "copy").is_intact
    assert list_edits(tmp_path / "copy") == list_edits(edited)
    assert_same(AttnKNNClassifier.load(tmp_path / "copy"), AttnKNNClassifier.load(edited))
    with open_for_editing(tmp_path / "copy") as model:
        assert model.database.execute("pragma journal_mode").fetchone() == ("wal",)
        model.rollback("monday")
        model.undo()
    assert verify(tmp_path / "copy").is_intact
    assert len(list_edits(edited)) == 6


def test_a_backup_of_files_is_the_same_files(path: Path, tmp_path: Path) -> None:
    backup(path, tmp_path / "deep" / "copy")
    for file in path.iterdir():
        assert (tmp_path / "deep" / "copy" / file.name).read_bytes() == file.read_bytes()


def test_a_backup_replaces_nothing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("empty", "file", "model"):
        with pytest.raises(ModelFolderError, match="a backup replaces nothing"):
            backup(path, tmp_path / name)
    with pytest.raises(InvalidSettingError, match="inside the model folder"):
        backup(path, path / "copy")
    assert not list((tmp_path / "empty").iterdir())


WRITER = """
import sys
from attnknn import open_for_editing
with open_for_editing(sys.argv[1]) as model:
    turn = 0
    while True:
        turn += 1
        model.relabel([turn % 40], ["ant", "bee"][turn // 40 % 2])
        print(model.head, flush=True)
"""


@contextmanager
def writer_beside(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that edits the model until the end of the block."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_models_are_verified_and_copied_beside_a_writer(path: Path, tmp_path: Path) -> None:
    heads = []
    with writer_beside(path) as process:
        for turn in range(6):
            assert process.stdout is not None
            acknowledged = int(process.stdout.readline())
            assert verify(path).is_intact
            assert backup(path, tmp_path / f"copy {turn}").is_intact
            heads.append(list_edits(tmp_path / f"copy {turn}")[-1].edit)
            assert heads[-1] >= acknowledged
    assert heads == sorted(heads)
    assert heads[-1] > heads[0]
