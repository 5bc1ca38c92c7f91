"""What a file of rows must give: its columns, and its rows in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

ROWS_AT_ONCE = 16_384


@dataclass(frozen=True)
class Part:
    """Some rows of a file.

    Parameters
    ----------
    first : the number of the first of them in the file, counted from 0
    table : the named columns; of an NPZ file those arrays that have one value per row
    vectors : (n, D) of an NPZ file, or None
    is_text : whether all columns are still text, with gaps for what is missing
    """

    first: int
    table: pd.DataFrame
    vectors: NDArray[Any] | None = None
    is_text: bool = False

    def __len__(self) -> int:
        return len(self.table)


class Source(Protocol):
    """A file of rows.

    Parameters
    ----------
    columns : the names of the columns, or of the arrays with one value per row
    default_target : the name of the labels where the format has a custom, else None
    has_vectors : whether the rows are vectors, not columns of a table
    """

    path: Path
    columns: list[str]
    default_target: str | None
    has_vectors: bool

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]: ...


def check_column(source: Source, name: str) -> str:
    """`name`, if the file has such a column."""
    if name in source.columns:
        return name
    kind = "array" if source.has_vectors else "column"
    known = ", ".join(source.columns[:20]) or "none"
    more = ", …" if len(source.columns) > 20 else ""
    raise InvalidInputError(f"{source.path} has no {kind} {name!r}. It has: {known}{more}.")


def refuse_repeated(path: Path, names: list[str]) -> None:
    """An error for a name that comes twice."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise InvalidInputError(
            f"{path} must have columns with different names, {twice[0]!r} comes twice."
        )
