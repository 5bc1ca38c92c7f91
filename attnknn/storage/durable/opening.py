"""A model folder is opened for editing; the first time its entries move into a store."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import SupportsIndex

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage import has_store, is_model, load_classifier, load_notes
from attnknn.storage.durable.model import EditableModel
from attnknn.storage.folder import clear_leftovers, replace_folder, version_of
from attnknn.storage.packing import encoder_parts
from attnknn.storage.store import history
from attnknn.storage.store.changes import Kept
from attnknn.storage.store.history import Edit, Snapshot, Touched
from attnknn.storage.store.schema import open_to_read
from attnknn.storage.store.writing import write_store


def open_for_editing(
    path: str | Path, *, by: str | None = None, wait: float = 0.0
) -> EditableModel:
    """Open the model in the folder `path` for editing; use it in a `with` statement.

    The first time its entries move into a store, one SQLite file in the same folder, which
    `AttnKNNClassifier.load` reads as it reads any model. There is one writer at a time; readers see
    the state of the last edit that was acknowledged, and need not wait.

    Parameters
    ----------
    by : who edits, for the log; default is the name of the user
    wait : seconds to wait for another writer before it is an error

    Examples
    --------
    >>> import tempfile
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(folder + "/model")
    ...     with open_for_editing(folder + "/model", by="ann") as model:
    ...         _ = model.relabel([1], "b")
    ...         _ = model.undo()
    ...         print(model.log()[-1].words)
    Took back edit 1: Relabeled 1 entry
    """
    path = Path(path).resolve()
    by = _user() if by is None else by
    if not by.strip():
        raise InvalidSettingError("`by` must be a name, for the log.")
    if not has_store(path):
        clear_leftovers(path)
        _make_store(path, by)
    return EditableModel(path, by, wait)


def edits_of(path: str | Path) -> list[Edit]:
    """Who changed what when in the model at `path`; empty if it was never edited."""
    path = _checked(path)
    if not has_store(path):
        return []
    with open_to_read(path) as database:
        return history.log_of(database)


def snapshots_of(path: str | Path) -> list[Snapshot]:
    """The states of the model at `path` that have names."""
    path = _checked(path)
    if not has_store(path):
        return []
    with open_to_read(path) as database:
        return history.snapshots_of(database)


def touched_by(path: str | Path, edit: SupportsIndex) -> list[Touched]:
    """What an edit of the model at `path` did to each entry."""
    path = _checked(path)
    if not has_store(path):
        raise InvalidSettingError(f"{path} has never been edited.")
    with open_to_read(path) as database:
        return history.touched_by(database, edit)


def _checked(path: str | Path) -> Path:
    path = Path(path).resolve()
    if not is_model(path):
        raise ModelFolderError(f"There is no model folder at {path}.")
    return path


def _make_store(path: Path, by: str) -> None:
    """Replace a folder of files by one with a store, whole or not at all."""
    version = version_of(path)
    classifier, notes = load_classifier(path, AttnKNNClassifier), load_notes(path)
    kept = Kept.of(classifier, notes, encoder_parts(classifier))
    try:
        with replace_folder(path, version=version) as folder:
            write_store(folder, kept, classifier._trust_of_all(), by)
    except ModelFolderError:
        if not has_store(path):  # else another process was quicker, and did the same
            raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
