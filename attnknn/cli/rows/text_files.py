"""CSV, TSV and plain text files, read strictly: every row complete, every byte UTF-8."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import pandas as pd

from attnknn._escape import unguard_formula
from attnknn.cli.rows.headers import N_ROWS, cells_like_data, numbered_names
from attnknn.cli.rows.sources import CHUNK_ROWS, Chunk, Source, refuse_repeated
from attnknn.errors import InvalidInputError

# The strings that pandas reads as missing.
WORDS = "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a"
MISSING = frozenset([*WORDS.split("|"), "nan", "null", ""])
SEPARATORS = {",": "','", ";": "';'", "\t": "'\\t'", "|": "'|'"}  # as typed in a shell
NOT_TEXT = {
    b"\xff\xfe": "UTF-16. Save it as UTF-8",
    b"\xfe\xff": "UTF-16. Save it as UTF-8",
    b"\x1f\x8b": "compressed. Rename it to end in .gz",
    b"PK": "a zip file or a workbook. Save the table as CSV",
}

MAX_LINE, CHUNK_CHARACTERS = 1 << 24, 1 << 26
Record = tuple[int, list[str]]  # the line where a row begins, and its values


class TextFile(Source):
    """What all text files share: lines, compression and encoding errors."""

    def _open(self) -> BinaryIO:
        if self.path.name.lower().endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return open(self.path, "rb")

    def _bounded_lines(self, text: IO[str]) -> Iterator[str]:
        number = 0
        while line := text.readline(MAX_LINE):
            number += 1
            if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                raise InvalidInputError(
                    f"Lines of {self.path} must be shorter than {MAX_LINE:,} characters; line "
                    f"{number} is longer."
                )
            yield line

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeError as error:
            raise InvalidInputError(self._first_invalid_byte()) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{self.path} is not a valid .gz file: {error}.") from error

    def _first_invalid_byte(self) -> str:
        with self._open() as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line[:2] in NOT_TEXT:
                    return f"{self.path} must be UTF-8, it is {NOT_TEXT[line[:2]]}."
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    return (
                        f"{self.path} must be UTF-8; line {number} has the byte "
                        f"0x{line[error.start]:02x} at position {error.start + 1}. Save it as "
                        'UTF-8 ("CSV UTF-8" in spreadsheets).'
                    )
        return f"{self.path} must be UTF-8."


def _take(rows: Iterator[Record], n_rows: int) -> list[Record]:
    """The next rows: at most `n_rows`, and fewer if they are long."""
    taken, n_characters = [], 0
    for record in itertools.islice(rows, n_rows):
        taken.append(record)
        n_characters += sum(map(len, record[1]))
        if n_characters > CHUNK_CHARACTERS:
            break
    return taken


class CsvSource(TextFile):
    """A file of separated values; columns without a name are skipped.

    It uses Python's csv module because pandas silently pads short rows, takes a longer first column
    for an index, renames repeated columns and infers types for each chunk separately. Unless the
    user chose the separator (`is_explicit`), a single column with another separator is an error.
    Unless the user said whether there is a header (`has_header`), a first line that looks like data
    is an error. Without a header, columns are named column_1, column_2 and so on.
    """

    missing_words = MISSING

    def __init__(
        self,
        path: Path,
        separator: str,
        *,
        is_explicit: bool = False,
        has_header: bool | None = None,
    ) -> None:
        self.path, self.separator = path, separator
        self.has_header = has_header is not False
        self._header = self._read_header()
        if len(self._header) == 1 and not is_explicit:
            self._check_separator()
        if not self.has_header:
            self._header = numbered_names(len(self._header))
        elif has_header is None:
            self._refuse_data()
        self.columns = [name for name in self._header if name]
        refuse_repeated(path, self.columns)

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """Rows as stripped strings; None where a value is missing."""
        first = 0
        with self._records() as records:
            if self.has_header:
                next(records)
            rows = self._complete_rows(records)
            while block := _take(rows, n_rows):
                lines = [line for line, _ in block]
                yield Chunk(first, self._table([row for _, row in block]), lines=lines)
                first += len(block)

    def _read_header(self) -> list[str]:
        with self._records() as records:
            _, header = next(records, (1, []))
        if not any(name.strip() for name in header):
            with self._open() as file:
                is_empty = not file.read(1)
            if is_empty:
                raise InvalidInputError(f"{self.path} must hold rows, it is empty.")
            what = "name the columns" if self.has_header else "hold a row"
            raise InvalidInputError(f"The first line of {self.path} must {what}, it is blank.")
        return [unguard_formula(name.strip()) for name in header]

    def _refuse_data(self) -> None:
        """Raise an error if most names look like data."""
        with self._records() as records:
            next(records)
            block = _take((r for r in records if len(r[1]) == len(self._header)), N_ROWS)
        rows = [[cell.strip() for cell in row] for _, row in block]
        found = cells_like_data(self._header, rows)
        if 2 * len(found) > sum(map(bool, self._header)):
            shown = ", ".join(repr(cell[:40]) for cell in found[:4])
            more = ", …" if len(found) > 4 else ""
            raise InvalidInputError(
                f"The first line of {self.path} must name the columns, but it looks like data: "
                f"{shown}{more}. Give --no-header if the file has no header (columns are then "
                "named column_1, column_2, …), or --header if these are names."
            )

    def _check_separator(self) -> None:
        for separator, typed in SEPARATORS.items():
            if separator in self._header[0]:
                raise InvalidInputError(
                    f"{self.path} has only one column, {self._header[0]!r}. If its values are "
                    f"separated by {typed}, give --sep {typed}; if not, --sep "
                    f"{SEPARATORS[self.separator]}."
                )

    def _complete_rows(self, records: Iterator[Record]) -> Iterator[Record]:
        """Blank lines are missing values of a single column, and allowed at the end of others."""
        width, blank = len(self._header), 0
        for line, row in records:
            if blank and row:
                raise InvalidInputError(
                    f"Every line of {self.path} must hold a row; line {blank} is blank. Remove it, "
                    "or write the separators of a row of missing values."
                )
            if len(row) == width:
                yield line, row
            elif not row and width == 1:
                yield line, [""]
            elif not row:
                blank = blank or line
            else:
                raise InvalidInputError(
                    f"Every row of {self.path} must have {width} values, like the "
                    f"{'header' if self.has_header else 'first row'}; line {line} has {len(row)}."
                )

    def _table(self, block: list[list[str]]) -> pd.DataFrame:
        columns = {}
        for name, cells in zip(self._header, zip(*block, strict=True), strict=True):
            if name:
                stripped = (cell.strip() for cell in cells)
                values = [None if cell in MISSING else unguard_formula(cell) for cell in stripped]
                columns[name] = pd.Series(values, dtype=object)
        return pd.DataFrame(columns)

    @contextmanager
    def _records(self) -> Iterator[Iterator[Record]]:
        with self._explain_errors(), self._open() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            # A quote may follow a space, as in: a, "b"
            lines = self._bounded_lines(text)
            reader = csv.reader(lines, delimiter=self.separator, skipinitialspace=True, strict=True)
            yield self._numbered(reader)

    def _numbered(self, reader: Any) -> Iterator[Record]:
        """Each row with its first line: a quoted value may span lines."""
        line = 1
        try:
            for row in reader:
                yield line, row
                line = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInputError(
                f"{self.path} is not valid CSV: {error}, in the row that begins in line {line}. Is "
                "a quote not closed there?"
            ) from error


class LinesSource(TextFile):
    """A text in each line, as one column named `column`; there is no header.

    Words such as 'None', which mean a missing value in CSV files, are texts here.
    """

    def __init__(self, path: Path, column: str) -> None:
        self.path, self.columns = path, [column]

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """The stripped lines; None for a blank one."""
        first = 0
        with self._explain_errors(), self._open() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig")
            lines = enumerate(self._bounded_lines(text), start=1)
            while block := list(itertools.islice(lines, n_rows)):
                texts = pd.Series([line.strip() or None for _, line in block], dtype=object)
                table = pd.DataFrame({self.columns[0]: texts})
                yield Chunk(first, table, lines=[number for number, _ in block])
                first += len(block)
