"""Column types of a table: infer numbers, dates and categories, and report suspicious columns."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from attnknn.cli.rows.sources import Chunk, Source
from attnknn.encoders.string_kinds import string_kind
from attnknn.encoders.tabular import CategoryColumn, TableEncoder, category_text
from attnknn.errors import InvalidInputError
from attnknn.records import Booleans

NEARLY_ALL = 0.9  # share of cells of a type from which the other cells look like mistakes
MIN_CELLS = 20  # below it there is no "nearly all"
N_SAMPLED = 1000  # cells parsed before a whole column is
N_NAMES = 6  # columns listed by name
ISO_DATE = r"\d{4}([-/])\d{1,2}\1\d{1,2}([T ].*)?$"
ANY_DATE = r"(\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2}))([T ].*)?$"


def _numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    return pd.to_numeric(column, errors="coerce")


def _dates(column: pd.Series[Any]) -> pd.Series[Any]:
    iso = column.where(column.str.match(ISO_DATE, na=False))
    return pd.to_datetime(iso, format="ISO8601", utc=True, errors="coerce")


PARSERS: dict[str, Callable[[pd.Series[Any]], pd.Series[Any]]] = {
    "numbers": _numbers,
    "dates": _dates,
}


def infer_type(chunk: Chunk, name: str) -> pd.Series[Any]:
    """A column of strings as numbers or dates if every cell is one, else unchanged.

    A column in which nearly every cell is a number or date is an error: as categories its numbers
    would be lost.

    >>> chunk = Chunk(0, pd.DataFrame({"x": ["1.5", None], "y": ["1", "a"]}), lines=[2, 3])
    >>> infer_type(chunk, "x").tolist(), infer_type(chunk, "y").tolist()
    ([1.5, nan], ['1', 'a'])
    """
    column = chunk.table[name].astype(object)
    present = column.dropna()
    sample = present.iloc[:: max(1, len(present) // N_SAMPLED)]
    for kind, parse in PARSERS.items():
        if len(sample) and parse(_without_commas(sample)).notna().mean() < NEARLY_ALL / 2:
            continue  # strings, which are slow to parse as numbers or dates
        parsed = parse(column)
        wrong = _unparsed(column, parsed)
        if not wrong.any():
            return parsed
        n_parsed = int(parse(_without_commas(column)).notna().sum())
        if len(present) >= MIN_CELLS and n_parsed >= NEARLY_ALL * len(present):
            raise _mixed_types(chunk, name, kind, wrong)
    return column.where(column.notna(), None)


def as_categories(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of any type as categories, so that its values are not taken for numbers or texts."""
    values = column.astype(object)
    strings = values.where(values.isna(), values.map(category_text, na_action="ignore"))
    return strings.astype("category")


def parse_column(chunk: Chunk, name: str, kind: str) -> pd.Series[Any]:
    """A column of strings as "numbers" or "dates"; an error names the first cell that is not one.

    >>> parse_column(Chunk(0, pd.DataFrame({"x": ["1", "a"]}), lines=[2, 3]), "x", "numbers")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Column 'x' must hold numbers, as in `fit`; line 3 has 'a'.
    """
    column = chunk.table[name].astype(object)
    parsed = PARSERS[kind](column)
    wrong = _unparsed(column, parsed)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"Column {name!r} must hold {kind}, as in `fit`; {chunk.place(row)} has "
            f"{column.iloc[row]!r}."
        )
    return parsed


def _unparsed(column: pd.Series[Any], parsed: pd.Series[Any]) -> Booleans:
    return np.asarray(parsed.isna() & column.notna(), dtype=bool)


def _without_commas(column: pd.Series[Any]) -> pd.Series[Any]:
    """12,5 and 1,234 are not numbers here, but not meant as categories either."""
    return column.str.replace(",", "", regex=False)


def _mixed_types(chunk: Chunk, name: str, kind: str, wrong: Booleans) -> InvalidInputError:
    row = int(wrong.argmax())
    cell = chunk.table[name].iloc[row]
    hint = " (write numbers as 1234.5)" if "," in cell else ""
    return InvalidInputError(
        f"Column {name!r} looks like {kind}, but {chunk.place(row)} has {cell!r} (cells like this: "
        f"{int(wrong.sum())} of {len(wrong)}). Correct it{hint}, leave the cell empty if the value "
        f"is missing, or give --categorical {shlex.quote(name)} if the column holds categories."
    )


