"""A file becomes what `fit` takes: rows, labels, ids, groups, importance and payloads."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.columns import (
    groups_of,
    ids_of,
    importance_of,
    labels_of,
    refuse_gaps,
    refuse_infinite,
)
from attnknn.cli.files import Part, Source
from attnknn.cli.files.base import check_column
from attnknn.cli.kinds import categories, typed_column
from attnknn.errors import InvalidInputError

SHOWN_COLUMNS = 6  # of a row, in the payload that `explain` shows
LONGEST_VALUE = 24
LONGEST_PAYLOAD = 160


@dataclass(frozen=True)
class Roles:
    """Which columns are not features; "" and () mean none.

    Parameters
    ----------
    payload : columns shown with the evidence, features or not; None shows the first features
    dropped : columns that are not used at all
    categorical : features that are categories even where they are written as numbers or dates
    """

    target: str
    id: str = ""
    group: str = ""
    importance: str = ""
    payload: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    @property
    def named(self) -> list[str]:
        """Every column that was named."""
        single = [self.target, self.id, self.group, self.importance]
        several = [*(self.payload or ()), *self.dropped, *self.categorical]
        return [name for name in [*single, *several] if name]

    def features(self, columns: list[str]) -> list[str]:
        """The columns that are learned from."""
        others = {self.target, self.id, self.group, self.importance, *self.dropped}
        return [name for name in columns if name not in others]


@dataclass(frozen=True)
class TrainingRows:
    """What `fit` takes; X is a DataFrame, or an array for vectors."""

    X: Any
    y: NDArray[Any]
    ids: NDArray[Any] | None
    groups: NDArray[Any] | None
    importance: NDArray[Any] | None
    payloads: list[str] | None


def read_training_rows(source: Source, roles: Roles, *, allows_gaps: bool = True) -> TrainingRows:
    """All rows of a file, each column in its role."""
    for name in roles.named:
        check_column(source, name)
    names = [] if source.has_vectors else roles.features(source.columns)
    _check_features(source, roles, names)
    whole = _whole(source)
    shown = names[:SHOWN_COLUMNS] if roles.payload is None else list(roles.payload)
    X = _table(whole, names, roles) if whole.vectors is None else whole.vectors
    if not allows_gaps:
        refuse_gaps(whole, X if isinstance(X, pd.DataFrame) else pd.DataFrame(X))
    return TrainingRows(
        X=X,
        y=labels_of(whole, roles.target),
        ids=ids_of(whole, roles.id) if roles.id else None,
        groups=groups_of(whole, roles.group) if roles.group else None,
        importance=importance_of(whole, roles.importance) if roles.importance else None,
        payloads=short_rows(whole.table[shown]) if shown else None,
    )


def _check_features(source: Source, roles: Roles, names: list[str]) -> None:
    if not names and not source.has_vectors:
        raise InvalidInputError(f"{source.path} must have a column beside {roles.target!r}.")
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
    vectors = [part.vectors for part in parts if part.vectors is not None]
    lines = [line for part in parts for line in part.lines or ()]
    return Part(
        first=0,
        table=pd.concat([part.table for part in parts], ignore_index=True),
        vectors=np.concatenate(vectors) if vectors else None,
        lines=lines if parts[0].is_text else None,
    )


def _table(whole: Part, names: list[str], roles: Roles) -> pd.DataFrame:
    return pd.DataFrame({name: _column(whole, name, roles) for name in names})


def _column(whole: Part, name: str, roles: Roles) -> pd.Series[Any]:
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


def short_rows(table: pd.DataFrame) -> list[str]:
    """Each row as one short text.

    >>> short_rows(pd.DataFrame({"age": [39, None], "job": ["cook", "nurse"]}))
    ['age=39, job=cook', 'job=nurse']
    """
    names = [str(name) for name in table.columns]
    columns = [table[name].astype(object).tolist() for name in table.columns]
    return [_short_row(names, values) for values in zip(*columns, strict=True)]


def _short_row(names: list[str], values: tuple[Any, ...]) -> str:
    pairs = zip(names, values, strict=True)
    present = [pair for pair in pairs if not (pd.api.types.is_scalar(pair[1]) and pd.isna(pair[1]))]
    text = ", ".join(f"{name}={_short(value)}" for name, value in present)
    return text if len(text) <= LONGEST_PAYLOAD else f"{text[: LONGEST_PAYLOAD - 1]}…"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
