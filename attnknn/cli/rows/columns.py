"""Columns with a role become labels, ids, groups, subjects, sample weights and texts."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.rows.sources import Chunk, Source, check_column
from attnknn.encoders.tabular import category_text
from attnknn.errors import InvalidInputError
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Floats, Integers

# A target with more distinct values than MAX_…, and fewer rows per value than MIN_…, is refused.
MAX_INTEGERS, MAX_FRACTIONS, MAX_STRINGS = 100, 20, 100
MIN_ROWS_PER_NUMBER, MIN_ROWS_PER_STRING = 5, 2


def read_labels(chunk: Chunk, name: str) -> NDArray[Any]:
    """Labels, none missing: integers if all are written as integers, else strings.

    >>> def labels(y): return read_labels(Chunk(0, pd.DataFrame({"y": y})), "y").tolist()
    >>> labels(["3", "10"]), labels(["03"])
    ([3, 10], ['03'])
    """
    _refuse_missing(chunk, name, "a label")
    return _plain_values(chunk.table[name])


def read_ids(chunk: Chunk, name: str) -> NDArray[Any]:
    """Unique ids, none missing: integers if all are written as integers, else strings."""
    _refuse_missing(chunk, name, "an id")
    values = _plain_values(chunk.table[name])
    ids = values if values.dtype.kind in "iu" else np.array([str(v) for v in values.tolist()])
    repeated = pd.Series(ids).duplicated().to_numpy()
    if repeated.any():
        row = int(repeated.argmax())
        raise InvalidInputError(
            f"Ids must be unique; column {name!r} repeats {ids[row].item()!r} in "
            f"{chunk.place(row)}."
        )
    return ids


def read_groups(chunk: Chunk, name: str) -> Integers:
    """An integer for each group; -1 for rows without a group.

    The integer is a hash of the group's name, so rows that are added later find their group
    although no names are stored.
    """
    column = chunk.table[name].astype(object)
    codes = {value: _hash_of(category_text(value)) for value in column.dropna().unique()}
    return np.array([codes.get(value, NO_GROUP) for value in column], dtype=np.int64)


def _hash_of(name: str) -> int:
    """A hash of 62 bits, which leaves room for further codes above it."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def read_subjects(chunk: Chunk, name: str) -> NDArray[Any]:
    """The data subject of each row; "" where the cell is empty."""
    column = chunk.table[name].astype(object)
    names = ["" if pd.isna(value) else str(value).strip() for value in column]
    return np.array(names, dtype=object)


def read_sample_weight(chunk: Chunk, name: str) -> Floats:
    """A positive number for each row."""
    column = chunk.table[name].astype(object)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~(numbers > 0) | np.isinf(numbers)
    if wrong.any():
        row = int(wrong.argmax())
        shown = "no value" if pd.isna(column.iloc[row]) else repr(column.iloc[row])
        raise InvalidInputError(
            f"Column {name!r} must hold a positive number in every row, {chunk.place(row)} has "
            f"{shown}."
        )
    return numbers


def read_texts(chunk: Chunk, name: str) -> pd.Series[Any]:
    """A text for each row.

    >>> read_texts(Chunk(0, pd.DataFrame({"x": ["why?", None]}), lines=[2, 3]), "x")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Column 'x' must hold a text in every row, line 3 has no value.
    """
    column = chunk.table[name].astype(object)
    for row, value in enumerate(column.tolist()):
        if not (isinstance(value, str) and value.strip()):
            is_empty = isinstance(value, str) or (pd.api.types.is_scalar(value) and pd.isna(value))
            shown = "no value" if is_empty else f"{str(value)[:40]} ({type(value).__name__})"
            raise InvalidInputError(
                f"Column {name!r} must hold a text in every row, {chunk.place(row)} has {shown}."
            )
    return column


