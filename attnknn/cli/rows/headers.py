"""Whether the first line of a text file names the columns, or is data already."""

from __future__ import annotations

import re

import click
import pandas as pd

from attnknn.encoders.string_kinds import n_words, string_kind

HAS_HEADER = f"{__name__}.has_header"  # key in `Context.meta`
N_ROWS = 200  # rows that the first line is compared with
MIN_WORDS = 4  # of a name that may be a text
YEARS = range(1900, 2101)
NUMBERED = re.compile(r"column_\d+")  # names of columns without a header
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def header_choice() -> bool | None:
    """What the user said: --header, --no-header, or None."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(HAS_HEADER)


def numbered_names(n_columns: int) -> list[str]:
    """Names of columns without a header, counted from 1.

    >>> numbered_names(2)
    ['column_1', 'column_2']
    """
    return [f"column_{number}" for number in range(1, n_columns + 1)]


def cells_like_data(header: list[str], rows: list[list[str]]) -> list[str]:
    """The cells of a first line that look like data rather than like names.

    These are numbers, unless they count the columns or are years; cells that occur again in their
    column; and texts above a column of texts.

    >>> cells_like_data(["5.1", "setosa"], [["4.9", "setosa"], ["4.7", "virginica"]])
    ['5.1', 'setosa']
    >>> cells_like_data(["0", "1", "kind"], [["4.9", "3.0", "setosa"]])
    []
    """
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in header]
    numbers = [cell for cell in header if NUMBER.fullmatch(cell)]
    are_names = _are_names(numbers)
    return [
        cell
        for cell, column in zip(header, columns, strict=True)
        if cell
        and (
            not are_names
            if cell in numbers
            else cell in column or (n_words(cell) >= MIN_WORDS and _is_text(column))
        )
    ]


def _are_names(numbers: list[str]) -> bool:
    """Whether numbers in a header are names: a count such as 0, 1, 2, or years."""
    if not all(number.isdecimal() for number in numbers):
        return False
    integers = [int(number) for number in numbers]
    return (
        integers in ([0], [0, 1], [1, 2])
        or (len(integers) > 1 and all(integer in YEARS for integer in integers))
        or (len(integers) > 2 and _is_count(integers))
    )


def _is_count(integers: list[int]) -> bool:
    step = integers[1] - integers[0]
    return step > 0 and integers == list(range(integers[0], integers[-1] + 1, step))


def _is_text(column: list[str]) -> bool:
    return string_kind(pd.Series(column, dtype=object)) == "text"
