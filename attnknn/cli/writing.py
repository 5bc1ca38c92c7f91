"""Answers become CSV, Parquet or JSON; a file appears whole, at the end, or not at all."""

from __future__ import annotations

import gzip
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    import pandas as pd

STYLES = ("csv", "tsv", "parquet", "json")
STYLE_OF_ENDING = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".csv.gz": "csv",
    ".tsv.gz": "tsv",
    ".json.gz": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}


class Writer(Protocol):
    """Takes answers part by part."""

    def write(self, answers: pd.DataFrame) -> None: ...

    def close(self) -> None: ...


def style_of(out: Path | None, style: str | None) -> str:
    """The format asked for, or the one that the file's name says; CSV where there is no file."""
    if style == "parquet" and out is None:
        raise click.UsageError("Parquet cannot be printed: name a file with -o.")
    if style is not None or out is None:
        return style or "csv"
    for ending, known in STYLE_OF_ENDING.items():
        if out.name.lower().endswith(ending):
            return known
    raise click.UsageError(
        f"The name {out.name!r} must end in {', '.join(STYLE_OF_ENDING)}; or say with --format "
        "what to write."
    )


def check_out(out: Path | None, rows: Path) -> None:
    """Before any work: the file can be written, and is not the one that is read."""
    if out is None:
        return
    if out.is_dir():
        raise click.UsageError(f"{out} is a folder; -o names a file.")
    if out.exists() and not out.is_file():
        raise click.UsageError(f"{out} is no plain file; leave out -o to print.")
    if not out.parent.is_dir():
        raise click.ClickException(f"There is no folder {out.parent} to write {out} in.")
    if out.exists() and rows.exists() and out.samefile(rows):
        raise click.UsageError("-o must not name the file that is read.")


@contextmanager
def open_writer(out: Path | None, style: str) -> Iterator[Writer]:
    """A writer to standard output, or to a file that appears when the block ends well."""
    if out is None:
        writer = _make(style, sys.stdout)
        yield writer
        writer.close()
        return
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        writer = _make(style, temporary, is_zipped=out.name.lower().endswith(".gz"))
        try:
            yield writer
        finally:
            writer.close()
        os.replace(temporary, out)
    except OSError as error:
        if error.filename == str(temporary):  # a name that nobody gave
            error.filename, error.filename2 = str(out), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _make(style: str, target: Any, *, is_zipped: bool = False) -> Writer:
    if style == "parquet":
        return _ParquetWriter(target)
    if isinstance(target, Path):
        opener = gzip.open if is_zipped else open
        file: IO[str] = opener(target, "wt", encoding="utf-8", newline="")
        return _text_writer(style, file, owns=True)
    return _text_writer(style, target, owns=False)


def _text_writer(style: str, file: IO[str], *, owns: bool) -> Writer:
    if style == "json":
        return _JsonWriter(file, owns)
    return (_TsvWriter if style == "tsv" else _CsvWriter)(file, owns)


class _TextWriter:
    def __init__(self, file: IO[str], owns: bool) -> None:
        self.file, self._owns, self._is_first = file, owns, True

    def close(self) -> None:
        if self._owns:
            self.file.close()


class _CsvWriter(_TextWriter):
    separator = ","

    def write(self, answers: pd.DataFrame) -> None:
        answers.to_csv(
            self.file,
            sep=self.separator,
            index=False,
            header=self._is_first,
            lineterminator="\n",
        )
        self._is_first = False


class _TsvWriter(_CsvWriter):
    separator = "\t"


class _JsonWriter(_TextWriter):
    """One array of objects, each on a line of its own."""

    def write(self, answers: pd.DataFrame) -> None:
        for record in answers.astype(object).to_dict("records"):
            self.file.write("[\n" if self._is_first else ",\n")
            self.file.write(json.dumps(record))
            self._is_first = False

    def close(self) -> None:
        self.file.write("[]\n" if self._is_first else "\n]\n")
        super().close()


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self._path, self._writer = path, None

    def write(self, answers: pd.DataFrame) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = None if self._writer is None else self._writer.schema
        table = pa.Table.from_pandas(answers, schema=schema, preserve_index=False)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        assert self._writer is not None
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
