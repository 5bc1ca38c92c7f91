"""Edit a stored model: every acknowledged edit is on the disk, in a log, and can be undone."""

from __future__ import annotations

import getpass
import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike

from attnknn._atomic import all_or_nothing
from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage import has_store, is_model, load_classifier, load_notes
from attnknn.storage.erasure import Receipt, erase_subject
from attnknn.storage.files import wrap_content_errors
from attnknn.storage.folder import (
    MANIFEST,
    as_address,
    clear_leftovers,
    fingerprint,
    replace_folder,
)
from attnknn.storage.locking import WriterLock
from attnknn.storage.packing import encoder_parts, pack
from attnknn.storage.store import history
from attnknn.storage.store.changes import (
    Change,
    ModelState,
    first_record,
    write_change,
    write_store,
    write_trust,
)
from attnknn.storage.store.erasing import finish_erasure
from attnknn.storage.store.head import sync_head
from attnknn.storage.store.history import EditRecord, EntryChange, Snapshot
from attnknn.storage.store.schema import (
    last_edit,
    open_to_read,
    open_to_write,
    transaction,
    wrap_database_errors,
)
from attnknn.storage.store.state import StoredModel
from attnknn.storage.unpacking import check_loadable, notes_of, unpack


def open_for_editing(
    path: str | Path, *, by: str | None = None, wait: float = 0.0, recover: bool = False
) -> EditableModel:
    """Open a saved model for editing on the disk, with a log, snapshots and undo.

    With the first edit or snapshot, the entries move into a store, one SQLite file in the same
    folder, which `AttnKNNClassifier.load` reads like any model. There is one writer at a time.
    Readers see the state after the last acknowledged edit and do not wait.

    Parameters
    ----------
    path : str or Path
        The folder that `AttnKNNClassifier.save` wrote.
    by : str, default=None
        Who edits, for the log; None is the name of the current user.
    wait : float, default=0.0
        How many seconds to wait for another writer before the call fails.
    recover : bool, default=False
        Whether to open a model that lost acknowledged edits because its files were damaged or
        removed. The last state that can be read is accepted, and the log records this. A model
        that lost no edits is opened as usual.

    Returns
    -------
    EditableModel
        The model; use it in a `with` statement, or call its `close`.

    Raises
    ------
    ModelBusyError
        If another process is still editing the model after `wait` seconds.
    ModelFolderError
        If the folder is missing, damaged, foreign or hostile.

    Examples
    --------
    >>> import tempfile
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(folder + "/model")
    ...     with open_for_editing(folder + "/model", by="ann") as model:
    ...         _ = model.relabel([1], "b")
    ...         _ = model.undo()
    ...         print(model.log()[-1].message)
    Undid edit 1: Relabeled 1 entry
    """
    if as_address(path) is not None:
        raise InvalidSettingError(
            "A model in a database is edited from Python: `AttnKNNClassifier.load(address)`, then "
            "`add`, `forget` or `relabel`, each of which is written at once."
        )
    path = Path(path).resolve()
    by = _user_name() if by is None else by
    if not by.strip():
        raise InvalidSettingError("`by` must be a name, for the log.")
    if not has_store(path):
        clear_leftovers(path)
    if not is_model(path):
        load_notes(path)  # raises the error that says what it is
    return EditableModel(path, by, wait, recover=recover)


def list_edits(path: str | Path) -> list[EditRecord]:
    """The log of the model at `path`; empty if it was never edited."""
    with _open_history(path) as database:
        return [] if database is None else history.read_log(database)


def list_snapshots(path: str | Path) -> list[Snapshot]:
    """The snapshots of the model at `path`."""
    with _open_history(path) as database:
        return [] if database is None else history.read_snapshots(database)


def list_changes(path: str | Path, edit: SupportsIndex) -> list[EntryChange]:
    """What an edit of the model at `path` did to each entry."""
    with _open_history(path) as database:
        if database is None:
            raise InvalidSettingError(f"{path} has never been edited.")
        return history.read_changes(database, edit)


def list_additions(path: str | Path) -> dict[Any, int]:
    """The edit that added each entry of the model at `path`, by id; 0 for those of `fit`."""
    with _open_history(path) as database:
        return {} if database is None else history.read_additions(database)


