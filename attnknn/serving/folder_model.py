"""A model folder that is served: edits are durable, and edits of other processes are noticed.

There is one writer of a folder at a time. The server takes the right to write with the first edit
and keeps it while edits follow each other, because opening a model costs as much as reading it. It
gives the right back after a pause, and at the latest after some seconds, so that a command that
waits for it gets its turn between two edits.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import AttnKNNError, InvalidInputError, ModelFolderError
from attnknn.serving.served_model import ConflictError, Edit, ServedModel, refuse_empty, undo_target
from attnknn.serving.state import State
from attnknn.storage import has_store
from attnknn.storage.editor import (
    EditableModel,
    list_additions,
    list_changes,
    list_edits,
    list_snapshots,
    open_for_editing,
)
from attnknn.storage.erasure import Receipt
from attnknn.storage.files import read_model
from attnknn.storage.folder import MANIFEST
from attnknn.storage.store.changes import first_record
from attnknn.storage.store.head import read_head
from attnknn.storage.store.history import EditRecord, EntryChange, Snapshot
from attnknn.storage.unpacking import notes_of, unpack

WAIT = 5.0  # seconds to wait for an edit of another process
MAX_PAUSE = 3.0  # seconds without an edit after which others may write
MAX_HOLD = 10.0  # seconds after which others get a turn
TURN = 0.1  # seconds that the turn lasts; who waits looks every 0.02 seconds


class FolderModel(ServedModel):
    """The model in a folder.

    Parameters
    ----------
    path : Path
        The folder.
    by : str
        Who edits, unless an edit says otherwise.
    wait : float, default=WAIT
        Seconds to wait for the edit of another process.
    """

    is_durable = True

    def __init__(self, path: Path, by: str, wait: float = WAIT) -> None:
        self.path, self.name = path.resolve(), path.resolve().name
        self._by, self._wait = by, wait
        self._editor: EditableModel | None = None
        self._opened = self._used = self._released = -1e9
        self._mark_of_model = secrets.token_hex(4)
        self._seen = _mark(self.path)
        self._state = self._load()
        self._created = first_record(self._state.n_entries, by)

    @property
    def state(self) -> State:
        return self._state

    def edit(self, edit: Edit) -> tuple[State, str]:
        with _Lease(self, edit.by) as editor:
            self.refuse_conflict(edit)
            head, notes = editor.head, dict(editor.notes)
            try:
                with editor.edit(edit.message) as classifier:
                    edit.change(classifier)
                    refuse_empty(classifier)
                    if edit.annotate is not None:
                        edit.annotate(editor.notes, classifier)
            except BaseException:
                editor.notes = notes
                raise
            return self._state_of(editor), _last_message(editor) if editor.head > head else ""

    def undo(self, by: str, expected_version: int | None) -> tuple[State, str]:
        with _Lease(self, by) as editor:
            self.refuse_other_version(expected_version)
            if undo_target(editor.log()) is None:
                raise ConflictError(
                    "Nothing to undo: the model is in its original state, or the last edit is an "
                    "erasure. Roll back to an edit of the log for another state."
                )
            editor.undo()
            return self._state_of(editor), _last_message(editor)

    def rollback(self, to: str | int, by: str, expected_version: int | None) -> tuple[State, str]:
        with _Lease(self, by) as editor:
            self.refuse_other_version(expected_version)
            if not editor.has_store:
                raise ConflictError("Nothing to roll back: the model has not been edited.")
            editor.rollback(to)
            return self._state_of(editor), _last_message(editor)

    def take_snapshot(self, name: str, by: str) -> Snapshot:
        with _Lease(self, by) as editor:
            taken = editor.snapshot(name)
            self._seen = _mark(self.path)
            return taken

    def erase(self, subject: str, by: str) -> tuple[State, Receipt | None]:
        with _Lease(self, by) as editor:
            receipt = editor.forget(subject=subject)
            return self._state_of(editor), receipt

    def log(self) -> list[EditRecord]:
        return list_edits(self.path) or [self._created]

    def changes(self, edit: int) -> list[EntryChange]:
        if not has_store(self.path):
            _refuse_unknown(edit)
            return []
        return list_changes(self.path, edit)

    def added_by(self, state: State) -> dict[Any, int]:
        known = state.classifier.memory_.entries.ids.tolist()
        if not has_store(self.path):
            return dict.fromkeys(known, 0)
        found = list_additions(self.path)
        return {name: found[name] for name in known if name in found}

    def snapshots(self) -> list[Snapshot]:
        return list_snapshots(self.path)

    def refresh(self) -> bool:
        now = time.monotonic()
        if self._editor is not None and (
            now - self._used > MAX_PAUSE or now - self._opened > MAX_HOLD
        ):
            self.release()
        mark = _mark(self.path)
        if mark == self._seen:
            return False
        if mark[0] != self._seen[0]:  # the lock would be that of a removed folder
            self._drop()
            self._mark_of_model = secrets.token_hex(4)
        self._seen, self._state = mark, self._load()
        return True

    def release(self) -> None:
        if self._editor is not None:
            try:
                self._editor.cache_trust()  # for other processes that read the model
            finally:
                self._drop()

    def acquire(self, by: str) -> EditableModel:
        """The editor of the folder, opened if it is not."""
        now = time.monotonic()
        if self._editor is not None and now - self._opened > MAX_HOLD:
            self.release()
        if self._editor is None:
            time.sleep(max(0.0, TURN - (time.monotonic() - self._released)))
            self._editor = open_for_editing(self.path, by=self._by, wait=self._wait)
            self._opened = time.monotonic()
            if _mark(self.path) != self._seen:
                self._state_of(self._editor)
        self._editor.by, self._used = by, time.monotonic()
        return self._editor

    def recover(self) -> None:
        """Read the model again after an edit that failed, as it is on the disk."""
        self._drop()
        with contextlib.suppress(AttnKNNError, OSError):  # else `refresh` tries again
            mark = _mark(self.path)
            self._state, self._seen = self._load(), mark

    def _drop(self) -> None:
        editor, self._editor = self._editor, None
        if editor is not None:
            editor.close()
            self._released = time.monotonic()

    def _state_of(self, editor: EditableModel) -> State:
        self._seen = _mark(self.path)
        notes = dict(editor.notes)
        state = State.of(editor.classifier, editor.head, self._mark_of_model, notes)
        _warm(state)
        self._state = state
        return state

    def _load(self) -> State:
        classifier, notes, version = read_model(
            self.path,
            lambda folder: (
                unpack(folder, AttnKNNClassifier),
                notes_of(folder),
                int(getattr(folder, "edit", 0)),
            ),
        )
        state = State.of(classifier, version, self._mark_of_model, notes)
        _warm(state)
        return state


Mark = tuple[tuple[int, int, int], int]


def _mark(path: Path) -> Mark:
    """What tells states of a folder apart: the model in it, and the last commit of its store."""
    try:
        found = os.stat(path / MANIFEST)
        head = read_head(path) if has_store(path) else None
    except OSError:
        return (0, 0, 0), 0
    return (found.st_dev, found.st_ino, found.st_mtime_ns), head.commit if head else 0


class _Lease:
    """The right to write while an edit is made; after an error the folder is read again."""

    def __init__(self, model: FolderModel, by: str) -> None:
        self._model, self._by = model, by

    def __enter__(self) -> EditableModel:
        return self._model.acquire(self._by)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        is_ours = isinstance(error, AttnKNNError) and not isinstance(error, ModelFolderError)
        if error is not None and not is_ours:
            self._model.recover()


def _warm(state: State) -> None:
    """Compute what the first answer would have to wait for."""
    if state.n_entries:
        model = state.classifier.model_
        model.predict_proba(model.memory.vectors[np.arange(1)])


def _last_message(editor: EditableModel) -> str:
    return editor.log()[-1].message


def _refuse_unknown(edit: int) -> None:
    if edit != 0:
        raise InvalidInputError(f"There is no edit {edit}; the last one is 0.")
