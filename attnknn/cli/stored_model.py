"""Open a stored model, edit it, and read ids, labels and decisions as users write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.output import count_of, echo
from attnknn.cli.rows import Chunk, Source, check_column
from attnknn.cli.rows.columns import read_labels
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage.editor import EditableModel

WAIT = 30.0  # seconds to wait for the edit of another process
FORGET = "!forget"


@contextmanager
def open_model(path: Path, by: str | None, *, recover: bool = False) -> Iterator[EditableModel]:
    """Open the model folder `path` for editing."""
    from attnknn.errors import ModelBusyError
    from attnknn.storage.editor import open_for_editing

    try:
        opened = open_for_editing(path, by=by, recover=recover)
    except ModelBusyError:
        echo(f"Another process is editing {path}; waiting for it.", err=True)
        opened = open_for_editing(path, by=by, wait=WAIT, recover=recover)
    with opened as model:
        yield model


@contextmanager
def edit(model: EditableModel, words: str = "") -> Iterator[AttnKNNClassifier]:
    """Store the block as one edit, and report it."""
    head = model.head
    with model.edit(words):
        yield model.classifier
        if not len(model.classifier.memory_):
            raise InvalidInputError("A model must keep at least one entry; this removes all.")
    if model.head == head:
        echo("Nothing changed.")
    else:
        report_edit(model, model.log()[-1].message)


def report_edit(model: EditableModel, words: str) -> None:
    """Prepare an edited model for readers, and print what was done and the number of entries."""
    if len(model.classifier.memory_):
        model.cache_trust()
    n_entries = len(model.classifier.memory_)
    echo(f"{words}; {model.path.name} now holds {count_of(n_entries)} (edit {model.head}).")


def as_id(text: str, ids: NDArray[Any]) -> Any:
    """The id that a string stands for: an integer if the ids are integers.

    >>> as_id("7", np.array([3, 7])), as_id("7", np.array(["7"], dtype=object))
    (7, '7')
    """
    if ids.dtype == object:
        return text
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            f"The ids of this model are integers, got {text!r}. `attnknn explain` and `attnknn "
            "audit` show the id of an entry after #."
        ) from None


def listed_ids(texts: Iterable[str], ids: NDArray[Any]) -> list[Any]:
    """Ids given one by one or as 3,5,7; a string id may itself contain a comma."""
    known = set(ids.tolist()) if ids.dtype == object else set()
    several = ([text] if text in known else text.split(",") for text in texts)
    return [as_id(text.strip(), ids) for some in several for text in some if text.strip()]


@dataclass(frozen=True)
class LabelReader:
    """Converts strings to labels of the type that the model has."""

    classes: NDArray[Any]
    allows_new: bool = False  # whether a label may be another class

    def read(self, text: str, where: str) -> Any:
        """The label that a string stands for; `where` begins the error message.

        >>> LabelReader(np.array([1, 2])).read("2", "Line 3")
        2
        """
        if text in self._known:
            return self._known[text]
        if self.allows_new:
            return self._new(text, where)
        close = get_close_matches(text, self._known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise InvalidInputError(
            f"{where} has the label {text!r}, which is not a class of this model.{guess} "
            "Give --new-classes to add it."
        )

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {str(label): label for label in self.classes.tolist()}

    def read_column(self, chunk: Chunk, name: str) -> NDArray[Any]:
        """The labels of a column, one for each row."""
        texts = [str(label) for label in read_labels(chunk, name).tolist()]
        return np.array(
            [self.read(text, chunk.place(row).capitalize()) for row, text in enumerate(texts)]
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
                f"{kinds.get(kind, 'integers')}."
            ) from None


@dataclass
class Decisions:
    """Decisions of a reviewer: new labels by id, and ids to forget."""

    relabel: dict[Any, Any] = field(default_factory=dict)
    forget: list[Any] = field(default_factory=list)


class DecisionReader:
    """Reads the columns `id` and `decision`; ambiguous decisions are errors."""

    def __init__(self, model: EditableModel, labels: LabelReader) -> None:
        classifier, self._path = model.classifier, model.path
        entries = classifier.memory_.entries
        current = classifier.classes_[entries.labels].tolist()
        self._ids, self._labels = entries.ids, labels
        self._current = dict(zip(entries.ids.tolist(), current, strict=True))
        self._classes = {str(label) for label in labels.classes.tolist()}
        self._seen: set[Any] = set()

    def read(self, source: Source) -> Decisions:
        """The decisions that change something."""
        try:
            for name in ("id", "decision"):
                check_column(source, name)
        except InvalidInputError as error:
            hint = "TABLE needs the columns `id` and `decision`, as written by `attnknn audit -o`."
            raise InvalidInputError(f"{error} {hint}") from error
        decisions = Decisions()
        for chunk in source.chunks():
            self._refuse_unreadable_class(source)
            for row in range(len(chunk)):
                decision = _cell(chunk, "decision", row)
                if decision:
                    self._add(decisions, decision, chunk, row)
        return decisions

    def _refuse_unreadable_class(self, source: Source) -> None:
        """Raise an error for a class whose name means a missing value in text files."""
        unreadable = sorted(self._classes & source.missing_words)
        if unreadable:
            raise InvalidInputError(
                f"{source.path} cannot express the class {unreadable[0]!r}, which means a missing "
                "value in text files. Write the table with `attnknn audit -o audit.parquet`."
            )

    def _add(self, decisions: Decisions, decision: str, chunk: Chunk, row: int) -> None:
        place = chunk.place(row).capitalize()
        is_forget = self._is_forget(decision, place)
        name = self._read_id(chunk, row, place)
        if name not in self._current:
            if is_forget and name in self._forgotten:  # applied before
                return
            raise InvalidInputError(f"{place} has the id {name!r}, which the model does not hold.")
        if is_forget:
            self._refuse_outdated(name, chunk, row, place)
            decisions.forget.append(name)
            return
        label = self._labels.read(decision, place)
        if label != self._current[name]:  # otherwise applied before: that is not an error
            self._refuse_outdated(name, chunk, row, place)
            decisions.relabel[name] = label

    def _read_id(self, chunk: Chunk, row: int, place: str) -> Any:
        name = as_id(_cell(chunk, "id", row), self._ids)
        if name in self._seen:
            raise InvalidInputError(f"{place} has a second decision for the id {name!r}.")
        self._seen.add(name)
        return name

    @cached_property
    def _forgotten(self) -> set[Any]:
        """Ids of the entries that earlier edits removed, as far as the log has them."""
        from attnknn.storage.editor import list_changes, list_edits

        changes = (list_changes(self._path, line.edit) for line in list_edits(self._path))
        return {entry.id for some in changes for entry in some if entry.label_after is None}

    def _is_forget(self, decision: str, place: str) -> bool:
        if decision == FORGET and FORGET in self._classes:
            raise InvalidInputError(
                f"{place} has the decision {FORGET}, which is also a class of this model. Remove "
                "entries with `attnknn forget`; set this label in Python."
            )
        if decision.lower() == FORGET[1:] and decision not in self._classes:
            raise InvalidInputError(
                f"{place} has the decision {decision!r}; to remove an entry, write {FORGET}."
            )
        return decision == FORGET

    def _refuse_outdated(self, name: Any, chunk: Chunk, row: int, place: str) -> None:
        """Raise an error if the label in the table is not the current label of the entry."""
        shown = _cell(chunk, "label", row) if "label" in chunk.table.columns else ""
        current = str(self._current[name])
        if shown and shown != current:
            raise InvalidInputError(
                f"{place} shows the label {shown!r}, but the entry now has {current!r}: the table "
                "is older than the model. Run the audit again."
            )


def _cell(chunk: Chunk, name: str, row: int) -> str:
    """A cell as a string; empty if it is missing. Cells of text files are stripped already."""
    value = chunk.table[name].iloc[row]
    if pd.isna(value):
        return ""
    return str(value) if chunk.is_text else str(value).strip()
