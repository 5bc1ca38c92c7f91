"""A classifier's parts become a folder, and back; nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
) -> None:
    """Write a fitted classifier to the folder `path`.

    An older model there is replaced whole or not at all, whenever the process is stopped. What
    cannot be stored (code of your own, payloads that are not JSON) is an error before anything is
    written; a folder that holds anything but a model is never touched.

    Parameters
    ----------
    notes : short texts to keep beside the classifier; `load_notes` gives them back

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
    with replace_folder(path) as folder:
        write_files(contents, folder)


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
