"""A save or an edit that fails or is killed at any moment leaves a complete folder."""

from __future__ import annotations

import builtins
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.errors import ModelFolderError
from attnknn.storage import files
from attnknn.storage.folder import previous_path

from .samples import fitted, labels, quick, rows

OPERATIONS = ("mkdir", "rename", "fsync", "unlink", "rmdir")


class Killed(BaseException):
    """Simulates a process that was killed."""


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> Iterator[list[str]]:
    """The file operation number `at` fails; if the process was killed, so do all later ones."""
    done: list[str] = []

    def guarded(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            is_dead = isinstance(error, Killed) and len(done) > at
            done.append(name)
            if is_dead or len(done) == at + 1:
                raise error
            return operation(*arguments, **options)

        return run

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, guarded(name, getattr(os, name)))
        patch.setattr(builtins, "open", guarded("open", open))
        yield done


def old_and_new() -> tuple[AttnKNNClassifier, AttnKNNClassifier]:
    return quick().fit(rows(), labels()), quick().fit(rows() + 5, labels()[::-1])


def answers(classifier: AttnKNNClassifier) -> bytes:
    return classifier.predict_proba(rows(4, seed=1)).tobytes()


def load_quietly(path: Path) -> AttnKNNClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AttnKNNClassifier.load(path)


def count_operations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    old, new = old_and_new()
    old.save(tmp_path / "counted")
    with failing(monkeypatch, 10**6, OSError()) as done:
        new.save(tmp_path / "counted")
    return len(done)


def test_a_save_killed_at_any_file_operation_leaves_the_old_or_the_new_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    n_operations = count_operations(monkeypatch, tmp_path)
    assert n_operations > 30
    old, new = old_and_new()
    seen = set()
    for at in range(n_operations):
        path = tmp_path / f"killed {at}" / "model"
        old.save(path)
        with failing(monkeypatch, at, Killed()), pytest.raises(Killed):
            new.save(path)
        found = answers(load_quietly(path))
        assert found in (answers(old), answers(new))
        seen.add(found)
        new.save(path)  # the next save puts everything in order
        assert answers(AttnKNNClassifier.load(path)) == answers(new)
        assert os.listdir(path.parent) == ["model"]
    assert seen == {answers(old), answers(new)}


def test_a_save_that_fails_at_any_file_operation_leaves_the_old_model_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    n_operations = count_operations(monkeypatch, tmp_path)
    old, new = old_and_new()
    for at in range(n_operations):
        path = tmp_path / f"failed {at}" / "model"
        old.save(path)
        with failing(monkeypatch, at, OSError("No space left")) as done:
            try:
                new.save(path)
                expected = answers(new)  # only the clearing away of the old one failed
            except OSError:
                expected = answers(old)
        assert len(done) > at
        assert answers(AttnKNNClassifier.load(path)) == expected
        new.save(path)
        assert os.listdir(path.parent) == ["model"]


def test_a_first_save_that_fails_leaves_nothing(
    plain: AttnKNNClassifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for at in range(1, 15):
        with failing(monkeypatch, at, OSError("No space left")), pytest.raises(OSError):
            plain.save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []


def test_a_model_that_was_moved_aside_is_loaded_with_a_warning(saved: Path) -> None:
    saved.rename(previous_path(saved))
    with pytest.warns(UserWarning, match="was interrupted"):
        AttnKNNClassifier.load(saved)


def test_a_folder_in_place_wins_over_one_moved_aside(tmp_path: Path) -> None:
    old, new = old_and_new()
    new.save(tmp_path / "model")
    old.save(previous_path(tmp_path / "model"))
    assert answers(AttnKNNClassifier.load(tmp_path / "model")) == answers(new)


def test_a_folder_that_is_not_a_model_is_never_overwritten(
    plain: AttnKNNClassifier, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelFolderError, match=r"not a model folder \(it holds 'thesis.txt'\)"):
        plain.save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_files_that_somebody_put_into_a_model_folder_are_never_removed(
    plain: AttnKNNClassifier, saved: Path
) -> None:
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"also holds 'notes.txt'"):
        plain.save(saved)
    assert (saved / "notes.txt").exists()


