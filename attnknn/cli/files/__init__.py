"""Rows from files, in parts: CSV, Parquet and NPZ."""

from __future__ import annotations

from pathlib import Path

from attnknn.cli.files.base import Part, Source
from attnknn.errors import InvalidInputError

__all__ = ["Part", "Source", "open_rows"]

KNOWN = ".csv, .tsv (also .gz), .parquet, .npz"


def open_rows(path: Path, *, part: str = "test") -> Source:
    """The file as a source of rows, by the ending of its name.

    Parameters
    ----------
    part : which arrays of an NPZ file are meant where it has both: 'train' or 'test'
    """
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; rows come from a file ({KNOWN}).")
    if not path.exists():
        raise InvalidInputError(f"There is no file {path}.")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        from attnknn.cli.files.text import TextSource

        return TextSource(path, "\t" if name.endswith(".tsv") else ",")
    if name.endswith((".parquet", ".pq")):
        from attnknn.cli.files.parquet import ParquetSource

        return ParquetSource(path)
    if name.endswith(".npz"):
        from attnknn.cli.files.npz import NpzSource

        return NpzSource(path, part)
    raise InvalidInputError(f"{path} must be one of {KNOWN}, by the ending of its name.")
