"""A stored model is opened and edited; ids and labels as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.cli.files import Part
    from attnknn.storage.editor import EditableModel

WAIT = 30.0  # seconds for another command to finish its edit


@contextmanager
def open_model(path: Path, by: str | None) -> Iterator[EditableModel]:
    """The model in the folder `path`, open for editing by somebody."""
    from attnknn.errors import ModelBusyError
    from attnknn.storage.editor import open_for_editing

    try:
        opened = open_for_editing(path, by=by)
    except ModelBusyError:
        click.echo(f"Another process is editing {path}; waiting for it.", err=True)
        opened = open_for_editing(path, by=by, wait=WAIT)
    with opened as model:
        yield model


def refuse_if_never_edited(path: Path) -> None:
    """To go back is no reason to turn a folder of files into one with a store."""
    from attnknn.errors import ModelFolderError
    from attnknn.storage import has_store, is_model

    if is_model(path) and not has_store(path):
        raise ModelFolderError(f"There is no edit of {path} to take back: it was never edited.")


@contextmanager
def edit(model: EditableModel, words: str = "") -> Iterator[AttnKNNClassifier]:
    """The block is one edit, which is stored and told."""
    head = model.head
    with model.edit(words):
        yield model.classifier
        if not len(model.classifier.memory_):
            raise InvalidInputError("These are all entries: a model must remember at least one.")
    if model.head == head:
        click.echo("Nothing was to be changed.")
    else:
        tell(model)


def tell(model: EditableModel, words: str = "") -> None:
    """Make an edit ready for readers and say what was done, in `words` or in those of the log."""
    model.cache_trust()
    done, n_entries = model.log()[-1], len(model.classifier.memory_)
    holds = f"{model.path.name} now holds {counted(n_entries)}"
    click.echo(f"{words or done.message}; {holds} (edit {done.edit}).")


def counted(n_entries: int, noun: str = "entry", nouns: str = "entries") -> str:
    """A number with its noun.

    >>> counted(1), counted(2000)
    ('1 entry', '2,000 entries')
    """
    return f"{n_entries:,} {noun if n_entries == 1 else nouns}"


def as_id(text: str, ids: NDArray[Any]) -> Any:
    """The id that a text means: a number where ids are numbers.

    >>> as_id("7", np.array([3, 7])), as_id("7", np.array(["7"], dtype=object))
    (7, '7')
    """
    if ids.dtype == object:
        return text
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            f"The ids of this model are whole numbers, {text!r} is none."
        ) from None


def listed_ids(texts: Iterable[str], ids: NDArray[Any]) -> list[Any]:
    """Ids given one by one or as 3,5,7; an id of letters may itself have a comma."""
    known = set(ids.tolist()) if ids.dtype == object else set()
    several = ([text] if text in known else text.split(",") for text in texts)
    return [as_id(text.strip(), ids) for some in several for text in some if text.strip()]


@dataclass(frozen=True)
class LabelReader:
    """Texts become labels of the kind that the model has.

    Parameters
    ----------
    classes : those that the model knows
    allows_new : whether a label may be none of them
    """

    classes: NDArray[Any]
    allows_new: bool = False

    def read(self, text: str, where: str) -> Any:
        """The label that a text means; `where` begins the sentence of an error.

        >>> LabelReader(np.array([1, 2])).read("2", "line 3")
        2
        """
        if text in self._known:
            return self._known[text]
        if self.allows_new:
            return self._new(text, where)
        close = get_close_matches(text, self._known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise InvalidInputError(
            f"{where} has the label {text!r}, which is no class of this model.{guess} "
            "Give --new-classes to make it one."
        )

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {str(label): label for label in self.classes.tolist()}

    def read_column(self, part: Part, name: str) -> NDArray[Any]:
        """The labels of a column, one in every row."""
        from attnknn.cli.columns import labels_of

        texts = [str(label) for label in labels_of(part, name).tolist()]
        return np.array(
            [self.read(text, part.place(row).capitalize()) for row, text in enumerate(texts)]
        )

    def _new(self, text: str, where: str) -> Any:
        kind = self.classes.dtype.kind
        if kind in "UO":
            return text
        try:
            return {"i": int, "u": int, "f": float}[kind](text)
        except (KeyError, ValueError):
            kinds = {"b": "True and False", "f": "numbers"}
            raise InvalidInputError(
                f"{where} has the label {text!r}, but the classes of this model are "
                f"{kinds.get(kind, 'whole numbers')}."
            ) from None
