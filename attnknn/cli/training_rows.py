"""A file becomes what `fit` takes: rows, labels, ids, groups, sample weight and payloads."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.columns import (
    groups_of,
    ids_of,
    labels_of,
    refuse_gaps,
    refuse_infinite,
    sample_weight_of,
    subjects_of,
    texts_of,
)
from attnknn.cli.files import Part, Source
from attnknn.cli.files.base import check_column
from attnknn.cli.kinds import categories, typed_column
from attnknn.errors import InvalidInputError, ModelFolderError

SHOWN_COLUMNS = 6  # of a row, in the payload that `explain` shows
LONGEST_VALUE, LONGEST_TEXT = 24, 100
LONGEST_PAYLOAD = 160


@dataclass(frozen=True)
class Roles:
    """Which columns are not features; "" and () mean none.

    Parameters
    ----------
    payload : columns shown with the evidence, features or not; None shows the first ones
    dropped : columns that are not used at all
    categorical : features that are categories even where they are written as numbers or dates
    text : the column of texts that alone is learned from
    subject : the column that says whose a row is
    """

    target: str
    id: str = ""
    group: str = ""
    sample_weight: str = ""
    payload: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text: str = ""
    subject: str = ""

    @classmethod
    def of(cls, notes: Mapping[str, str]) -> Roles:
        """The roles of the columns in `fit`, from what it noted beside the model."""
        return cls(
            target=notes.get("target", ""),
            id=notes.get("id_column", ""),
            group=notes.get("group_column", ""),
            sample_weight=notes.get("sample_weight_column", ""),
            payload=_noted(notes, "payload_columns"),
            dropped=_noted(notes, "dropped_columns") or (),
            text=notes.get("text", ""),
            subject=notes.get("subject_column", ""),
        )

    def notes(self) -> dict[str, str]:
        """The roles as texts, to be stored beside the model.

        >>> Roles.of(Roles("kind", group="herd", dropped=("a",)).notes()).dropped
        ('a',)
        """
        several = {"payload_columns": self.payload, "dropped_columns": self.dropped or None}
        single = {
            "text": self.text,
            "group_column": self.group,
            "sample_weight_column": self.sample_weight,
            "subject_column": self.subject,
        }
        return {
            "target": self.target,
            "id_column": self.id,
            **{name: column for name, column in single.items() if column},
            **{name: json.dumps(those) for name, those in several.items() if those is not None},
        }

    @property
    def named(self) -> list[str]:
        """Every column that was named."""
        single = [self.target, self.id, self.group, self.subject, self.sample_weight, self.text]
        several = [*(self.payload or ()), *self.dropped, *self.categorical]
        return [name for name in [*single, *several] if name]

    def features(self, columns: list[str]) -> list[str]:
        """The columns that are learned from."""
        return [self.text] if self.text else self._without_role(columns)

    def shown(self, columns: list[str]) -> list[str]:
        """The columns of the payload; a text comes first, the others tell where it is from."""
        if self.payload is not None:
            return list(self.payload)
        others = [name for name in self._without_role(columns) if name != self.text]
        return [*([self.text] if self.text else []), *others][:SHOWN_COLUMNS]

    def _without_role(self, columns: list[str]) -> list[str]:
        others = {self.target, self.id, self.group, self.subject, self.sample_weight, *self.dropped}
        return [name for name in columns if name not in others]


def _noted(notes: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """The columns that a note lists; None where there is no such note."""
    if name not in notes:
        return None
    try:
        listed = json.loads(notes[name])
    except ValueError:
        listed = None
    if not (isinstance(listed, list) and all(isinstance(column, str) for column in listed)):
        raise ModelFolderError(
            f"The stored note `{name}` must be names of columns, got {notes[name][:40]!r}."
        )
    return tuple(listed)


@dataclass(frozen=True)
class TrainingRows:
    """What `fit` takes; X is a DataFrame, or an array for vectors."""

    X: Any
    y: NDArray[Any]
    ids: NDArray[Any] | None
    groups: NDArray[Any] | None
    sample_weight: NDArray[Any] | None
    payloads: list[str] | None
    subjects: NDArray[Any] | None = None


def read_training_rows(source: Source, roles: Roles, *, allows_gaps: bool = True) -> TrainingRows:
    """All rows of a file, each column in its role."""
    for name in roles.named:
        check_column(source, name)
    names = roles.features(source.columns) if source.kind == "table" else []
    _check_features(source, roles, names)
    whole = _whole(source)
    shown = roles.shown(source.columns if source.kind == "table" else [])
    if roles.payload is None and source.default_id:
        shown = [source.default_id]
    X = _table(whole, names, roles) if whole.items is None else whole.items
    if not allows_gaps:
        refuse_gaps(whole, X if isinstance(X, pd.DataFrame) else pd.DataFrame(X))
    return TrainingRows(
        X=X,
        y=labels_of(whole, roles.target),
        ids=ids_of(whole, roles.id) if roles.id else None,
        groups=groups_of(whole, roles.group) if roles.group else None,
        sample_weight=sample_weight_of(whole, roles.sample_weight) if roles.sample_weight else None,
        payloads=payloads_of(whole, shown, roles.text, source.default_id),
        subjects=subjects_of(whole, roles.subject) if roles.subject else None,
    )


def payloads_of(whole: Part, shown: list[str], text: str, name: str | None) -> list[str] | None:
    """What `explain` shows of each row: the names of files as they are, else a short row."""
    if not shown:
        return None
    if shown == [name]:
        return [str(value) for value in whole.table[shown[0]]]
    return short_rows(whole.table[shown], text)


def _check_features(source: Source, roles: Roles, names: list[str]) -> None:
    if not names and source.kind == "table":
        raise InvalidInputError(f"{source.path} must have a column beside {roles.target!r}.")
    if roles.text and roles.text not in roles._without_role([roles.text]):
        raise InvalidInputError(f"--text must name a column of texts, {roles.text!r} has a role.")
    for name in roles.categorical:
        if name not in names:
            raise InvalidInputError(
                f"--categorical must name columns that are learned from, {name!r} is none."
            )


def _whole(source: Source) -> Part:
    """All rows of a file in one part."""
    parts = list(source.parts())
    n_rows = sum(len(part) for part in parts)
    if n_rows < 2:
        found = "one" if n_rows else "none"
        raise InvalidInputError(
            f"{source.path} must have at least two rows to learn from, it has {found}."
        )
    items = [part.items for part in parts if part.items is not None]
    lines = [line for part in parts for line in part.lines or ()]
    return Part(
        first=0,
        table=pd.concat([part.table for part in parts], ignore_index=True),
        items=np.concatenate(items) if items else None,
        lines=lines if parts[0].is_text else None,
    )


def _table(whole: Part, names: list[str], roles: Roles) -> pd.DataFrame:
    return pd.DataFrame({name: _column(whole, name, roles) for name in names})


def _column(whole: Part, name: str, roles: Roles) -> pd.Series[Any]:
    if name == roles.text:
        return texts_of(whole, name)
    if name in roles.categorical:
        return categories(whole.table[name])
    column = typed_column(whole, name) if whole.is_text else whole.table[name]
    if isinstance(next(iter(column.dropna()), None), list | dict | np.ndarray):
        raise InvalidInputError(
            f"Column {name!r} must hold one value per row, it holds lists. Leave it out with "
            f"--drop-columns {shlex.quote(name)}."
        )
    if pd.api.types.is_numeric_dtype(column):
        refuse_infinite(whole, name, column)
    return column


def short_rows(table: pd.DataFrame, text: str = "") -> list[str]:
    """Each row as one short text; the column `text` is shortened less than others.

    >>> short_rows(pd.DataFrame({"age": [39, None], "job": ["cook", "nurse"]}))
    ['age=39, job=cook', 'job=nurse']
    """
    names = [str(name) for name in table.columns]
    lengths = [LONGEST_TEXT if name == text else LONGEST_VALUE for name in names]
    columns = [
        [_short(value, length) for value in table[name].astype(object).tolist()]
        for name, length in zip(names, lengths, strict=True)
    ]
    return [_short_row(names, values) for values in zip(*columns, strict=True)]


def _short_row(names: list[str], values: tuple[str | None, ...]) -> str:
    pairs = zip(names, values, strict=True)
    row = ", ".join(f"{name}={value}" for name, value in pairs if value is not None)
    return row if len(row) <= LONGEST_PAYLOAD else f"{row[: LONGEST_PAYLOAD - 1]}…"


def _short(value: Any, longest: int) -> str | None:
    """A value in a few letters; None where it is missing."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    shown = f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
