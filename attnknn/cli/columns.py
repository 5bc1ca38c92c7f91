"""Columns of text become labels, ids, numbers and categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError
from attnknn.records import Floats, Integers


def numbers_or_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of text as numbers if all that is there is a number, else as it was.

    >>> [numbers_or_text(pd.Series(texts)).tolist() for texts in (["1.5", None], ["1", "a"])]
    [[1.5, nan], ['1', 'a']]
    """
    try:
        return pd.to_numeric(column.astype(object))
    except (ValueError, TypeError):
        return column.astype(object).where(column.notna(), None)


def as_numbers(column: pd.Series[Any], name: str, first: int) -> pd.Series[Any]:
    """A column of text as numbers, or an error that names the first row that is none."""
    numbers = pd.to_numeric(column.astype(object), errors="coerce")
    wrong = numbers.isna().to_numpy() & column.notna().to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"Column {name!r} must hold numbers, as in `fit`; row {first + row} holds "
            f"{column.iloc[row]!r}."
        )
    return numbers


def labels_of(column: pd.Series[Any], name: str, first: int = 0) -> NDArray[Any]:
    """Labels: integers where all are written as integers, else as they are; none may be missing.

    >>> labels_of(pd.Series(["3", "10"]), "y").tolist(), labels_of(pd.Series(["03"]), "y").tolist()
    ([3, 10], ['03'])
    """
    missing = column.isna().to_numpy()
    if missing.any():
        row = first + int(missing.argmax())
        raise InvalidInputError(f"Every row needs a label; column {name!r} has none in row {row}.")
    return _plain_values(column)


def ids_of(column: pd.Series[Any], name: str) -> NDArray[Any]:
    """Ids: integers where all are written as integers, else texts; none may be missing."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"Every row needs an id; column {name!r} has none in row {int(missing.argmax())}."
        )
    values = _plain_values(column)
    return values if values.dtype.kind in "iu" else np.array([str(v) for v in values.tolist()])


def groups_of(column: pd.Series[Any]) -> Integers:
    """A number for each group; rows without one are in none (-1)."""
    codes, _ = pd.factorize(column.astype(object), use_na_sentinel=True)
    return np.asarray(codes, dtype=np.int64)


def importance_of(column: pd.Series[Any], name: str) -> Floats:
    """Positive numbers, one per row."""
    numbers = as_numbers(column, name, 0).to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~(numbers > 0) | np.isinf(numbers)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"Column {name!r} must hold a positive number in every row, row {row} holds "
            f"{column.iloc[row]!r}."
        )
    return numbers


def codes_of(labels: NDArray[Any], classes: NDArray[Any], name: str, first: int) -> Integers:
    """The place of each label among the classes, both compared as they are written."""
    place = {str(value): code for code, value in enumerate(classes.tolist())}
    written = [str(value) for value in labels.tolist()]
    for row, label in enumerate(written):
        if label not in place:
            known = ", ".join(list(place)[:10]) + (", …" if len(place) > 10 else "")
            raise InvalidInputError(
                f"Column {name!r} must hold classes that the model knows ({known}); row "
                f"{first + row} holds {label!r}."
            )
    return np.array([place[label] for label in written], dtype=np.int64)


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
