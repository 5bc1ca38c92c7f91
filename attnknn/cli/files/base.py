"""What a file of rows must give: its columns, and its rows in parts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

ROWS_AT_ONCE = 16_384
Kind = Literal["table", "vectors", "images"]


@dataclass(frozen=True)
class Part:
    """Some rows of a file.

    Parameters
    ----------
    first : the number of the first of them in the file, counted from 0
    table : the named columns; of an NPZ file those arrays that have one value per row
    items : what the rows are where they are no table: vectors (n, D), images (n, H, W) or
        (n, H, W, 3), or paths of images (n,)
    lines : of a text file the line in which each row begins; all columns are then still text, with
        gaps for what is missing
    """

    first: int
    table: pd.DataFrame
    items: NDArray[Any] | None = None
    lines: list[int] | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def is_text(self) -> bool:
        """Whether all columns are still text."""
        return self.lines is not None

    def place(self, row: int) -> str:
        """Where a row of this part is: a line of a text file counts from 1, a row from 0."""
        return f"row {self.first + row}" if self.lines is None else f"line {self.lines[row]}"


class Source(Protocol):
    """A file of rows.

    Parameters
    ----------
    columns : the names of the columns, or of the arrays with one value per row
    default_target : the name of the labels where the format has a custom, else None
    default_id : the column that names the rows where nobody chose one, else None
    kind : what a row is: values of columns, a vector, or an image
    unusable : by name of what looks like a column and is none, the sentence that says why
    """

    path: Path
    columns: list[str]
    default_target: str | None
    default_id: str | None
    kind: Kind
    unusable: dict[str, str]

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]: ...


def check_column(source: Source, name: str) -> str:
    """`name`, if the file has such a column."""
    if name in source.columns:
        return name
    if name in source.unusable:
        raise InvalidInputError(source.unusable[name])
    kind = "array" if source.path.suffix.lower() == ".npz" else "column"
    known = ", ".join(source.columns[:20]) or "none"
    more = ", …" if len(source.columns) > 20 else ""
    raise InvalidInputError(
        f"{source.path} has no {kind} {name!r}.{_guess(name, source.columns)} "
        f"It has: {known}{more}."
    )


def _guess(name: str, known: list[str]) -> str:
    by_lower = {one.strip().lower(): one for one in known}
    close = difflib.get_close_matches(name.strip().lower(), by_lower, n=1)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def refuse_repeated(path: Path, names: list[str]) -> None:
    """An error for a name that comes twice."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise InvalidInputError(
            f"{path} must have columns with different names, {twice[0]!r} comes twice."
        )
