"""A classifier in memory that is served: edits change the classifier, and can be undone."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidSettingError
from attnknn.model import FittedModel
from attnknn.serving.served_model import (
    ConflictError,
    Edit,
    ServedModel,
    refuse_empty,
    undo_target,
)
from attnknn.serving.state import State
from attnknn.storage.erasure import Receipt
from attnknn.storage.store.history import EditRecord, EntryChange, Snapshot, now

MAX_KEPT = 50  # models of earlier edits
EDITED = "Edited in Python"


class MemoryModel(ServedModel):
    """A classifier in memory. Nothing is written to the disk: save the classifier to keep it.

    Parameters
    ----------
    classifier : AttnKNNClassifier
        The fitted classifier, which edits change.
    by : str
        Who edits it in Python, for the log.
    """

    is_durable = False

    def __init__(self, classifier: AttnKNNClassifier, by: str) -> None:
        self.name, self._classifier, self._by = "classifier", classifier, by
        self._mark = secrets.token_hex(4)
        n_entries = len(classifier.memory_)
        message = f"Opened in memory with {n_entries:,} entries"
        self._log = [EditRecord(0, 0, now(), by, "create", message)]
        self._notes: dict[str, str] = {}
        self._models: dict[int, tuple[FittedModel, dict[str, str]]] = {0: (classifier.model_, {})}
        self._snapshots: dict[str, Snapshot] = {}
        self._changes: dict[int, list[EntryChange]] = {0: []}
        self._state = self._next_state()

    @property
    def state(self) -> State:
        return self._state

    def edit(self, edit: Edit) -> tuple[State, str]:
        self.refresh()
        self.refuse_conflict(edit)
        before, notes = self._classifier.model_, dict(self._notes)
        try:
            edit.change(self._classifier)
            refuse_empty(self._classifier)
            if edit.annotate is not None:
                edit.annotate(notes, self._classifier)
        except BaseException:
            self._classifier.model_ = before
            raise
        changes = _changes_between(before, self._classifier.model_)
        if not changes and notes == self._notes and edit.message != "Refitted":
            self._classifier.model_ = before
            return self._state, ""
        self._notes = notes
        return self._write(edit.by, "edit", edit.message or _description(changes), changes)

    def undo(self, by: str, expected_version: int | None) -> tuple[State, str]:
        self.refresh()
        self.refuse_other_version(expected_version)
        target = undo_target(self._log)
        if target is None:
            raise ConflictError("Nothing to undo: the classifier is in its original state.")
        before = self._log[target.edit - 1]
        message = f"Undid edit {target.edit}: {target.message}"
        return self._restore(before.edit, by, "undo", message, before.undo_target)

    def rollback(self, to: str | int, by: str, expected_version: int | None) -> tuple[State, str]:
        self.refresh()
        self.refuse_other_version(expected_version)
        if isinstance(to, str) and to not in self._snapshots:
            raise InvalidSettingError(f"There is no snapshot {to!r}.")
        edit = self._snapshots[to].edit if isinstance(to, str) else to
        if not 0 <= edit < len(self._log):
            raise InvalidSettingError(
                f"There is no edit {edit}; the last one is {len(self._log) - 1}."
            )
        name = f"snapshot {to}" if isinstance(to, str) else f"edit {to}"
        return self._restore(edit, by, "rollback", f"Rolled back to {name}", None)

    def take_snapshot(self, name: str, by: str) -> Snapshot:
        self.refresh()
        if not name.strip():
            raise InvalidSettingError("A snapshot must have a name.")
        if name in self._snapshots:
            raise InvalidSettingError(f"There is a snapshot {name!r} already. Choose another name.")
        taken = self._snapshots[name] = Snapshot(name, self.state.version, now(), by)
        return taken

    def erase(self, subject: str, by: str) -> tuple[State, Receipt | None]:
        self.refresh()
        before = self._classifier.model_
        try:
            self._classifier.forget(subject=subject)
            refuse_empty(self._classifier)
        except BaseException:
            self._classifier.model_ = before
            raise
        self._models, self._snapshots = {}, {}  # earlier models hold the entries
        erased = [change.id for change in _changes_between(before, self._classifier.model_)]
        self._changes = {
            edit: [change for change in changes if change.id not in erased]
            for edit, changes in self._changes.items()
        }
        state, _ = self._write(by, "erase", f"Erased {_count(len(erased))}", [])
        return state, None

    def log(self) -> list[EditRecord]:
        return list(self._log)

    def changes(self, edit: int) -> list[EntryChange]:
        if not 0 <= edit < len(self._log):
            raise InvalidSettingError(
                f"There is no edit {edit}; the last one is {len(self._log) - 1}."
            )
        return self._changes[edit]

    def added_by(self, state: State) -> dict[Any, int]:
        added = dict.fromkeys(state.classifier.memory_.entries.ids.tolist(), 0)
        for edit, changes in self._changes.copy().items():
            added |= {c.id: edit for c in changes if c.label_before is None and c.id in added}
        return added

    def snapshots(self) -> list[Snapshot]:
        return sorted(self._snapshots.values(), key=lambda one: one.edit)

    def refresh(self) -> bool:
        before, after = self._state.classifier.model_, self._classifier.model_
        if before is after:
            return False
        if before.encoder is not after.encoder:  # fitted again, on other rows perhaps
            self._mark, changes = secrets.token_hex(4), []
        else:
            changes = _changes_between(before, after)
        self._write(self._by, "edit", EDITED, changes)
        return True

    def release(self) -> None:
        """Nobody else edits the classifier through a file."""

    def _restore(
        self, edit: int, by: str, action: str, message: str, target: int | None
    ) -> tuple[State, str]:
        if edit not in self._models:
            raise ConflictError(
                f"The state after edit {edit} is not kept: in memory, only the last {MAX_KEPT} "
                "states are, and none from before an erasure."
            )
        before = self._classifier.model_
        self._classifier.model_, self._notes = self._models[edit]
        changes = _changes_between(before, self._classifier.model_)
        return self._write(by, action, message, changes, target)

    def _write(
        self,
        by: str,
        action: str,
        message: str,
        changes: list[EntryChange],
        target: int | None = None,
    ) -> tuple[State, str]:
        edit = len(self._log)
        own = edit if target is None else target
        self._log.append(EditRecord(edit, own, now(), by, action, message))
        self._changes[edit] = changes
        self._models[edit] = self._classifier.model_, dict(self._notes)
        named = {snapshot.edit for snapshot in self._snapshots.values()}
        for old in [one for one in self._models if one < edit - MAX_KEPT and one not in named]:
            del self._models[old]
        self._state = self._next_state()
        return self._state, message

    def _next_state(self) -> State:
        return State.of(self._classifier, len(self._log) - 1, self._mark, dict(self._notes))


def _changes_between(before: FittedModel, after: FittedModel) -> list[EntryChange]:
    """The entries that were added, removed or changed."""
    if before is after:
        return []
    old, new = _columns(before), _columns(after)
    ids = [*old, *(name for name in new if name not in old)]
    return [
        EntryChange(name, *_pair(old.get(name), new.get(name)), _payload(name, before, after))
        for name in ids
        if old.get(name) != new.get(name)
    ]


def _columns(model: FittedModel) -> dict[Any, tuple[Any, float]]:
    """Label and weight of each entry by its id."""
    entries = model.memory.entries
    decay = 1.0 if entries.decay is None else entries.decay
    weights = (entries.sample_weight * decay).tolist()
    labels = model.classes[entries.labels].tolist()
    return dict(zip(entries.ids.tolist(), zip(labels, weights, strict=True), strict=True))


def _pair(before: Any, after: Any) -> tuple[Any, Any, Any, Any]:
    old, new = before or (None, None), after or (None, None)
    return old[0], new[0], old[1], new[1]


def _payload(name: Any, before: FittedModel, after: FittedModel) -> Any:
    for model in (after, before):
        entries = model.memory.entries
        found = np.flatnonzero(entries.ids == name)
        if len(found) and entries.payloads is not None:
            return entries.payloads[found[0]]
    return None


def _description(changes: list[EntryChange]) -> str:
    """What an edit did, in words."""
    added = sum(change.label_before is None for change in changes)
    removed = sum(change.label_after is None for change in changes)
    counts = {"Added": added, "Removed": removed, "Relabeled": len(changes) - added - removed}
    parts = [f"{word} {_count(n)}" for word, n in counts.items() if n]
    words = ", ".join(parts)
    return words[:1] + words[1:].lower()


def _count(n: int) -> str:
    return f"{n:,} {'entry' if n == 1 else 'entries'}"
