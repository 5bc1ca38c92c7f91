"""Files as sources of rows: open one by its name, and read it in chunks."""

from __future__ import annotations

import difflib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from attnknn.cli.rows.headers import header_choice
from attnknn.cli.rows.memory_bound import refuse_special
from attnknn.encoders.image.folder import EXTENSIONS, PARTS, parts_of, read_image_folder
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_ROWS = 16_384
KNOWN_FORMATS = (
    ".csv, .tsv, .jsonl (also .gz), .txt with --sep, .parquet, .npz; images must be in a folder"
)
INSTEAD = {
    ".json": " Write one JSON object per line, and name the file .jsonl.",
    ".xlsx": " Save the worksheet as CSV.",
    ".xls": " Save the worksheet as CSV.",
    ".txt": " Name the separator with --sep; texts, one per line, need a model of texts.",
}
FILE, CLASS = "file", "class"  # column names of a folder of images
Kind = Literal["table", "vectors", "images"]


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a file."""

    first: int  # number of the first row in the file, counted from 0
    table: pd.DataFrame  # the named columns; of an NPZ file, the arrays with one value per row
    items: NDArray[Any] | None = None  # vectors, images or paths of images, if not a table
    lines: list[int] | None = None  # of text files, whose columns are strings: first line of a row

    def __len__(self) -> int:
        return len(self.table)

    @property
    def is_text(self) -> bool:
        """Whether all columns are still strings."""
        return self.lines is not None

    def place(self, row: int) -> str:
        """Where a row is in the file: lines of text files count from 1, rows from 0."""
        return f"row {self.first + row}" if self.lines is None else f"line {self.lines[row]}"


class Source(ABC):
    """A file of rows."""

    path: Path
    columns: list[str]  # or names of the arrays with one value per row
    kind: Kind = "table"
    default_target: str | None = None  # column of the labels, where the format defines one
    default_id: str | None = None  # column that identifies the rows unless the user names another
    unusable: Mapping[str, str] = {}  # error messages by names that look like columns
    has_header: bool = True  # whether the file names its columns
    missing_words: frozenset[str] = frozenset()  # strings that mean a missing value

    @property
    def declared_bytes(self) -> int:
        """Memory of all rows by what the file declares before it is read; 0 if it declares none."""
        return 0

    @abstractmethod
    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """All rows in chunks of at most `n_rows`."""


def open_rows(
    path: Path,
    *,
    part: str = "test",
    separator: str | None = None,
    has_header: bool | None = None,
    text_column: Callable[[], str | None] = lambda: None,
) -> Source:
    """Open a file of rows; the format follows from the ending of its name.

    `part` selects among train and test arrays of an NPZ file, or subfolders of images. `has_header`
    is by default what --header or --no-header says. A .txt file without separator has one text per
    line; `text_column` returns its column name, or None if the model does not read texts.
    """
    if path.is_dir() and separator is None:
        return _open_images(path, part)
    if not path.exists():
        raise InvalidInputError(f"File not found: {path}.")
    refuse_special(path)
    has_header = header_choice() if has_header is None else has_header
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")) or (separator and name.endswith(".txt")):
        from attnknn.cli.rows.text_files import CsvSource

        default = "\t" if name.endswith(".tsv") else ","
        return CsvSource(
            path,
            separator or default,
            is_explicit=separator is not None,
            has_header=has_header,
        )
    if name.endswith(".txt") and (column := text_column()):
        from attnknn.cli.rows.text_files import LinesSource

        return LinesSource(path, column)
    if has_header is False:
        raise InvalidInputError(
            f"--no-header is for text files (.csv, .tsv, .txt), not for {path}."
        )
    if separator:
        raise InvalidInputError(f"--sep is for text files (.csv, .tsv, .txt), not for {path}.")
    if name.endswith((".jsonl", ".ndjson")):
        from attnknn.cli.rows.json_lines import JsonLinesSource

        return JsonLinesSource(path)
    if name.endswith((".parquet", ".pq")):
        return ParquetSource(path)
    if name.endswith(".npz"):
        from attnknn.cli.rows.npz import NpzSource

        return NpzSource(path, part)
    hint = INSTEAD.get(Path(name).suffix, "")
    raise InvalidInputError(f"The name of {path} must end in one of: {KNOWN_FORMATS}.{hint}")


def column_name(source: Source, name: str) -> str:
    """`name`, or the name of the column with this number in a file without a header."""
    is_number = not source.has_header and name.isdecimal() and name not in source.columns
    return f"column_{name}" if is_number else name


def check_column(source: Source, name: str) -> str:
    """The name of a column that the file has; without a header, a number names it too."""
    name = column_name(source, name)
    if name in source.columns:
        return name
    if name in source.unusable:
        raise InvalidInputError(source.unusable[name])
    kind = "array" if source.path.suffix.lower() == ".npz" else "column"
    by_lower = {known.strip().lower(): known for known in source.columns}
    close = difflib.get_close_matches(name.strip().lower(), by_lower, n=1)
    guess = f" Did you mean {by_lower[close[0]]!r}?" if close else ""
    known = ", ".join(source.columns[:20]) or "none"
    more = ", …" if len(source.columns) > 20 else ""
    raise InvalidInputError(f"{source.path} has no {kind} {name!r}.{guess} It has: {known}{more}.")


def refuse_repeated(path: Path, names: list[str]) -> None:
    """Raise an error if a column name occurs twice."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise InvalidInputError(
            f"Column names of {path} must be unique; {twice[0]!r} is repeated. Rename one."
        )


