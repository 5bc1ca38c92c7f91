"""CSV and TSV files: every row must be whole, every byte UTF-8; values stay text."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from attnknn.cli.files.base import ROWS_AT_ONCE, Kind, Part, refuse_repeated
from attnknn.errors import InvalidInputError

# The words that pandas takes for missing.
WORDS = "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a"
MISSING = frozenset([*WORDS.split("|"), "nan", "null", ""])
SEPARATORS = {",": "','", ";": "';'", "\t": "'\\t'", "|": "'|'"}  # as they are typed

NOT_TEXT = {
    b"\xff\xfe": "UTF-16. Save it as UTF-8",
    b"\xfe\xff": "UTF-16. Save it as UTF-8",
    b"\x1f\x8b": "compressed. Let its name end in .gz",
    b"PK": "a zip file or a workbook. Save the table as CSV",
}

Record = tuple[int, list[str]]  # the line in which a row begins, and its values


class TextSource:
    """A file of separated values with a header; a column without a name is left out.

    Read by the plain reader of Python: pandas fills up short rows, takes a longer first column for
    an index, renames repeated columns and guesses types again in each part, all in silence.
    """

    default_target: str | None = None
    default_id: str | None = None
    kind: Kind = "table"

    def __init__(self, path: Path, separator: str, *, is_asked_for: bool = False) -> None:
        self.path, self.separator = path, separator
        self.unusable: dict[str, str] = {}
        self._header = self._read_header()
        if len(self._header) == 1 and not is_asked_for:
            self._refuse_other_separator()
        self.columns = [name for name in self._header if name]
        refuse_repeated(path, self.columns)

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]:
        """The rows as text; a gap, or a word that means one, is missing."""
        first = 0
        with self._records() as records:
            next(records)
            rows = self._whole_rows(records)
            while block := list(itertools.islice(rows, n_rows)):
                lines = [line for line, _ in block]
                yield Part(first, self._table([row for _, row in block]), lines=lines)
                first += len(block)

    def _read_header(self) -> list[str]:
        with self._records() as records:
            _, header = next(records, (1, []))
        if not any(name.strip() for name in header):
            raise InvalidInputError(
                f"{self.path} is empty, or its first line is: that line must name the columns."
            )
        return [name.strip() for name in header]

    def _refuse_other_separator(self) -> None:
        for separator, typed in SEPARATORS.items():
            if separator in self._header[0]:
                raise InvalidInputError(
                    f"{self.path} has one column only, {self._header[0]!r}. If its values are "
                    f"separated by {typed}, give --sep {typed}; if not, --sep "
                    f"{SEPARATORS[self.separator]}."
                )

    def _whole_rows(self, records: Iterator[Record]) -> Iterator[Record]:
        width = len(self._header)
        for line, row in records:
            if len(row) == width:
                yield line, row
            elif row:
                raise InvalidInputError(
                    f"Every row of {self.path} must have {width} values, as the header has names; "
                    f"line {line} has {len(row)}."
                )

    def _table(self, block: list[list[str]]) -> pd.DataFrame:
        columns = zip(self._header, zip(*block, strict=True), strict=True)
        return pd.DataFrame(
            {name: pd.Series(_stripped(values), dtype=object) for name, values in columns if name}
        )

    @contextmanager
    def _records(self) -> Iterator[Iterator[Record]]:
        with self._explained(), self._bytes() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            # A quote may follow a space, as in: a, "b"
            reader = csv.reader(text, delimiter=self.separator, skipinitialspace=True, strict=True)
            yield self._numbered(reader)

    def _numbered(self, reader: Any) -> Iterator[Record]:
        """Each row with the line in which it begins: a value in quotes may span lines."""
        line = 1
        try:
            for row in reader:
                yield line, row
                line = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInputError(
                f"{self.path} cannot be read as separated values: {error}, in the row that begins "
                f"in line {line}. Is a quote open there?"
            ) from error

    def _bytes(self) -> BinaryIO:
        if self.path.name.lower().endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return open(self.path, "rb")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The reader's errors in the words of the file's owner."""
        try:
            yield
        except UnicodeError as error:
            raise InvalidInputError(self._where_not_utf8()) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{self.path} is not a whole .gz file: {error}.") from error

    def _where_not_utf8(self) -> str:
        with self._bytes() as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line[:2] in NOT_TEXT:
                    return f"{self.path} must be UTF-8, it is {NOT_TEXT[line[:2]]}."
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    return (
                        f"{self.path} must be UTF-8; line {number} has the byte "
                        f"0x{line[error.start]:02x} at place {error.start + 1}. Save it as UTF-8."
                    )
        return f"{self.path} must be UTF-8."


def _stripped(values: tuple[str, ...]) -> list[str | None]:
    """Values without the spaces around them; None for a gap."""
    stripped = [value.strip() for value in values]
    return [None if value in MISSING else value for value in stripped]
