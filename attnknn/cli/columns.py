"""Columns with a role become labels, ids, groups and sample weight; each error names its place."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.files import Part
from attnknn.encoders.tabular import category_text
from attnknn.errors import InvalidInputError
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Floats, Integers


def labels_of(part: Part, name: str) -> NDArray[Any]:
    """Labels: integers where all are written as integers, else as they are; none may be missing.

    >>> [labels_of(Part(0, pd.DataFrame({"y": y})), "y").tolist() for y in (["3", "10"], ["03"])]
    [[3, 10], ['03']]
    """
    _refuse_missing(part, name, "a label")
    return _plain_values(part.table[name])


def ids_of(part: Part, name: str) -> NDArray[Any]:
    """Ids: integers where all are written as integers, else texts; none may be missing or twice."""
    _refuse_missing(part, name, "an id")
    values = _plain_values(part.table[name])
    ids = values if values.dtype.kind in "iu" else np.array([str(v) for v in values.tolist()])
    again = pd.Series(ids).duplicated().to_numpy()
    if again.any():
        row = int(again.argmax())
        raise InvalidInputError(
            f"Every row needs an id of its own; in column {name!r} {ids[row].item()!r} comes "
            f"twice, again in {part.place(row)}."
        )
    return ids


def groups_of(part: Part, name: str) -> Integers:
    """A number for each group, the same in every file; rows without one are in none (-1).

    It is a digest of the name: rows that are added find their group, and no name is stored.
    """
    column = part.table[name].astype(object)
    codes = {value: _code_of(category_text(value)) for value in column.dropna().unique()}
    return np.array([codes.get(value, NO_GROUP) for value in column], dtype=np.int64)


def _code_of(name: str) -> int:
    """A number of 62 bits, so that there is room for further ones above it."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def subjects_of(part: Part, name: str) -> NDArray[Any]:
    """Whose each row is; "" where the cell is empty."""
    column = part.table[name].astype(object)
    names = ["" if pd.isna(value) else str(value).strip() for value in column]
    return np.array(names, dtype=object)


def sample_weight_of(part: Part, name: str) -> Floats:
    """Positive numbers, one per row."""
    column = part.table[name].astype(object)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~(numbers > 0) | np.isinf(numbers)
    if wrong.any():
        row = int(wrong.argmax())
        shown = "nothing" if pd.isna(column.iloc[row]) else repr(column.iloc[row])
        raise InvalidInputError(
            f"Column {name!r} must hold a positive number in every row, {part.place(row)} holds "
            f"{shown}."
        )
    return numbers


def texts_of(part: Part, name: str) -> pd.Series[Any]:
    """Texts, one in every row.

    >>> texts_of(Part(0, pd.DataFrame({"x": ["why?", None]}), lines=[2, 3]), "x")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Column 'x' must hold a text in every row, line 3 holds none.
    """
    column = part.table[name].astype(object)
    for row, value in enumerate(column.tolist()):
        if not (isinstance(value, str) and value.strip()):
            is_none = isinstance(value, str) or (pd.api.types.is_scalar(value) and pd.isna(value))
            shown = "none" if is_none else f"{str(value)[:40]} ({type(value).__name__})"
            raise InvalidInputError(
                f"Column {name!r} must hold a text in every row, {part.place(row)} holds {shown}."
            )
    return column


def codes_of(part: Part, name: str, classes: NDArray[Any]) -> Integers:
    """The place of each label among the classes, both compared as they are written."""
    place = {str(value): code for code, value in enumerate(classes.tolist())}
    written = [str(value) for value in labels_of(part, name).tolist()]
    for row, label in enumerate(written):
        if label not in place:
            known = ", ".join(list(place)[:10]) + (", …" if len(place) > 10 else "")
            raise InvalidInputError(
                f"Column {name!r} must hold classes that the model knows ({known}); "
                f"{part.place(row)} holds {label!r}. Leave such rows out, or first remember "
                "examples of the class: `attnknn add --new-classes`."
            )
    return np.array([place[label] for label in written], dtype=np.int64)


def refuse_infinite(part: Part, name: str, numbers: pd.Series[Any]) -> None:
    """An error for the first number that is infinite."""
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        place = part.place(int(infinite.argmax()))
        raise InvalidInputError(f"Column {name!r} must be finite, {place} is infinite.")


def refuse_gaps(part: Part, table: pd.DataFrame) -> None:
    """An error for the first gap: vectors that are taken as they are can have none."""
    gaps = table.isna().to_numpy()
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise InvalidInputError(
            f"Column {table.columns[column]!r} must not be missing for `encoder='identity'`; "
            f"it is in {part.place(int(row))}. Fit with `--encoder tabular` to allow gaps."
        )


def _refuse_missing(part: Part, name: str, what: str) -> None:
    missing = part.table[name].isna().to_numpy()
    if missing.any():
        place = part.place(int(missing.argmax()))
        raise InvalidInputError(f"Every row needs {what}; column {name!r} has none in {place}.")


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
    """Whether a text is how an integer is written: '07' and '1.0' are names, and stay."""
    digits = text.removeprefix("-")
    is_plain = digits.isascii() and digits.isdigit() and len(digits) < 19
    return is_plain and str(int(text)) == text