def test_a_file_is_not_overwritten_by_a_folder(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ModelFolderError, match="is a file"):
        plain.save(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


def test_an_empty_folder_and_missing_parents_are_fine(
    plain: AttnKNNClassifier, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    plain.save(tmp_path / "empty")
    plain.save(tmp_path / "a" / "b" / "model")
    AttnKNNClassifier.load(tmp_path / "empty")
    AttnKNNClassifier.load(tmp_path / "a" / "b" / "model")


def test_a_link_to_a_model_stays_a_link(
    plain: AttnKNNClassifier, saved: Path, tmp_path: Path
) -> None:
    (tmp_path / "current").symlink_to(saved)
    plain.save(tmp_path / "current")
    assert (tmp_path / "current").is_symlink()
    AttnKNNClassifier.load(tmp_path / "current")


def test_names_with_patterns_in_them_clear_away_only_their_own(
    plain: AttnKNNClassifier, tmp_path: Path
) -> None:
    other = tmp_path / ".modelx.attnknn-saving-1234"
    other.mkdir()
    plain.save(tmp_path / "model*")
    plain.save(tmp_path / "[a-z]odelx")
    assert other.exists()


def test_only_leftovers_of_saves_are_cleared_away(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    theirs = {
        *(".model.attnknn-previous-of-mine", ".model.attnknn-saving-notes"),
        *(".model.attnknn-saving-0123abcde", ".model.attnknn-saving-0123ABCD"),
    }
    for name in {*theirs, ".model.attnknn-saving-0123abcd", ".model.attnknn-previous"}:
        (tmp_path / name).mkdir()
    plain.save(tmp_path / "model")
    assert set(os.listdir(tmp_path)) == {"model", *theirs}
    with open_for_editing(tmp_path / "model") as model:
        model.forget([1])
    assert set(os.listdir(tmp_path)) == {"model", *theirs}


CHILD = """
import sys
import numpy as np
from attnknn import AttnKNNClassifier
rows = np.random.default_rng(0).normal(size=(2000, 64))
models = [
    AttnKNNClassifier(4, attention="uniform").fit(rows + i, np.arange(2000) % 3) for i in (0, 1)
]
print("ready", flush=True)
while True:
    for model in models:
        model.save(sys.argv[1])
"""


@contextmanager
def saving_over_and_over(path: Path) -> Iterator[None]:
    """A process that saves to `path` until it is killed at the end of the block."""
    command = [sys.executable, "-c", CHILD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            while not path.exists():
                time.sleep(0.01)
            yield
        finally:
            child.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_process_killed_while_it_saves_leaves_a_complete_model(tmp_path: Path) -> None:
    path = tmp_path / "model"
    generator = np.random.default_rng(0)
    for _ in range(12):
        with saving_over_and_over(path):
            time.sleep(float(generator.uniform(0, 0.2)))
        assert len(load_quietly(path).memory_) == 2000


@pytest.mark.slow
def test_a_model_is_read_completely_and_without_a_warning_while_it_is_being_replaced(
    tmp_path: Path,
) -> None:
    with saving_over_and_over(tmp_path / "model"):
        for _ in range(300):
            assert len(AttnKNNClassifier.load(tmp_path / "model").memory_) == 2000


def test_a_folder_that_is_moved_away_as_it_is_opened_is_searched_for_again(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system reports "no such file" once, between two reads of the folder."""
    find, moves = files._find, list[Path]()

    def find_and_replace(path: Path, *, is_locked: bool) -> Path:
        found = find(path, is_locked=is_locked)
        if not moves:
            moves.append(saved.rename(saved.with_name("moved away")))
            shutil.copytree(moves[0], saved)
            return saved.with_name("gone")
        return found

    monkeypatch.setattr(files, "_find", find_and_replace)
    AttnKNNClassifier.load(saved)
    assert moves


def kill_writers(path: Path, n_kills: int, kind: str = "python", seed: int = 0) -> tuple[int, ...]:
    """How many writers were killed, how many had acknowledged an edit, and all edits."""
    fitted(memory="numpy").save(path)
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, str(script), str(path), str(n_kills), kind, str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=60 + n_kills
    )
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    n_kills, n_acknowledged, _ = kill_writers(tmp_path / "model", 8)
    assert n_kills == 8
    assert n_acknowledged >= 2


@pytest.mark.slow
def test_the_first_edit_may_be_killed(path: Path) -> None:
    script = (
        "import sys; from attnknn import open_for_editing; print('ready', flush=True); "
        "open_for_editing(sys.argv[1]).forget([1])"
    )
    for delay in (0.0, 0.03, 0.1):
        fitted().save(path, discard_history=True)
        command = [sys.executable, "-c", script, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(delay)
            process.kill()
        n_entries = len(AttnKNNClassifier.load(path).memory_)
        with open_for_editing(path) as model:
            assert (n_entries, len(model.log())) in ((40, 1), (39, 2))
