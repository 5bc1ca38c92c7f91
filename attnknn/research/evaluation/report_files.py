"""Files of reports: written whole or not at all, and named when they cannot be read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from attnknn.errors import InvalidInputError, InvalidSettingError

DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError)
DAMAGED_ARRAYS = (FileNotFoundError, BadZipFile, EOFError, zlib.error)


@contextmanager
def readable(path: Path, what: str = "report of an experiment") -> Iterator[None]:
    """A context for reading: what is foreign or damaged is said with the name of the file.

    >>> with readable(Path("report.json")):
    ...     {}["runs"]
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: report.json is no report of an experiment, or a damaged one
    (KeyError: 'runs'). Remove it to run again.
    """
    try:
        yield
    except (*DAMAGED, *DAMAGED_ARRAYS) as error:
        if isinstance(error, InvalidInputError) and str(path) in str(error):
            raise  # it is named already
        raise InvalidInputError(
            f"{path} is no {what}, or a damaged one ({type(error).__name__}: {error}). "
            "Remove it to run again."
        ) from error


def write_whole(path: Path, content: Any) -> None:
    """Write `content` as JSON; a crash at any moment leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())  # the renaming must not be on the disk before the content
    unfinished.replace(path)


def check_place(place: Path) -> None:
    """An error where reports could not be written in the end."""
    there = next(part for part in (place, *place.absolute().parents) if part.exists())
    if not there.is_dir():
        raise InvalidSettingError(f"Reports need a folder, but {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidSettingError(f"Reports need a folder, but {there} may not be written to.")