def read_class_codes(chunk: Chunk, name: str, classes: NDArray[Any]) -> Integers:
    """The index of each label in `classes`; both are compared as strings."""
    codes = {str(value): code for code, value in enumerate(classes.tolist())}
    labels = [str(value) for value in read_labels(chunk, name).tolist()]
    for row, label in enumerate(labels):
        if label not in codes:
            known = ", ".join(list(codes)[:10]) + (", …" if len(codes) > 10 else "")
            raise InvalidInputError(
                f"Column {name!r} must hold classes that the model knows ({known}); "
                f"{chunk.place(row)} has {label!r}. Remove such rows, or first add examples of the "
                "class with `attnknn add --new-classes`."
            )
    return np.array([codes[label] for label in labels], dtype=np.int64)


def refuse_infinite(chunk: Chunk, name: str, numbers: pd.Series[Any]) -> None:
    """Raise an error for the first infinite number."""
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        place = chunk.place(int(infinite.argmax()))
        raise InvalidInputError(f"Column {name!r} must be finite, {place} is infinite.")


def refuse_missing_values(chunk: Chunk, table: pd.DataFrame) -> None:
    """Raise an error for the first missing value, which the identity encoder cannot take."""
    missing = table.isna().to_numpy()
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise InvalidInputError(
            f"Column {table.columns[column]!r} must have no missing values for the encoder "
            f"'identity'; the value in {chunk.place(int(row))} is missing. Fit with `--encoder "
            "tabular` to allow missing values."
        )


def _refuse_missing(chunk: Chunk, name: str, what: str) -> None:
    missing = chunk.table[name].isna().to_numpy()
    if missing.any():
        place = chunk.place(int(missing.argmax()))
        raise InvalidInputError(f"Every row needs {what}; column {name!r} is empty in {place}.")


def _plain_values(column: pd.Series[Any]) -> NDArray[Any]:
    if column.dtype.kind in "iufb" and not pd.api.types.is_extension_array_dtype(column.dtype):
        return column.to_numpy()
    values = column.astype(object).tolist()
    if all(isinstance(value, bool | np.bool_) for value in values):
        return np.array(values, dtype=bool)
    texts = [str(value) for value in values]
    if all(_is_integer(text) for text in texts):
        return np.array([int(text) for text in texts], dtype=np.int64)
    return np.array(texts)


def _is_integer(text: str) -> bool:
    """Whether a string is the canonical form of an integer; '07' and '1.0' are not."""
    digits = text.removeprefix("-")
    is_plain = digits.isascii() and digits.isdigit() and len(digits) < 19
    return is_plain and str(int(text)) == text


def target_of(source: Source, notes: dict[str, str], given: str | None) -> str:
    """The column of the labels: the given one, or the one that `fit` recorded in the notes."""
    recorded = notes.get("target", "")
    default = recorded if recorded in source.columns else source.default_target or recorded
    return check_column(source, given or default)


def refuse_regression_target(labels: NDArray[Any], name: str) -> None:
    """Raise an error for a target with too many distinct values to be classes.

    >>> refuse_regression_target(np.arange(1000), "price")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Column 'price' looks like a regression target, not a class: \
it has 1,000 distinct values in 1,000 rows. Choose another --target, or allow it with \
--many-classes.
    """
    distinct = np.unique(labels)
    numbers = pd.to_numeric(pd.Series(distinct.tolist()), errors="coerce")
    if numbers.isna().any():
        looks_like, max_values, min_rows = "an identifier", MAX_STRINGS, MIN_ROWS_PER_STRING
    else:
        has_fractions = bool((numbers % 1 != 0).any())
        max_values = MAX_FRACTIONS if has_fractions else MAX_INTEGERS
        looks_like, min_rows = "a regression target", MIN_ROWS_PER_NUMBER
    if len(distinct) > max_values and len(labels) < min_rows * len(distinct):
        raise InvalidInputError(
            f"Column {name!r} looks like {looks_like}, not a class: it has {len(distinct):,} "
            f"distinct values in {len(labels):,} rows. Choose another --target, or allow it with "
            "--many-classes."
        )
