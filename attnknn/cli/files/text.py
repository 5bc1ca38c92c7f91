"""CSV and TSV files: every row must be whole, every byte UTF-8; values stay text."""

from __future__ import annotations

import gzip
import io
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from attnknn.cli.files.base import ROWS_AT_ONCE, Part, refuse_repeated
from attnknn.errors import InvalidInputError

# What pandas takes for missing; here said aloud, because short rows must be told from gaps.
MISSING = frozenset(
    ["#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
) | {""}


class TextSource:
    """A file of separated values with a header."""

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
        with self._explained(), self._text() as text:
            reader = self._read(text, header=0, chunksize=n_rows, names=range(len(self._header)))
            for raw in reader:
                self._refuse_ragged(raw, first)
                yield Part(first, self._named(raw), is_text=True)
                first += len(raw)

    def _read_header(self) -> list[str]:
        with self._explained(), self._text() as text:
            line = self._read(text, header=None, nrows=1)
        return ["" if pd.isna(name) else str(name).strip() for name in line.iloc[0]]

    def _read(self, text: Any, **options: Any) -> Any:
        return pd.read_csv(
            text,
            sep=self.separator,
            dtype=str,
            keep_default_na=False,
            index_col=False,
            **options,
        )

    def _named(self, raw: pd.DataFrame) -> pd.DataFrame:
        raw.columns = pd.Index(self._header)
        raw = raw.loc[:, [bool(name) for name in self._header]]
        return raw.mask(raw.isin(MISSING)).reset_index(drop=True)

    def _refuse_ragged(self, raw: pd.DataFrame, first: int) -> None:
        """Only a row that is too short has a real gap: everything else is still text."""
        short = raw.iloc[:, -1].isna().to_numpy()
        if short.any():
            row = first + int(short.argmax())
            n_found = int(raw.iloc[int(short.argmax())].notna().sum())
            raise InvalidInputError(
                f"Every row of {self.path} must have {len(self._header)} values, as the header "
                f"has names; row {row} has {n_found}."
            )

    @contextmanager
    def _text(self) -> Iterator[io.TextIOWrapper]:
        with self._bytes() as file:
            yield io.TextIOWrapper(file, encoding="utf-8-sig", newline="")

    def _bytes(self) -> BinaryIO:
        if self.path.name.lower().endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return open(self.path, "rb")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The reader's errors in the words of the file's owner."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                yield
        except pd.errors.EmptyDataError as error:
            raise InvalidInputError(f"{self.path} is empty: it has no header.") from error
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise InvalidInputError(self._ragged_words(error)) from error
        except UnicodeError as error:
            raise InvalidInputError(self._where_not_utf8()) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{self.path} is not a whole .gz file: {error}.") from error

    def _ragged_words(self, error: Exception) -> str:
        words = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        if "Length of header" in words:
            return (
                f"Every row of {self.path} must have {len(self._header)} values, as the header has "
                "names; the first rows have more."
            )
        return f"{self.path} cannot be read as separated values: {words.rstrip('.')}."

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
