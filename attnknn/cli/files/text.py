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

from attnknn.cli.files.base import ROWS_AT_ONCE, Part, refuse_repeated
from attnknn.errors import InvalidInputError

# The words that pandas takes for missing.
WORDS = "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a"
MISSING = frozenset([*WORDS.split("|"), "nan", "null", ""])


class TextSource:
    """A file of separated values with a header; a column without a name is left out.

    Read by the plain reader of Python: pandas fills up short rows, takes a longer first column for
    an index, renames repeated columns and guesses types anew in each part, all in silence.
    """

    default_target: str | None = None
    has_vectors = False

    def __init__(self, path: Path, separator: str) -> None:
        self.path, self.separator = path, separator
        self._header = self._read_header()
        self.columns = [name for name in self._header if name]
        refuse_repeated(path, self.columns)

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]:
        """The rows as text; a gap, or a word that means one, is missing."""
        first = 0
        with self._explained(), self._reader() as reader:
            next(reader)
            rows = self._whole_rows(reader)
            while block := list(itertools.islice(rows, n_rows)):
                yield Part(first, self._table(block), is_text=True)
                first += len(block)

    def _read_header(self) -> list[str]:
        with self._explained(), self._reader() as reader:
            header: list[str] = next(reader, [])
        if not any(name.strip() for name in header):
            raise InvalidInputError(f"{self.path} is empty: its first line must name the columns.")
        return [name.strip() for name in header]

    def _whole_rows(self, reader: Any) -> Iterator[list[str]]:
        width = len(self._header)
        for row in reader:
            if len(row) == width:
                yield row
            elif row:
                raise InvalidInputError(
                    f"Every row of {self.path} must have {width} values, as the header has names; "
                    f"line {reader.line_num} has {len(row)}."
                )

    def _table(self, block: list[list[str]]) -> pd.DataFrame:
        columns = zip(self._header, zip(*block, strict=True), strict=True)
        return pd.DataFrame(
            {
                name: pd.Series([None if v in MISSING else v for v in values], dtype=object)
                for name, values in columns
                if name
            }
        )

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with self._bytes() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            yield csv.reader(text, delimiter=self.separator, strict=True)

    def _bytes(self) -> BinaryIO:
        if self.path.name.lower().endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return open(self.path, "rb")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The reader's errors in the words of the file's owner."""
        try:
            yield
        except csv.Error as error:
            raise InvalidInputError(
                f"{self.path} cannot be read as separated values: {error}."
            ) from error
        except UnicodeError as error:
            raise InvalidInputError(self._where_not_utf8()) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{self.path} is not a whole .gz file: {error}.") from error

    def _where_not_utf8(self) -> str:
        with self._bytes() as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    return f"{self.path} must be UTF-8, it is UTF-16. Save it as UTF-8."
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    return (
                        f"{self.path} must be UTF-8; line {number} has the byte "
                        f"0x{line[error.start]:02x} at place {error.start + 1}. Save it as UTF-8."
                    )
        return f"{self.path} must be UTF-8."
