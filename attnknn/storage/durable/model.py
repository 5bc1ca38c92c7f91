"""A stored model that is edited: every edit is on the disk when it is acknowledged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsIndex, overload

from numpy.typing import ArrayLike

from attnknn._atomic import all_or_nothing
from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage.durable.erasure import erase
from attnknn.storage.durable.receipt import Receipt
from attnknn.storage.folder import STORE, clear_leftovers
from attnknn.storage.locking import WriterLock
from attnknn.storage.packing import encoder_parts
from attnknn.storage.reading import refused_if_it_does_not_fit
from attnknn.storage.store import history
from attnknn.storage.store.changes import Change, Kept
from attnknn.storage.store.erasing import finish_erasure
from attnknn.storage.store.history import Edit, Snapshot, Touched
from attnknn.storage.store.schema import last_edit, open_to_write, refused_if_damaged, transaction
from attnknn.storage.store.state import StoredModel
from attnknn.storage.store.writing import write_change, write_trust
from attnknn.storage.unpacking import notes_of, unpack


class EditableModel:
    """A stored model that is open for editing; see `open_for_editing`.

    `classifier` is the model as it is now. Edit it through this object: what is done to the
    classifier alone is stored with the next edit, or lost.
    """

    def __init__(self, path: Path, by: str, wait: float = 0.0) -> None:
        self.path, self.by = path, by
        self._is_editing = self._is_closed = False
        with ExitStack() as held:
            held.callback(WriterLock(path, wait=wait).release)
            clear_leftovers(path)
            self.database: sqlite3.Connection = open_to_write(path)
            held.callback(self.database.close)
            self._opened = self._identity()
            with refused_if_damaged(path):
                finish_erasure(self.database, path)
            self.load()
            self._held = held.pop_all()

    def add(self, X: Any, y: Any, **told: Any) -> Self:
        """Remember more rows; takes what `AttnKNNClassifier.add` takes."""
        with self.edit():
            self.classifier.add(X, y, **told)
        return self

    def relabel(self, ids: ArrayLike, y: Any) -> Self:
        """Give entries other labels."""
        with self.edit():
            self.classifier.relabel(ids, y)
        return self

    @overload
    def forget(self, ids: ArrayLike) -> Self: ...

    @overload
    def forget(self, *, subject: str) -> Receipt: ...

    def forget(self, ids: ArrayLike | None = None, *, subject: str | None = None) -> Self | Receipt:
        """Remove the entries with these `ids`, or erase a `subject`.

        Entries that are forgotten by id stay in earlier states, and `undo` brings them back. The
        entries of a subject leave every state, the log, snapshots, free pages and cached
        embeddings of texts for good, and a receipt says what was done.
        """
        if (ids is None) == (subject is None):
            raise InvalidSettingError("Give `ids` or a `subject` to forget, one of the two.")
        if ids is None:
            self.check_writable("forget(subject=...)")
            return erase(self, str(subject))
        with self.edit():
            self.classifier.forget(ids)
        return self

    def refit(self) -> Self:
        """Fit attention, calibration and value head again."""
        with self.edit("Fitted again"):
            self.classifier.refit()
        return self

    @contextmanager
    def edit(self, words: str = "") -> Iterator[AttnKNNClassifier]:
        """Several edits of `classifier` as one: all are stored at the end of the block, or none.

        Parameters
        ----------
        words : for the log; by default what was added, relabeled and forgotten
        """
        if self._is_editing:
            yield self.classifier
            return
        self._is_editing = True
        try:
            with all_or_nothing(self.classifier):
                yield self.classifier
                self._commit(words)
        finally:
            self._is_editing = False

    def undo(self) -> Edit:
        """Take back the last edit that was not taken back yet; returns that edit."""
        self.check_writable("undo")
        with refused_if_damaged(self.path):
            undone, before = history.before_last_edit(self.database, self.path)
            self._read(before.edit)  # a state that cannot be read must not become the last
            history.undo(self.database, self.head, undone, before, self.by)
        self.load()
        return undone

    def rollback(self, to: str | SupportsIndex) -> Edit:
        """Bring back the state of a snapshot, or the one after the edit of a number."""
        self.check_writable("rollback")
        with refused_if_damaged(self.path):
            found = history.edit_of_snapshot(self.database, to) if isinstance(to, str) else to
            edit = history.check_edit(self.database, found)
            self._read(edit)
            name = f"snapshot {to}" if isinstance(to, str) else f"edit {edit}"
            done = history.roll_back(self.database, self.head, edit, self.by, name)
        self.load()
        return done

    def snapshot(self, name: str) -> Snapshot:
        """Give the state of now a name, to roll back to."""
        self.check_writable("snapshot")
        with refused_if_damaged(self.path):
            return history.take_snapshot(self.database, self.head, name, self.by)

    def snapshots(self) -> list[Snapshot]:
        """The states that have names."""
        with refused_if_damaged(self.path):
            return history.snapshots_of(self.database)

    def log(self) -> list[Edit]:
        """Who changed what when, the first edit first."""
        with refused_if_damaged(self.path):
            return history.log_of(self.database)

    def touched(self, edit: SupportsIndex) -> list[Touched]:
        """What an edit did to each entry."""
        with refused_if_damaged(self.path):
            return history.touched_by(self.database, edit)

    def keep_trust(self) -> None:
        """Store what answering needs to know of all entries, so that no reader computes it."""
        self.check_writable("keep_trust")
        trust = self.classifier._trust_of_all()
        if trust is not None:
            with refused_if_damaged(self.path), transaction(self.database, self.head):
                write_trust(self.database, trust, self.head)

    def close(self) -> None:
        """Let others edit; to close twice does no harm."""
        self._is_closed = True
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def load(self) -> None:
        """Make the classifier what the store says."""
        with refused_if_damaged(self.path), refused_if_it_does_not_fit(self.path):
            self.head = last_edit(self.database)
        stored, self.classifier = self._read(self.head)
        self.notes = notes_of(stored)
        self.seqs = stored.seqs
        self._encoder = encoder_parts(self.classifier)
        self._kept = Kept.of(self.classifier, self.notes, self._encoder)
        self._report = self.classifier.fit_report_

    def check_writable(self, method: str) -> None:
        """An error within `edit()`, and where another model has taken the place of this one."""
        if self._is_editing:
            raise InvalidSettingError(f"End the block of `edit()` before `{method}`.")
        self._check_in_place()

    def _check_in_place(self) -> None:
        if self._is_closed:
            raise InvalidSettingError("This model was closed; open it again for editing.")
        if self._identity() != self._opened:
            raise ModelFolderError(f"The model at {self.path} was replaced while it was edited.")

    def _read(self, edit: int) -> tuple[StoredModel, AttnKNNClassifier]:
        """The state after an edit."""
        with refused_if_damaged(self.path), refused_if_it_does_not_fit(self.path):
            self.database.execute("begin")
            try:
                stored = StoredModel(self.path, self.database, edit)
            finally:
                self.database.execute("rollback")
            return stored, unpack(stored, AttnKNNClassifier)

    def _commit(self, words: str) -> None:
        kept = Kept.of(self.classifier, self.notes, self._encoder)
        change = Change.between(self._kept, kept)
        if change.is_none:
            return
        self._check_in_place()
        with refused_if_damaged(self.path):
            self.seqs = write_change(
                self.database,
                change,
                kept,
                self.seqs,
                self.head,
                by=self.by,
                words=words or change.words(),
                is_refit=self.classifier.fit_report_ is not self._report,
            )
        self._kept, self.head = kept, self.head + 1
        self._report = self.classifier.fit_report_

    def _identity(self) -> tuple[int, int] | None:
        """What tells the store from another one in its place; None if there is none."""
        try:
            found = os.stat(self.path / STORE)
        except OSError:
            return None
        return found.st_dev, found.st_ino
