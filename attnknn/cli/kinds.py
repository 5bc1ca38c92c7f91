"""What a column of text holds: numbers, dates or categories."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from attnknn.cli.files import Part
from attnknn.encoders.tabular import category_text
from attnknn.errors import InvalidInputError
from attnknn.records import Booleans

NEARLY = 0.9  # of the cells, from which on the others look like mistakes
FEWEST_CELLS = 20  # to speak of nearly all
N_LOOKED_AT = 1000  # cells, at least, before a whole column is parsed
ISO_DATE = r"\d{4}([-/])\d{1,2}\1\d{1,2}([T ].*)?$"

Parser = Callable[["pd.Series[Any]"], "pd.Series[Any]"]


def typed_column(part: Part, name: str) -> pd.Series[Any]:
    """A column of text as numbers or dates if all that is there is one, else as it was.

    A column with a few cells that are none is refused: as categories its numbers would be lost.

    >>> part = Part(0, pd.DataFrame({"x": ["1.5", None], "y": ["1", "a"]}), lines=[2, 3])
    >>> typed_column(part, "x").tolist(), typed_column(part, "y").tolist()
    ([1.5, nan], ['1', 'a'])
    """
    column = part.table[name].astype(object)
    some = _some(column)
    for kind, parse in PARSERS.items():
        if len(some) and parse(_without_commas(some)).notna().mean() < NEARLY / 2:
            continue  # plain texts, which take long to parse in vain
        parsed = parse(column)
        wrong = _wrong(column, parsed)
        if not wrong.any():
            return parsed
        if _is_nearly_all(column, parse(_without_commas(column))):
            raise _refused(part, name, kind, wrong)
    return column.where(column.notna(), None)


def categories(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of any type as texts, so that nothing takes its values for numbers."""
    values = column.astype(object)
    return values.where(values.isna(), values.map(category_text, na_action="ignore"))


def as_kind(part: Part, name: str, kind: str) -> pd.Series[Any]:
    """A column of text as "numbers" or "dates", or an error that names the first cell that is none.

    >>> as_kind(Part(0, pd.DataFrame({"x": ["1", "a"]}), lines=[2, 3]), "x", "numbers")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Column 'x' must hold numbers, as in `fit`; line 3 holds 'a'.
    """
    column = part.table[name].astype(object)
    parsed = PARSERS[kind](column)
    wrong = _wrong(column, parsed)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"Column {name!r} must hold {kind}, as in `fit`; {part.place(row)} holds "
            f"{column.iloc[row]!r}."
        )
    return parsed


def _numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    return pd.to_numeric(column, errors="coerce")


def _dates(column: pd.Series[Any]) -> pd.Series[Any]:
    iso = column.where(column.str.match(ISO_DATE, na=False))
    return pd.to_datetime(iso, format="ISO8601", utc=True, errors="coerce")


PARSERS: dict[str, Parser] = {"numbers": _numbers, "dates": _dates}


def _some(column: pd.Series[Any]) -> pd.Series[Any]:
    """A few of the cells that are not missing, from all over the column."""
    present = column.dropna()
    return present.iloc[:: max(1, len(present) // N_LOOKED_AT)]


def _wrong(column: pd.Series[Any], parsed: pd.Series[Any]) -> Booleans:
    return np.asarray(parsed.isna() & column.notna(), dtype=bool)


def _without_commas(column: pd.Series[Any]) -> pd.Series[Any]:
    """12,5 and 1,234 are no numbers here, but nobody means them as categories."""
    return column.str.replace(",", "", regex=False)


def _is_nearly_all(column: pd.Series[Any], parsed: pd.Series[Any]) -> bool:
    n_cells = int(column.notna().sum())
    return n_cells >= FEWEST_CELLS and int(parsed.notna().sum()) >= NEARLY * n_cells


def _refused(part: Part, name: str, kind: str, wrong: Booleans) -> InvalidInputError:
    row = int(wrong.argmax())
    cell = part.table[name].iloc[row]
    hint = " (a number is written as 1234.5)" if "," in cell else ""
    return InvalidInputError(
        f"Column {name!r} looks like {kind}, but {part.place(row)} holds {cell!r} (cells like "
        f"that: {int(wrong.sum())} of {len(wrong)}). Correct it{hint}, leave it empty if it "
        f"is missing, or give --categorical {shlex.quote(name)} if the column is meant as "
        "categories."
    )
