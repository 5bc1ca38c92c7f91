"""A file becomes what `fit` takes: rows, labels, ids, groups, importance and payloads."""

from __future__ import annotations

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
    numbers_or_text,
)
from attnknn.cli.files import Source
from attnknn.cli.files.base import check_column
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
    """

    target: str
    id: str = ""
    group: str = ""
    importance: str = ""
    payload: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()

    @property
    def named(self) -> list[str]:
        """Every column that was named."""
        single = [self.target, self.id, self.group, self.importance]
        return [name for name in [*single, *(self.payload or ()), *self.dropped] if name]


@dataclass(frozen=True)
class TrainingRows:
    """What `fit` takes; X is a DataFrame, or an array for vectors."""

    X: Any
    y: NDArray[Any]
    ids: NDArray[Any] | None
    groups: NDArray[Any] | None
    importance: NDArray[Any] | None
    payloads: list[str] | None


def read_training_rows(source: Source, roles: Roles) -> TrainingRows:
    """All rows of a file, each column in its role."""
    for name in roles.named:
        check_column(source, name)
    parts = list(source.parts())
    if not sum(len(part) for part in parts):
        raise InvalidInputError(f"{source.path} must have rows to learn from, it has none.")
    table = pd.concat([part.table for part in parts], ignore_index=True)
    not_features = {roles.target, roles.id, roles.group, roles.importance, *roles.dropped}
    if source.has_vectors:
        X: Any = np.concatenate([part.vectors for part in parts if part.vectors is not None])
        shown = list(roles.payload or ())
    else:
        names = [name for name in source.columns if name not in not_features]
        if not names:
            raise InvalidInputError(f"{source.path} must have a column beside {roles.target!r}.")
        is_text = parts[0].is_text
        X = pd.DataFrame({n: numbers_or_text(table[n]) if is_text else table[n] for n in names})
        shown = list(names[:SHOWN_COLUMNS] if roles.payload is None else roles.payload)
    return TrainingRows(
        X=X,
        y=labels_of(table[roles.target], roles.target),
        ids=ids_of(table[roles.id], roles.id) if roles.id else None,
        groups=groups_of(table[roles.group]) if roles.group else None,
        importance=importance_of(table[roles.importance], roles.importance)
        if roles.importance
        else None,
        payloads=short_rows(table[shown]) if shown else None,
    )


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
    text = ", ".join(f"{name}={_short(value)}" for name, value in pairs if not pd.isna(value))
    return text if len(text) <= LONGEST_PAYLOAD else f"{text[: LONGEST_PAYLOAD - 1]}…"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
