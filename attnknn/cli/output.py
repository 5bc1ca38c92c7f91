"""Write results: CSV, TSV, Parquet or JSON files, aligned tables, and progress."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import click

from attnknn._escape import guard_formula, visible, visible_lines, without_passwords

if TYPE_CHECKING:
    import pandas as pd

FORMAT_OF_ENDING = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".csv.gz": "csv",
    ".tsv.gz": "tsv",
    ".json.gz": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def echo(line: object = "", *, err: bool = False) -> None:
    """Print one line; control characters from data, also line breaks, are shown as escapes."""
    click.echo(visible(without_passwords(str(line))), err=err)


def echo_block(text: object, *, err: bool = False, bold: bool = False) -> None:
    """Print a text of several lines whose parts from data are on one line each."""
    click.secho(visible_lines(without_passwords(str(text))), err=err, bold=bold or None)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON in printable ASCII, which is safe for a terminal and loses nothing."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(to_json(value, indent=1))


def progress(task: str) -> AbstractContextManager[Callable[..., None]]:
    """Show a task and its elapsed time on the error stream if it takes longer than two seconds.

    Yields a function that adds a note. Nothing is shown unless stderr is a terminal.
    """
    from attnknn.training.terminal import show_progress

    return show_progress(task)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns with a header; None is shown as "-".

    >>> print(text_table(["id", "label"], [[7, "cat"], [12, None]]))
    id  label
    7   cat
    12  -
    """
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else visible(value)


def count_of(n: int, noun: str = "entry", nouns: str = "entries") -> str:
    """A number with its noun.

    >>> count_of(1), count_of(2000)
    ('1 entry', '2,000 entries')
    """
    return f"{n:,} {noun if n == 1 else nouns}"


def write_json_list(out: Path | None, values: Sequence[Any], *, force: bool = False) -> None:
    """Write values as a JSON array, each on its own line, to a file or to standard output."""
    from attnknn._output_files import write_file

    lines = ",\n".join(map(to_json, values))
    text = f"[\n{lines}\n]\n" if values else "[]\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        write_file(out, text, force=force)


class Writer(Protocol):
    """Takes results chunk by chunk."""

    def write(self, results: pd.DataFrame) -> None: ...

    def close(self) -> None: ...


def output_format(out: Path | None, style: str | None) -> str:
    """The requested format, or the one of the file name; CSV without a file."""
    if style == "parquet" and out is None:
        raise click.UsageError("Parquet needs an output file: give -o.")
    if style is not None or out is None:
        return style or "csv"
    for ending, known in FORMAT_OF_ENDING.items():
        if out.name.lower().endswith(ending):
            return known
    raise click.UsageError(
        f"The name {out.name!r} must end in {', '.join(FORMAT_OF_ENDING)}; or choose the format "
        "with --format."
    )


def check_out(
    out: Path | None, *others: Path | None, flag: str = "-o", force: bool = False
) -> None:
    """Before any work: the file can be written and is none of the `others`."""
    from attnknn._output_files import check_output

    if out is None:
        return
    for other in others:
        is_same = other is not None and out.absolute() == other.absolute()
        if is_same or (
            other is not None and out.exists() and other.exists() and out.samefile(other)
        ):
            raise click.UsageError(f"{flag} must differ from {other}, which this command uses too.")
    if out.is_dir() or out.is_fifo():
        raise click.UsageError(f"{flag} must name a file; {out} is not a regular file.")
    check_output(out, force=force)


@contextmanager
def open_writer(out: Path | None, style: str, *, force: bool = False) -> Iterator[Writer]:
    """A writer to standard output, or to a file that appears when the block succeeds."""
    from attnknn._output_files import replace_file

    if out is None:
        stream: Any = _Terminal() if sys.stdout.isatty() else sys.stdout
        writer = _text_writer(style, stream, owns=False)
        yield writer
        writer.close()
        return
    with replace_file(out, force=force) as temporary:
        writer = _file_writer(style, temporary, is_zipped=out.name.lower().endswith(".gz"))
        try:
            yield writer
        finally:
            writer.close()


def _file_writer(style: str, path: Path, *, is_zipped: bool) -> Writer:
    if style == "parquet":
        return _ParquetWriter(path)
    opener = gzip.open if is_zipped else open
    file: IO[str] = opener(path, "wt", encoding="utf-8", newline="")
    return _text_writer(style, file, owns=True)


def _text_writer(style: str, file: IO[str], *, owns: bool) -> Writer:
    if style == "json":
        return _JsonWriter(file, owns)
    return _CsvWriter(file, owns, "\t" if style == "tsv" else ",")


class _Terminal:
    """Standard output that is a terminal: it receives no control characters of the data."""

    def write(self, text: str) -> None:
        sys.stdout.write("\t".join(map(visible_lines, text.split("\t"))))


class _CsvWriter:
    """Cells that spreadsheets would evaluate are written as texts."""

    def __init__(self, file: IO[str], owns: bool, separator: str = ",") -> None:
        self.file, self._owns, self._is_first = file, owns, True
        self._separator = separator

    def write(self, results: pd.DataFrame) -> None:
        import pandas as pd

        texts = {
            str(name): [guard_formula(v) if isinstance(v, str) else v for v in column]
            for name, column in results.items()
            if not pd.api.types.is_numeric_dtype(column)
        }
        # A carriage return would end the row: by default, only line feeds are quoted.
        cells = itertools.chain(results.columns, *texts.values())
        is_broken = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        results.assign(**texts).rename(columns=lambda name: guard_formula(str(name))).to_csv(
            self.file,
            sep=self._separator,
            index=False,
            header=self._is_first,
            lineterminator="\n",
            quoting=csv.QUOTE_NONNUMERIC if is_broken else csv.QUOTE_MINIMAL,
        )
        self._is_first = False

    def close(self) -> None:
        if self._owns:
            self.file.close()


class _JsonWriter(_CsvWriter):
    """One array of objects, each on its own line."""

    def write(self, results: pd.DataFrame) -> None:
        for record in results.astype(object).to_dict("records"):
            self.file.write("[\n" if self._is_first else ",\n")
            self.file.write(to_json(record))
            self._is_first = False

    def close(self) -> None:
        self.file.write("[]\n" if self._is_first else "\n]\n")
        super().close()


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self._path, self._writer = path, None

    def write(self, results: pd.DataFrame) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = None if self._writer is None else self._writer.schema
        table = pa.Table.from_pandas(results, schema=schema, preserve_index=False)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        assert self._writer is not None
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
