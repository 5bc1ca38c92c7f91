"""A file becomes the arguments of `fit`: rows, labels, ids, groups, sample weights, payloads."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.rows import columns
from attnknn.cli.rows.column_types import as_categories, infer_type, looks_like_id
from attnknn.cli.rows.memory_bound import bytes_of, check_size, memory_bound
from attnknn.cli.rows.sources import Chunk, Source, check_column
from attnknn.encoders.string_kinds import string_kind
from attnknn.errors import InvalidInputError, ModelFolderError

N_PAYLOAD_COLUMNS = 6
N_COPIES = 3  # of the rows while a model is fitted
MAX_VALUE, MAX_TEXT, MAX_PAYLOAD = 24, 100, 160  # characters


@dataclass(frozen=True)
class Roles:
    """The role of each column that is not a plain feature; "" and () mean no column."""

    target: str
    id: str = ""
    group: str = ""
    sample_weight: str = ""
    payload: tuple[str, ...] | None = None  # shown as evidence; None shows the first columns
    dropped: tuple[str, ...] = ()  # ignored
    categorical: tuple[str, ...] = ()  # categories even if they look like numbers or dates
    text: str = ""  # the only feature, if there is one
    subject: str = ""

    @classmethod
    def from_notes(cls, notes: Mapping[str, str]) -> Roles:
        """The roles that `fit` recorded in the notes of a model folder."""
        return cls(
            target=notes.get("target", ""),
            id=notes.get("id_column", ""),
            group=notes.get("group_column", ""),
            sample_weight=notes.get("sample_weight_column", ""),
            payload=_names_in(notes, "payload_columns"),
            dropped=_names_in(notes, "dropped_columns") or (),
            text=notes.get("text", ""),
            subject=notes.get("subject_column", ""),
        )

    def notes(self) -> dict[str, str]:
        """The roles as strings, to be stored with the model.

        >>> Roles.from_notes(Roles("kind", group="herd", dropped=("a",)).notes()).dropped
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
            **{name: json.dumps(names) for name, names in several.items() if names is not None},
        }

    @property
    def named(self) -> list[str]:
        """All columns that the user named."""
        single = [self.target, self.id, self.group, self.subject, self.sample_weight, self.text]
        several = [*(self.payload or ()), *self.dropped, *self.categorical]
        return [name for name in [*single, *several] if name]

    def features(self, source: Source) -> list[str]:
        """The columns to learn from; none if the source is not a table."""
        if source.kind != "table":
            return []
        return [self.text] if self.text else self.without_role(source.columns)

    def without_role(self, names: list[str]) -> list[str]:
        """The columns that are neither dropped nor used as target, id, group, weight or subject."""
        used = {self.target, self.id, self.group, self.subject, self.sample_weight, *self.dropped}
        return [name for name in names if name not in used]

    def read_metadata(self, chunk: Chunk) -> dict[str, Any]:
        """Groups, sample weights and subjects of the rows, as arguments of `fit` and `add`."""
        weight = self.sample_weight
        return {
            "groups": columns.read_groups(chunk, self.group) if self.group else None,
            "sample_weight": columns.read_sample_weight(chunk, weight) if weight else None,
            "subjects": columns.read_subjects(chunk, self.subject) if self.subject else None,
        }

    def read_payloads(self, source: Source, chunk: Chunk) -> list[str] | None:
        """What `explain` shows of each row: file names as they are, else a short row."""
        if self.payload is not None:
            shown = list(self.payload)
        elif source.default_id:
            shown = [source.default_id]
        else:  # a text comes first, the other columns identify it
            names = self.without_role(source.columns if source.kind == "table" else [])
            shown = sorted(names, key=lambda name: name != self.text)[:N_PAYLOAD_COLUMNS]
        if not shown:
            return None
        if shown == [source.default_id]:
            return [str(value) for value in chunk.table[shown[0]]]
        return short_rows(chunk.table[shown], self.text)


