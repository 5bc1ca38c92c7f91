"""An edit that was saved can be taken back, whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from attnknn import AttnKNNClassifier
from attnknn.errors import ModelFolderError
from attnknn.storage import save_classifier, undo_edit, version_of

from .samples import labels, quick, rows
from .test_crashes import Killed, answers, failing, load_quietly


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def edited(path: Path) -> AttnKNNClassifier:
    return AttnKNNClassifier.load(path).forget([0])


def save_edit(path: Path) -> AttnKNNClassifier:
    new = edited(path)
    save_classifier(new, path, edits=version_of(path))
    return new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    quick().fit(rows(), labels()).save(tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_of_before_comes_back_to_the_last_byte(path: Path) -> None:
    before = files_of(path)
    save_edit(path)
    assert files_of(path) != before
    undo_edit(path)
    assert files_of(path) == before
    assert os.listdir(path.parent) == ["model"]


def test_only_the_last_edit_can_be_taken_back_and_once(path: Path) -> None:
    save_edit(path)
    once = files_of(path)
    new = AttnKNNClassifier.load(path).forget([1])
    save_classifier(new, path, edits=version_of(path))
    undo_edit(path)
    assert files_of(path) == once
    with pytest.raises(ModelFolderError, match="There is no edit of"):
        undo_edit(path)


def test_a_save_that_is_no_edit_cannot_be_taken_back(path: Path) -> None:
    save_edit(path)
    quick().fit(rows() + 5, labels()).save(path)
    assert os.listdir(path.parent) == ["model"]
    with pytest.raises(ModelFolderError, match="There is no edit of"):
        undo_edit(path)


def test_another_model_put_in_its_place_is_not_undone(path: Path, tmp_path: Path) -> None:
    save_edit(path)
    os.rename(path, tmp_path / "elsewhere")
    quick().fit(rows() + 5, labels()).save(tmp_path / "other")
    os.rename(tmp_path / "other", path)
    with pytest.raises(ModelFolderError, match="There is no edit of"):
        undo_edit(path)


def test_an_edit_of_a_model_that_was_replaced_meanwhile_is_refused(path: Path) -> None:
    version, mine = version_of(path), edited(path)
    save_edit(path)
    theirs = files_of(path)
    with pytest.raises(ModelFolderError, match="was replaced while it was being edited"):
        save_classifier(mine, path, edits=version)
    assert files_of(path) == theirs


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="There is no model folder"):
        undo_edit(tmp_path / "model")


@pytest.mark.parametrize("does", ["edit", "undo"])
def test_a_process_killed_at_any_file_operation_leaves_before_or_after(
    does: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = quick().fit(rows(), labels())
    new = quick().fit(rows(), labels()).forget([0])

    def prepare(path: Path) -> Path:
        old.save(path)
        if does == "undo":
            save_classifier(new, path, edits=version_of(path))
        return path

    def act(path: Path) -> None:
        if does == "undo":
            undo_edit(path)
        else:
            save_classifier(new, path, edits=version_of(path))

    counted = prepare(tmp_path / "counted")
    with failing(monkeypatch, 10**6, OSError()) as done:
        act(counted)
    seen = set()
    for at in range(len(done)):
        path = prepare(tmp_path / f"killed {at}" / "model")
        with failing(monkeypatch, at, Killed()) as tried, suppress(Killed):
            act(path)
        assert len(tried) > at
        found = answers(load_quietly(path))
        assert found in (answers(old), answers(new))
        seen.add(found)
        try:
            undo_edit(path)  # never more than the one edit
            assert answers(AttnKNNClassifier.load(path)) == answers(old)
        except ModelFolderError:
            assert answers(load_quietly(path)) in (answers(old), answers(new))
    assert seen == {answers(old), answers(new)}
