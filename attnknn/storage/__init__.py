"""Save classifiers to folders, load them, and edit them on the disk; nothing is pickled.

`save_classifier` and `load_classifier` write and read a folder of plain files (`files`, `folder`).
`attnknn.open_for_editing` (`editor`) moves the entries into a SQLite store (`store`), where every
edit is one transaction with a log, snapshots, undo and the erasure of a person's rows (`erasure`).
Use a plain folder for a model that is fitted and deployed, and the editor for one that people
correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attnknn.errors import ModelFolderError
from attnknn.storage.files import read_model, write_files
from attnknn.storage.folder import as_address, has_store, is_model, replace_folder
from attnknn.storage.packing import pack
from attnknn.storage.unpacking import check_loadable, notes_of, unpack

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

__all__ = [
    "has_store",
    "is_model",
    "load_classifier",
    "load_notes",
    "save_classifier",
]

_Classifier = TypeVar("_Classifier", bound="AttnKNNClassifier")


def save_classifier(
    classifier: AttnKNNClassifier,
    path: Path,
    *,
    notes: Mapping[str, str] | None = None,
    overwrite: bool = True,
    discard_history: bool = True,
) -> None:
    """Save a fitted classifier to a folder.

    An older model there is replaced as a whole or not at all, whenever the process is stopped. A
    folder that holds anything but a model is never changed.

    Parameters
    ----------
    classifier : AttnKNNClassifier
        The fitted classifier.
    path : Path
        The folder; missing parents are created. Also the address of a database, with the name of
        the model: `postgres://user@host/database?model=NAME`.
    notes : mapping of str to str, default=None
        Short texts to store beside the classifier; `load_notes` returns them.
    overwrite : bool, default=True
        Whether to replace an older model.
    discard_history : bool, default=True
        Whether to replace also a model that has a log of edits or snapshots, which are lost.

    Raises
    ------
    InvalidSettingError, InvalidInputError
        If something cannot be stored, such as custom code, payloads that are not JSON, or numbers
        that `load_classifier` refuses. Nothing is written then.
    ModelFolderError
        If the folder may not be replaced.

    Examples
    --------
    >>> import tempfile
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_classifier(clf, Path(folder) / "model", notes={"target": "kind"})
    ...     load_classifier(Path(folder) / "model", AttnKNNClassifier).predict([[0.2]]).tolist()
    ['a']
    """

    def check(found: Path) -> None:
        if is_model(found) and not overwrite:
            raise ModelFolderError(
                f"{found} holds a model already. Save to another path, or pass `overwrite=True` to "
                "replace it."
            )
        if not discard_history:
            _check_no_history(found)

    address = as_address(path)
    if address is not None:
        from attnknn.storage.database import save_to_database

        save_to_database(classifier, address, notes or {}, overwrite=overwrite)
        return
    contents = pack(classifier, dict(notes or {}))
    check_loadable(contents, type(classifier), path)
    with replace_folder(path, check=check) as folder:
        write_files(contents, folder)


def _check_no_history(path: Path) -> None:
    """Raise an error if a model has edits or snapshots, which saving would discard."""
    from attnknn.storage.store import count_history

    n_edits, n_snapshots = count_history(path) if has_store(path) else (0, 0)
    if n_edits or n_snapshots:
        raise ModelFolderError(
            f"Saving would discard the history of the model at {path}: edits ({n_edits:,}) and "
            f"snapshots ({n_snapshots:,}). Save to another path, edit the model with "
            "`open_for_editing`, or pass `discard_history=True`."
        )


def load_classifier(path: Path, cls: type[_Classifier]) -> _Classifier:
    """Load the classifier in a folder; runs no code from it.

    Every file is checked against the manifest, and every value against its allowed type and range.
    If the last save was interrupted while it swapped folders, the previous model is loaded, with a
    warning.

    Parameters
    ----------
    path : Path
        The folder that `save_classifier` wrote, edited or not.
    cls : type
        `AttnKNNClassifier` or a subclass of it.

    Returns
    -------
    AttnKNNClassifier
        The fitted classifier, an instance of `cls`.

    Raises
    ------
    ModelFolderError
        If the folder is missing, damaged, foreign or hostile.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> load_classifier(Path("no such folder"), AttnKNNClassifier)
    Traceback (most recent call last):
    attnknn.errors.ModelFolderError: There is no model folder at ...no such folder.
    """
    address = as_address(path)
    if address is not None:
        from attnknn.storage.database import load_from_database

        return load_from_database(address, cls)
    return read_model(path, lambda folder: unpack(folder, cls))


def load_notes(path: Path) -> dict[str, str]:
    """Load the notes that were stored with a classifier.

    Parameters
    ----------
    path : Path
        The folder that `save_classifier` wrote, edited or not.

    Returns
    -------
    dict of str to str
        The notes by name.

    Raises
    ------
    ModelFolderError
        If the folder is missing, damaged, foreign or hostile.

    Examples
    --------
    >>> import tempfile
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_classifier(clf, Path(folder) / "model", notes={"target": "kind"})
    ...     load_notes(Path(folder) / "model")
    {'target': 'kind'}
    """
    address = as_address(path)
    if address is not None:
        from attnknn.storage.database import open_parts

        return notes_of(open_parts(address))
    return read_model(path, notes_of)