def _names_in(notes: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """The columns listed in a note; None without the note."""
    if name not in notes:
        return None
    try:
        listed = json.loads(notes[name])
    except ValueError:
        listed = None
    if not (isinstance(listed, list) and all(isinstance(column, str) for column in listed)):
        raise ModelFolderError(
            f"The stored note `{name}` must be a list of column names, got {notes[name][:40]!r}."
        )
    return tuple(listed)


@dataclass(frozen=True)
class TrainingRows:
    """Arguments of `fit`: X is a DataFrame or an array, metadata are keyword arguments."""

    X: Any
    y: NDArray[Any]
    metadata: dict[str, Any]


def read_training_rows(source: Source, roles: Roles, *, allow_missing: bool = True) -> TrainingRows:
    """Read all rows of a file, each column in its role."""
    for name in roles.named:
        if not (name in roles.dropped and name in source.unusable):
            check_column(source, name)
    names = roles.features(source)
    _check_features(source, roles, names)
    whole = _read_all(source)
    X: Any = whole.items
    if whole.items is None:
        X = pd.DataFrame({name: _read_feature(whole, name, roles) for name in names})
    if not allow_missing:
        columns.refuse_missing_values(whole, X if isinstance(X, pd.DataFrame) else pd.DataFrame(X))
    y = columns.read_labels(whole, roles.target)
    ids = columns.read_ids(whole, roles.id) if roles.id else None
    payloads = roles.read_payloads(source, whole)
    return TrainingRows(X, y, {"ids": ids, "payloads": payloads, **roles.read_metadata(whole)})


def _check_features(source: Source, roles: Roles, names: list[str]) -> None:
    for name, message in source.unusable.items():
        if source.kind == "table" and not roles.text and roles.without_role([name]):
            raise InvalidInputError(
                f"{message} Ignore the column with --drop-columns {shlex.quote(name)}."
            )
    if not names and source.kind == "table":
        raise InvalidInputError(f"{source.path} must have a column besides {roles.target!r}.")
    if roles.text and not roles.without_role([roles.text]):
        raise InvalidInputError(
            f"--text must name a column without another role, got {roles.text!r}."
        )
    for name in roles.categorical:
        if name not in names:
            raise InvalidInputError(f"--categorical must name feature columns, got {name!r}.")


def only_text(source: Source, roles: Roles) -> str:
    """The column of free text, if no other feature says anything: ids do not. Else ""."""
    names = [] if roles.text else roles.features(source)
    if not names or set(names) & set(roles.categorical):
        return ""
    check_size(source.path, N_COPIES * source.declared_bytes)
    chunk = next(iter(source.chunks()), None)
    if chunk is None or not set(names) <= set(chunk.table.columns):
        return ""
    features = [infer_type(chunk, n) if chunk.is_text else chunk.table[n] for n in names]
    texts = [str(column.name) for column in features if string_kind(column) == "text"]
    n_ids = sum(looks_like_id(column) for column in features)
    return texts[0] if len(texts) == 1 and n_ids == len(names) - 1 else ""


def _read_all(source: Source) -> Chunk:
    chunks = _read_chunks(source)
    n_rows = sum(len(chunk) for chunk in chunks)
    if n_rows < 2:
        raise InvalidInputError(f"{source.path} must have at least two rows, it has {n_rows}.")
    items = [chunk.items for chunk in chunks if chunk.items is not None]
    lines = [line for chunk in chunks for line in chunk.lines or ()]
    return Chunk(
        first=0,
        table=pd.concat([chunk.table for chunk in chunks], ignore_index=True),
        items=np.concatenate(items) if items else None,
        lines=lines if chunks[0].is_text else None,
    )


def _read_chunks(source: Source) -> list[Chunk]:
    """All chunks, which will be in memory beside the joined rows and their copy in the fit."""
    bound = memory_bound()
    check_size(source.path, N_COPIES * source.declared_bytes, bound)
    chunks, n_bytes = [], 0
    for chunk in source.chunks():
        chunks.append(chunk)
        n_bytes += bytes_of(chunk)
        check_size(source.path, N_COPIES * n_bytes, bound)
    return chunks


def _read_feature(whole: Chunk, name: str, roles: Roles) -> pd.Series[Any]:
    if name == roles.text:
        return columns.read_texts(whole, name)
    if name in roles.categorical:
        return as_categories(whole.table[name])
    column = infer_type(whole, name) if whole.is_text else whole.table[name]
    if isinstance(next(iter(column.dropna()), None), list | dict | np.ndarray):
        raise InvalidInputError(
            f"Column {name!r} must hold one value per row, it holds lists. Ignore it with "
            f"--drop-columns {shlex.quote(name)}."
        )
    if pd.api.types.is_numeric_dtype(column):
        columns.refuse_infinite(whole, name, column)
    return column


def short_rows(table: pd.DataFrame, text: str = "") -> list[str]:
    """Each row as one short string; the column `text` is shortened less than others.

    >>> short_rows(pd.DataFrame({"age": [39, None], "job": ["cook", "nurse"]}))
    ['age=39, job=cook', 'job=nurse']
    """
    names = [str(name) for name in table.columns]
    cells = [
        [_short(value, MAX_TEXT if name == text else MAX_VALUE) for value in table[name].tolist()]
        for name in names
    ]
    rows = []
    for values in zip(*cells, strict=True):
        pairs = zip(names, values, strict=True)
        row = ", ".join(f"{name}={value}" for name, value in pairs if value is not None)
        rows.append(row if len(row) <= MAX_PAYLOAD else f"{row[: MAX_PAYLOAD - 1]}…")
    return rows


def _short(value: Any, max_length: int) -> str | None:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    shown = f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"
