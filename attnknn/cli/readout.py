"""How the columns of a table were read, and which of them look like a mistake."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from attnknn.cli.files import Source
from attnknn.encoders.tabular import CategoryColumn, TableEncoder
from attnknn.errors import InvalidInputError

SHOWN_NAMES = 6
NEARLY = 0.9  # of the rows, from which on a text that differs from row to row names them
FEWEST_ROWS = 20  # to speak of nearly all
DATE = r"(\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2}))([T ].*)?$"


def column_lines(table: pd.DataFrame, sure: Collection[str] = ()) -> list[str]:
    """What the columns are taken for, in a line per kind, and warnings.

    Parameters
    ----------
    sure : columns about which nobody wants a warning

    Examples
    --------
    >>> table = pd.DataFrame({"age": [20, 40], "job": ["cook", "nurse"], "year": [1, 1]})
    >>> print(*column_lines(table), sep=chr(10))
    numeric           1: age
    categorical       1: job
    left out          1: year (all values are equal)
    """
    encoder = TableEncoder().fit(table)
    kinds: dict[str, list[str]] = {"numeric": [], "dates, in days": [], "categorical": []}
    for column in encoder.columns_:
        kinds[_kind(column)].append(column.name)
    kinds["left out"] = [f"{name} ({why})" for name, why in encoder.dropped_.items()]
    lines = [f"{kind:<17} {len(names)}: {_listed(names)}" for kind, names in kinds.items() if names]
    texts = [table[name] for name in kinds["categorical"] if name not in sure]
    return lines + _warnings(texts, [table[name] for name in kinds["numeric"]])


def refuse_constant(table: pd.DataFrame, source: Source) -> None:
    """An error where no column tells anything; it names them."""
    names = [str(name) for name in table.columns]
    if all(table[name].nunique() + table[name].isna().any() < 2 for name in table.columns):
        raise InvalidInputError(
            f"{source.path} must have a column that varies; all values are equal or missing in "
            f"{_listed(names)}."
        )


def _kind(column: Any) -> str:
    if isinstance(column, CategoryColumn):
        return "categorical"
    return "dates, in days" if column.kind == "date" else "numeric"


def _listed(names: list[str]) -> str:
    more = f", … ({len(names) - SHOWN_NAMES} more)" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _warnings(texts: list[pd.Series[Any]], numbers: list[pd.Series[Any]]) -> list[str]:
    dates = [str(column.name) for column in texts if _is_dates(column)]
    ids = [str(c.name) for c in texts if str(c.name) not in dates and _names_rows(c)]
    ids += [str(column.name) for column in numbers if _counts_rows(column)]
    lines = []
    if dates:
        lines.append(
            f"Warning: Dates are read as categories: {_listed(dates)}. They become days where they "
            "are written as 2024-12-31, and in Parquet where the column is of a date type."
        )
    if ids:
        lines.append(
            f"Warning: Differs from row to row, as an id does: {_listed(ids)}. Leave such columns "
            f"out with --drop-columns {shlex.quote(','.join(ids[:SHOWN_NAMES]))}, or name the rows "
            "by one with --id-column."
        )
    return lines


def _is_dates(column: pd.Series[Any]) -> bool:
    distinct = pd.Series(column.dropna().unique()).astype(str)
    return len(distinct) > 1 and bool(distinct.str.match(DATE).all())


def _names_rows(column: pd.Series[Any]) -> bool:
    n_present = int(column.notna().sum())
    return n_present >= FEWEST_ROWS and column.nunique() >= NEARLY * n_present


def _counts_rows(column: pd.Series[Any]) -> bool:
    if len(column) < FEWEST_ROWS or not pd.api.types.is_integer_dtype(column):
        return False
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool((np.diff(numbers) == 1).all())
