"""A whole model in a database: its entries in a memory there, its fitted parts beside them."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.memory.postgres import PostgresMemory
from attnknn.storage.files import ModelFolder, wrap_content_errors
from attnknn.storage.packing import encoder_parts, pack_parts

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.memory import Memory

_Classifier = TypeVar("_Classifier", bound="AttnKNNClassifier")


class DatabaseModel(ModelFolder):
    """Returns what a folder of files would, from a database.

    Parameters
    ----------
    memory : PostgresMemory
        Names the model; it is opened when the classes are known.
    """

    def __init__(self, memory: PostgresMemory) -> None:
        self.path, self._memory = Path(memory.place), memory
        self._contents = memory.read_parts()
        self._files = {
            name: {"bytes": len(content), "sha256": digest}
            for name, (content, digest) in self._contents.items()
        }

    @property
    def has_trust(self) -> bool:
        """Trust follows from the entries, which others may have edited."""
        return False

    def memory(self, classes: list[Any]) -> Memory:
        """The memory with the entries, opened in the database."""
        return self._memory.open([json.dumps(label) for label in classes])

    def _open(self, name: str) -> BinaryIO:
        if name not in self._contents:
            raise self.refuse(f"it does not hold {name}")
        return io.BytesIO(self._contents[name][0])


def save_to_database(
    classifier: AttnKNNClassifier, address: str, notes: Mapping[str, str], *, overwrite: bool = True
) -> None:
    """Save a fitted classifier to a database; a model of the same name is replaced.

    Parameters
    ----------
    classifier : AttnKNNClassifier
        If its entries are in the database under this address, only the fitted parts are written;
        otherwise the entries are copied.
    address : str
        Address that names the model.
    notes : mapping of str to str
        Short texts to store beside it.
    overwrite : bool, default=True
        Whether to replace another model of that name.
    """
    contents = pack_parts(classifier, dict(notes), encoder_parts(classifier))
    files = {name: b"".join(map(bytes, blocks)) for name, blocks in contents.files()}
    parts = {
        name: (content, hashlib.sha256(content).hexdigest()) for name, content in files.items()
    }
    target = PostgresMemory(address)
    known: Any = classifier.memory_
    if not target.names_a_model:
        raise InvalidSettingError("`path` must name a model in the database: add `?model=NAME`.")
    if isinstance(known, PostgresMemory) and known.place == target.place:
        target = known
    else:
        if not overwrite:
            refuse_existing(address, "Save to another name, or pass `overwrite=True`.")
        target.restore(known.read(), known.metric_, known.center_)
        target.commit([json.dumps(label) for label in classifier.classes_.tolist()])
    target.write_parts(parts)


def refuse_existing(address: str, advice: str) -> None:
    """Raise an error if a database holds a model of that name; it ends with `advice`."""
    memory = PostgresMemory(address)
    if memory.exists():
        raise ModelFolderError(f"{memory.place} holds a model already. {advice}")


def open_parts(address: str) -> DatabaseModel:
    """The fitted parts of the model at an address; its entries are not read yet."""
    return DatabaseModel(PostgresMemory(address))


def load_from_database(address: str, cls: type[_Classifier]) -> _Classifier:
    """Load the classifier that a database holds; its entries stay there.

    Parameters
    ----------
    address : str
        Address that names the model.
    cls : type
        `AttnKNNClassifier` or a subclass.

    Returns
    -------
    AttnKNNClassifier
        The fitted classifier, which follows the edits of other processes.
    """
    from attnknn import editing
    from attnknn.storage.unpacking import unpack

    folder = open_parts(address)
    with wrap_content_errors(folder.path):
        classifier = unpack(folder, cls)
    classifier.model_ = editing.read_again(classifier.model_, classifier.model_.memory)
    return classifier
