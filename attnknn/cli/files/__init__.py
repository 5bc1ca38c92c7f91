"""Rows from files, in parts: CSV, Parquet, NPZ, and folders of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnknn.cli.files.base import Part, Source
from attnknn.errors import InvalidInputError

__all__ = ["Part", "Source", "open_rows"]

KNOWN = ".csv, .tsv (also .gz), .txt with --sep, .parquet, .npz, a folder of images"


def open_rows(
    path: Path,
    *,
    part: str = "test",
    separator: str | None = None,
    column: Callable[[], str | None] = lambda: None,
) -> Source:
    """The file as a source of rows, by the ending of its name.

    Parameters
    ----------
    part : which arrays of an NPZ file, or part of a folder, are meant where it has both: 'train'
        or 'test'
    separator : of a text file; None takes it from the ending
    column : gives the name of the column of texts that a .txt file without a separator holds, a
        text in each line; None where only tables are read
    """
    if path.is_dir() and separator is None:
        from attnknn.cli.files.images import open_images

        return open_images(path, part)
    if not path.exists():
        raise InvalidInputError(f"There is no file {path}.")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")) or (separator and name.endswith(".txt")):
        from attnknn.cli.files.text import TextSource

        usual = "\t" if name.endswith(".tsv") else ","
        return TextSource(path, separator or usual, is_asked_for=separator is not None)
    if name.endswith(".txt") and (texts := column()):
        from attnknn.cli.files.lines import LinesSource

        return LinesSource(path, texts)
    if separator:
        raise InvalidInputError(f"--sep is for text files (.csv, .tsv, .txt), {path} is none.")
    if name.endswith((".parquet", ".pq")):
        from attnknn.cli.files.parquet import ParquetSource

        return ParquetSource(path)
    if name.endswith(".npz"):
        from attnknn.cli.files.npz import NpzSource

        return NpzSource(path, part)
    raise InvalidInputError(f"{path} must be one of {KNOWN}, by the ending of its name.")