class ParquetSource(Source):
    """A Parquet file; columns keep their types, and a stored pandas index is ignored."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        try:
            self._file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(error) from error
        names = list(self._file.schema_arrow.names)
        refuse_repeated(path, names)
        self.columns = [name for name in names if not name.startswith("__index_level_")]

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """Rows with the column types of the file."""
        import pyarrow as pa

        first = 0
        try:
            for batch in self._file.iter_batches(batch_size=n_rows, columns=self.columns):
                table = pa.table(batch).replace_schema_metadata().to_pandas()
                yield Chunk(first, table)
                first += len(table)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(error) from error

    @property
    def declared_bytes(self) -> int:
        """The uncompressed size, and at least eight bytes for each value."""
        about = self._file.metadata
        groups = [about.row_group(place) for place in range(about.num_row_groups)]
        encoded = sum(group.total_byte_size for group in groups)
        return max(encoded, 8 * about.num_rows * len(self.columns))

    def _unreadable(self, error: Exception) -> InvalidInputError:
        reason = " ".join(str(error).split())
        return InvalidInputError(f"{self.path} is not a valid Parquet file: {reason}")


class ImageSource(Source):
    """The images of a folder, sorted by name, with labels or None; files are not opened here."""

    kind: Kind = "images"
    default_id = FILE
    default_target = CLASS

    def __init__(self, path: Path, names: list[str], labels: list[str] | None) -> None:
        self.path, self._names, self._labels = path, names, labels
        self.columns = [FILE] if labels is None else [FILE, CLASS]
        if labels is None:
            needed = "must be in a subfolder named after its class"
            self.unusable = {CLASS: f"Every image of {path} {needed}; {names[0]} is not."}

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """Paths of images, with file names and, if known, classes as columns."""
        for first in range(0, len(self._names), n_rows):
            names = self._names[first : first + n_rows]
            columns = {FILE: names}
            if self._labels is not None:
                columns[CLASS] = self._labels[first : first + n_rows]
            paths = np.empty(len(names), dtype=object)
            paths[:] = [self.path / name for name in names]
            yield Chunk(first, pd.DataFrame(columns, dtype=object), paths)


def _open_images(folder: Path, part: str) -> ImageSource:
    """The images of a folder, or of its subfolder `train`, `test` … if it has these.

    For training there must be a subfolder for each class; test images may be anywhere.
    """
    root = folder
    if parts := parts_of(folder):
        wanted = ("train",) if part == "train" else [name for name in PARTS if name != "train"]
        found = [name for name in wanted if name in parts]
        if not found:
            raise InvalidInputError(
                f"{folder} must have a subfolder {' or '.join(wanted)}, it has "
                f"{', '.join(parts)}. Give the folder to read, such as {folder / parts[0]}."
            )
        root = folder / found[0]
    if part == "train":
        images = read_image_folder(root)
        if images.skipped:
            n = len(images.skipped)
            warnings.warn(
                f"Skipped files that are not images: {n}, such as {images.skipped[0]}.",
                stacklevel=2,
            )
        return ImageSource(root, images.names, images.labels.tolist())
    below = [
        path.relative_to(root) for path in root.rglob("*") if path.suffix.lower() in EXTENSIONS
    ]
    visible = [path for path in below if not any(name.startswith(".") for name in path.parts)]
    names = sorted(path.as_posix() for path in visible)
    if not names:
        raise InvalidInputError(f"{root} has no images ({', '.join(sorted(EXTENSIONS))}).")
    has_classes = all("/" in name for name in names)
    return ImageSource(root, names, [n.split("/")[0] for n in names] if has_classes else None)
