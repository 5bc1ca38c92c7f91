"""Where data files are looked for, and their checksums."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn._cache import cache_folder
from attnknn.errors import InvalidInputError, MissingDataError
from attnknn.research.datasets.base import DataFile, Source


def data_folders() -> list[Path]:
    """List the folders in which data files are looked for.

    Returns
    -------
    list of Path
        The folders of the environment variable `ATTNKNN_DATA` (several are separated as in
        `PATH`), then the user's cache folder.

    Examples
    --------
    >>> len(data_folders()) >= 1
    True
    """
    named = os.environ.get("ATTNKNN_DATA", "").split(os.pathsep)
    folders = [Path(folder).expanduser() for folder in named if folder]
    folders += [cache_folder(), Path.home() / ".cache" / "attnknn"]
    return list(dict.fromkeys(folders))


def find(file: DataFile) -> Path | None:
    """The path of a file, or None if no data folder has it."""
    for folder in data_folders():
        for place in (file.path, Path(file.path).name, *file.others):
            path = folder / place
            if path.is_file() or (place in file.others and path.is_dir()):
                return path
    return None


def wanted(file: DataFile) -> str:
    """The name of a file and of its alternatives.

    >>> wanted(DataFile("mnist.npz", others=("MNIST/raw",)))
    'mnist.npz (or MNIST/raw)'
    """
    return f"{file.path} (or {', '.join(file.others)})" if file.others else file.path


def find_all(source: Source) -> list[Path]:
    """The files of a data set, or an error that says where they come from and where to put them."""
    found = [find(file) for file in source.files]
    absent = [wanted(file) for file, path in zip(source.files, found, strict=True) if path is None]
    if absent:
        looked = ", ".join(str(folder) for folder in data_folders())
        which = "which is" if len(absent) == 1 else "which are"
        raise MissingDataError(
            f"The data set {source.name!r} needs {' and '.join(absent)}, {which} in none of: "
            f"{looked}. It comes from {source.origin}. Put it into {cache_folder()}, "
            "or name its folder in the environment variable ATTNKNN_DATA."
        )
    return [path for path in found if path is not None]


def checksum_of(source: Source, paths: list[Path]) -> str:
    """Verify the files of a data set, and return their sha256."""
    sums = [_checked(file, path) for file, path in zip(source.files, paths, strict=True)]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def _checked(file: DataFile, path: Path) -> str:
    if file.sha256 is not None:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != file.sha256 and not _has_content(path, file.unpacked_sha256):
            _must_equal(found, file.sha256, str(path))
        return file.sha256
    _check_md5(file, path)
    arrays = file.read(path)
    sums = {key: _sum_of(arrays, key, path) for key in file.arrays or arrays}
    for key, expected in file.arrays.items():
        _must_equal(sums[key], expected, f"{path} ({key})")
    return hashlib.sha256("".join(sums.values()).encode()).hexdigest()


def _has_content(path: Path, sha256: str | None) -> bool:
    """Whether a gzipped file that was packed again has the same content."""
    try:
        content = gzip.decompress(path.read_bytes()) if sha256 else b""
    except (OSError, EOFError, zlib.error):
        return False
    return hashlib.sha256(content).hexdigest() == sha256


def _check_md5(file: DataFile, path: Path) -> None:
    """Verify the known md5 of the file, or of the files in the folder."""
    for place, expected in file.md5.items():
        part = path.parent / place
        if part.is_file() and path in (part, part.parent):
            found = hashlib.md5(part.read_bytes(), usedforsecurity=False).hexdigest()
            _must_equal(found, expected, str(part), kind="md5")


def _sum_of(arrays: Mapping[str, NDArray[Any]], key: str, path: Path) -> str:
    if key not in arrays:
        raise InvalidInputError(f"{path} must hold the array {key!r}. Get the file again.")
    return array_checksum(arrays[key])


def array_checksum(array: NDArray[Any]) -> str:
    """The sha256 of the raw bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _must_equal(found: str, expected: str, where: str, kind: str = "sha256") -> None:
    if found != expected:
        raise InvalidInputError(
            f"{where} must have the {kind} {expected}, got {found}. "
            "It is damaged or another version: get the file again."
        )