@contextmanager
def _open_history(path: str | Path) -> Iterator[sqlite3.Connection | None]:
    """Open the store of a model to read; None if it was never edited."""
    path = Path(path).resolve()
    if not is_model(path):
        raise ModelFolderError(f"There is no model folder at {path}.")
    if not has_store(path):
        yield None
        return
    with open_to_read(path) as database:
        yield database


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


class EditableModel:
    """A stored model that is open for editing; `open_for_editing` returns it.

    Edit through this object. Changes made to `classifier` directly are stored with the next edit,
    or lost.

    Attributes
    ----------
    classifier : AttnKNNClassifier
        The model in its current state.
    path : Path
        The model folder.
    by : str
        Who edits, for the log.
    head : int
        The number of the last edit.
    notes : dict of str to str
        The texts that were saved with the model.
    recovered : EditRecord or None
        The line of the log about lost edits, if the model was opened with `recover=True` and had
        lost any.
    """

    def __init__(self, path: Path, by: str, wait: float = 0.0, *, recover: bool = False) -> None:
        self.path, self.by = path, by
        self._is_editing = self._is_closed = False
        self._database: sqlite3.Connection | None = None  # until a folder of files is edited
        self.recovered: EditRecord | None = None
        with ExitStack() as stack:
            self._resources = stack
            self._lock = WriterLock(path, wait=wait)
            stack.callback(self._unlock)
            clear_leftovers(path)
            if has_store(path):
                self._open_store(recover=recover)
            self.load()
            self._resources = stack.pop_all()

    @property
    def has_store(self) -> bool:
        """Whether the entries are in a store; False until a folder of files is edited."""
        return self._database is not None

    @property
    def database(self) -> sqlite3.Connection:
        """The store; it is created when it is first needed."""
        if self._database is None:
            self._create_store()
        assert self._database is not None
        return self._database

    def add(self, X: Any, y: Any, **metadata: Any) -> Self:
        """Add rows to the memory.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.
        y : array-like of shape (n_rows,)
            Their labels; new classes are allowed.
        **metadata : array-like
            Ids, groups, subjects, sample weights and payloads, as in `AttnKNNClassifier.add`.

        Returns
        -------
        EditableModel
            The model itself.
        """
        with self.edit():
            self.classifier.add(X, y, **metadata)
        return self

    def relabel(self, ids: ArrayLike, y: Any) -> Self:
        """Change the labels of entries.

        Entries that already have the given label are not changed and not logged.

        Parameters
        ----------
        ids : array-like of shape (n_entries,)
            The ids of the entries.
        y : array-like of shape (n_entries,) or label
            The new labels, or one label for all.

        Returns
        -------
        EditableModel
            The model itself.
        """
        with self.edit():
            self.classifier.relabel(ids, y)
        return self

    @overload
    def forget(self, ids: ArrayLike) -> Self: ...

    @overload
    def forget(self, *, subject: str, receipt: str | Path | None = None) -> Receipt: ...

    def forget(
        self,
        ids: ArrayLike | None = None,
        *,
        subject: str | None = None,
        receipt: str | Path | None = None,
    ) -> Self | Receipt:
        """Remove entries by id, or erase all entries of a person.

        Entries removed by id remain in earlier states, and `undo` restores them. The entries of a
        subject are erased for good: from every state, the log, snapshots, free pages of the file
        and cached embeddings of texts and images.

        Parameters
        ----------
        ids : array-like of shape (n_entries,), default=None
            The ids of the entries to remove.
        subject : str, default=None
            The person to erase; give either `ids` or `subject`.
        receipt : str or Path, default=None
            A JSON file to write the receipt to; an existing one is replaced. Until it is on the
            disk, the store keeps what it needs of the receipt, and the same call returns it again.
            Without a file, the receipt counts as delivered when the call returns.

        Returns
        -------
        EditableModel or Receipt
            The model itself, or for a subject a receipt of what was erased and verified.

        Raises
        ------
        ReceiptError
            If the entries were erased, but `receipt` could not be written.
        """
        if (ids is None) == (subject is None):
            raise InvalidSettingError("Give `ids` or a `subject` to forget, one of the two.")
        if receipt is not None and subject is None:
            raise InvalidSettingError("`receipt` requires a `subject`.")
        if ids is None:
            self._check_writable("forget(subject=...)")
            return erase_subject(self, str(subject), None if receipt is None else Path(receipt))
        with self.edit():
            self.classifier.forget(ids)
        return self

    def refit(self) -> Self:
        """Fit attention, calibration and value head again on the current entries.

        Returns
        -------
        EditableModel
            The model itself.
        """
        with self.edit("Refitted"):
            self.classifier.refit()
        return self

    @contextmanager
    def edit(self, message: str = "") -> Iterator[AttnKNNClassifier]:
        """Combine several edits into one: at the end of the block all are stored, or none.

        Parameters
        ----------
        message : str, default=""
            For the log; the default counts what was added, relabeled and forgotten.

        Yields
        ------
        AttnKNNClassifier
            The classifier to edit.
        """
        if self._is_editing:
            yield self.classifier
            return
        self._is_editing = True
        try:
            with all_or_nothing(self.classifier):
                yield self.classifier
                self._commit(message)
        finally:
            self._is_editing = False

    def undo(self) -> EditRecord:
        """Undo the last edit that was not undone yet.

        Returns
        -------
        EditRecord
            The edit that was undone.
        """
        self._check_writable("undo")
        self._check_edited("undo")
        with wrap_database_errors(self.path):
            undone, before = history.find_undo(self.database, self.path)
            self._read(before.edit)  # a state that cannot be read must not become the last one
            history.undo(self.database, self.head, undone, before, self.by)
        self.load()
        return undone

    def rollback(self, to: str | SupportsIndex) -> EditRecord:
        """Restore the state of a snapshot or the state after an edit; `undo` takes it back.

        Parameters
        ----------
        to : str or int
            The name of a snapshot, or the number of an edit.

        Returns
        -------
        EditRecord
            The new line of the log.
        """
        self._check_writable("rollback")
        self._check_edited("roll back")
        with wrap_database_errors(self.path):
            found = history.edit_of_snapshot(self.database, to) if isinstance(to, str) else to
            edit = history.check_edit(self.database, found)
            self._read(edit)
            name = f"snapshot {to}" if isinstance(to, str) else f"edit {edit}"
            done = history.roll_back(self.database, self.head, edit, self.by, name)
        self.load()
        return done

    def snapshot(self, name: str) -> Snapshot:
        """Save the current state as a snapshot, to roll back to.

        Parameters
        ----------
        name : str
            A name that no other snapshot has.

        Returns
        -------
        Snapshot
            The snapshot.
        """
        self._check_writable("snapshot")
        if not name.strip():
            raise InvalidSettingError("A snapshot must have a name.")
        with wrap_database_errors(self.path):
            return history.take_snapshot(self.database, self.head, name, self.by)

    def snapshots(self) -> list[Snapshot]:
        """List the snapshots.

        Returns
        -------
        list of Snapshot
            Ordered by edit.
        """
        if not self.has_store:
            return []
        with wrap_database_errors(self.path):
            return history.read_snapshots(self.database)

    def log(self) -> list[EditRecord]:
        """List who changed what and when.

        Returns
        -------
        list of EditRecord
            The first edit first.
        """
        if not self.has_store:
            return [self._created]
        with wrap_database_errors(self.path):
            return history.read_log(self.database)

    def changes(self, edit: SupportsIndex) -> list[EntryChange]:
        """List what an edit did to each entry.

        Parameters
        ----------
        edit : int
            The number of the edit.

        Returns
        -------
        list of EntryChange
            The entries that the edit added, removed or changed.
        """
        if not self.has_store:
            raise InvalidSettingError(f"{self.path} has never been edited.")
        with wrap_database_errors(self.path):
            return history.read_changes(self.database, edit)

    def cache_trust(self) -> None:
        """Store the trust of all entries, so that readers need not compute it."""
        self._check_writable("cache_trust")
        trust = self.classifier.model_.entry_trust
        if trust is not None and self.has_store:  # a folder of files holds it
            with wrap_database_errors(self.path), transaction(self.database, self.head):
                write_trust(self.database, trust, self.head)

    def close(self) -> None:
        """Let others edit; closing twice is allowed."""
        self._is_closed = True
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self) -> None:
        """Load the classifier from the last state in the store."""
        self._opened = self._identity()
        if self._database is None:
            self._load_files()
        else:
            with wrap_database_errors(self.path), wrap_content_errors(self.path):
                self.head = last_edit(self._database)
            stored, self.classifier = self._read(self.head)
            self.notes, self.seqs = notes_of(stored), stored.seqs
        self._encoder = encoder_parts(self.classifier)
        self._state = ModelState.of(self.classifier, self.notes, self._encoder)
        self._report = self.classifier.fit_report_

    def _load_files(self) -> None:
        """Load a folder that has no store yet."""
        self._fingerprint = fingerprint(self.path)
        self.classifier = load_classifier(self.path, AttnKNNClassifier)
        self.notes, self.head = load_notes(self.path), 0
        n_entries = len(self.classifier.memory_)
        self.seqs, self._created = np.arange(n_entries), first_record(n_entries, self.by)
        self._saved = self.classifier.model_

    def _create_store(self) -> None:
        """Replace a folder of files by one with a store, as a whole or not at all."""
        can_swap = os.name != "nt"  # Windows cannot rename a folder with an open file
        if not can_swap:
            self._lock.release()
        with replace_folder(self.path, expected=self._fingerprint) as folder:
            write_store(folder, self._state, self._saved.entry_trust, self._created)
            lock = WriterLock(folder) if can_swap else None
        if can_swap:  # only now: nobody else may edit in between
            self._lock.release()
        self._lock = lock or WriterLock(self.path)
        self._open_store()
        self._opened = self._identity()

    def _open_store(self, *, recover: bool = False) -> None:
        database = open_to_write(self.path, may_be_behind=recover)
        self._database = self._resources.enter_context(closing(database))
        self._resources.callback(sync_head, self.path)
        with wrap_database_errors(self.path):
            self.recovered = history.recover(database, self.path, self.by) if recover else None
            try:
                finish_erasure(database, self.path)
            except ModelFolderError as error:  # edits go on; the next opening tries again
                warnings.warn(f"An erasure is not finished. {error}", stacklevel=4)

    def _unlock(self) -> None:
        self._lock.release(remove_file=not self.has_store)

    def _check_edited(self, action: str) -> None:
        if not self.has_store:
            raise ModelFolderError(f"Nothing to {action}: {self.path} has not been edited.")

    def _check_writable(self, method: str) -> None:
        if self._is_editing:
            raise InvalidSettingError(f"End the block of `edit()` before `{method}`.")
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidSettingError("This model was closed; open it again for editing.")
        if self._identity() != self._opened:
            raise ModelFolderError(f"The model at {self.path} was replaced while it was edited.")

    def _read(self, edit: int) -> tuple[StoredModel, AttnKNNClassifier]:
        """The state after an edit."""
        with wrap_database_errors(self.path), wrap_content_errors(self.path):
            self.database.execute("begin")
            try:
                stored = StoredModel(self.path, self.database, edit)
            finally:
                self.database.execute("rollback")
            return stored, unpack(stored, AttnKNNClassifier)

    def _commit(self, message: str) -> None:
        state = ModelState.of(self.classifier, self.notes, self._encoder)
        change = Change.between(self._state, state)
        if change.is_empty:
            return
        self._check_open()
        if change.parts:
            check_loadable(pack(self.classifier, self.notes), AttnKNNClassifier, self.path)
        with wrap_database_errors(self.path):
            self.seqs = write_change(
                self.database,
                change,
                state,
                self.seqs,
                self.head,
                by=self.by,
                message=message or change.message(),
                is_refit=self.classifier.fit_report_ is not self._report,
            )
        self._state, self.head = state, self.head + 1
        self._report = self.classifier.fit_report_

    def _identity(self) -> tuple[int, int] | None:
        """What distinguishes the model from another one in its place; None if it is missing."""
        try:
            found = os.stat(self.path / MANIFEST)
        except OSError:
            return None
        return found.st_dev, found.st_ino
