"""A classifier's parts become a folder, and back; nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attnknn.errors import ModelFolderError
from attnknn.storage.folder import has_store, is_model, replace_folder
from attnknn.storage.packing import pack
from attnknn.storage.reading import read_latest
from attnknn.storage.unpacking import notes_of, unpack
from attnknn.storage.writing import write_files

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
    ends_edits: bool = True,
) -> None:
    """Write a fitted classifier to the folder `path`.

    An older model there is replaced whole or not at all, whenever the process is stopped. What
    cannot be stored (code of your own, payloads that are not JSON) is an error before anything is
    written; a folder that holds anything but a model is never touched.

    Parameters
    ----------
    notes : short texts to keep beside the classifier; `load_notes` gives them back
    ends_edits : whether a model there may be replaced that has a log of edits, or snapshots

    Examples
    --------
    >>> import tempfile
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_classifier(clf, Path(folder) / "model")
    ...     load_classifier(Path(folder) / "model", AttnKNNClassifier).predict([[0.2]]).tolist()
    ['a']
    """
    contents = pack(classifier, dict(notes or {}))
    refuse = None if ends_edits else refuse_to_end_edits
    with replace_folder(path, refuse=refuse) as folder:
        write_files(contents, folder)


def refuse_to_end_edits(path: Path) -> None:
    """An error where a model was edited: its log and its snapshots would end with it."""
    from attnknn.storage.store import kept_by

    if not has_store(path):
        return
    n_edits, n_snapshots = kept_by(path)
    if n_edits or n_snapshots:
        raise ModelFolderError(
            f"Edits ({n_edits:,}) and snapshots ({n_snapshots:,}) of the model at {path} would end "
            "with it. Save to another path, edit it by `open_for_editing`, or give "
            "`ends_edits=True`."
        )


def load_classifier(path: Path, cls: type[_Classifier]) -> _Classifier:
    """Read the classifier in the folder `path`; runs no code from it.

    Every file is checked against the manifest and every value against what it must be: a folder
    that is damaged, foreign or hostile raises `ModelFolderError`. Where the last save was cut
    short while it swapped folders, the model from before it is loaded, with a warning.
    """
    return read_latest(path, lambda folder: unpack(folder, cls))


def load_notes(path: Path) -> dict[str, str]:
    """The notes that were stored with the classifier in the folder `path`."""
    return read_latest(path, notes_of)