def without_texts(table: pd.DataFrame, source: Source) -> tuple[pd.DataFrame, list[str]]:
    """The table without columns of free text, and a warning that names them; an error if all are.

    >>> table = pd.DataFrame({"x": range(5), "note": [f"pay it on day {i}" for i in range(5)]})
    >>> kept, (warning,) = without_texts(table, None)
    >>> list(kept), warning[:46]
    (['x'], "Warning: Free text is ignored: note, such as '")
    """
    texts = [str(name) for name in table.columns if string_kind(table[name]) == "text"]
    if not texts:
        return table, []
    first = shlex.quote(texts[0])
    learn = f"--text {first} learns from {'it' if len(texts) == 1 else 'one'} alone"
    if len(texts) == table.shape[1]:
        raise InvalidInputError(
            f"{source.path} must have a column of numbers, dates or categories for this encoder; "
            f"all columns are free text: {_listed(texts)}. {learn}."
        )
    shown = table[texts[0]].dropna().iloc[0]
    return table.drop(columns=texts), [
        f"Warning: Free text is ignored: {_listed(texts)}, such as {shown[:40]!r}. {learn}, "
        f"--drop-columns {first} confirms this, and --categorical {first} reads categories."
    ]


def describe_columns(table: pd.DataFrame) -> list[str]:
    """One line per column type, then warnings; a categorical dtype causes none.

    >>> table = pd.DataFrame({"age": [20, 40], "job": ["cook", "nurse"], "year": [1, 1]})
    >>> print(*describe_columns(table), sep=chr(10))
    numeric           1: age
    categorical       1: job
    ignored           1: year (all values are equal)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those below name options
        encoder = TableEncoder().fit(table)
    kinds: dict[str, list[str]] = {"numeric": [], "dates (in days)": [], "categorical": []}
    for column in encoder.columns_:
        is_date = getattr(column, "kind", "") == "date"
        numeric = "dates (in days)" if is_date else "numeric"
        kinds["categorical" if isinstance(column, CategoryColumn) else numeric].append(column.name)
    kinds["ignored"] = [f"{name} ({why})" for name, why in encoder.dropped_.items()]
    lines = [f"{kind:<17} {len(names)}: {_listed(names)}" for kind, names in kinds.items() if names]
    strings = [table[name] for name in kinds["categorical"] if table[name].dtype != "category"]
    return lines + _warnings(strings, [table[name] for name in kinds["numeric"]])


def refuse_constant(table: pd.DataFrame, source: Source) -> None:
    """Raise an error if every column is constant."""
    names = [str(name) for name in table.columns]
    if all(table[name].nunique() + table[name].isna().any() < 2 for name in table.columns):
        raise InvalidInputError(
            f"{source.path} must have a column that varies; all values are equal or missing in "
            f"{_listed(names)}."
        )


def _listed(names: list[str]) -> str:
    more = f", … ({len(names) - N_NAMES} more)" if len(names) > N_NAMES else ""
    return ", ".join(names[:N_NAMES]) + more


def _warnings(strings: list[pd.Series[Any]], numbers: list[pd.Series[Any]]) -> list[str]:
    dates = [str(column.name) for column in strings if _has_dates(column)]
    others = [column for column in strings if str(column.name) not in dates]
    ids = [str(column.name) for column in [*others, *numbers] if looks_like_id(column)]
    lines = []
    if dates:
        lines.append(
            f"Warning: Dates are read as categories: {_listed(dates)}. Write them as 2024-12-31, "
            "or use a date type in Parquet, to read them as days."
        )
    if ids:
        lines.append(
            f"Warning: Nearly every row has a different value, like an id: {_listed(ids)}. Ignore "
            f"such columns with --drop-columns {shlex.quote(','.join(ids[:N_NAMES]))}, or choose "
            "one as the --id-column."
        )
    return lines


def _has_dates(column: pd.Series[Any]) -> bool:
    distinct = pd.Series(column.dropna().unique()).astype(str)
    return len(distinct) > 1 and bool(distinct.str.match(ANY_DATE).all())


def looks_like_id(column: pd.Series[Any]) -> bool:
    """Whether a column numbers the rows, or holds strings that differ in nearly every row."""
    return _is_row_number(column) or string_kind(column) == "id"


def _is_row_number(column: pd.Series[Any]) -> bool:
    if len(column) < MIN_CELLS or not pd.api.types.is_integer_dtype(column):
        return False
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool((np.diff(numbers) == 1).all())
