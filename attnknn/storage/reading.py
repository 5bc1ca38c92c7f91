"""The files of a model folder, each checked against the manifest before anything is made of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import ModelFolderError
from attnknn.storage.contents import SETTINGS
from attnknn.storage.folder import (
    FORMAT,
    MANIFEST,
    VERSION,
    open_regular,
    previous_of,
    read_manifest,
)
from attnknn.storage.locking import locked

NAME = re.compile(r"[a-z0-9_]{1,64}\.(json|jsonl|npy|safetensors)")
# Read by a pattern, not by numpy, whose parser takes more than it writes and warns of it.
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<type>[<|][a-zA-Z]\d{1,2})', 'fortran_order': False, "
    rb"'shape': \((?P<shape>(\d{1,15}, ?)*(\d{1,15})?)\), \} *\n",
    re.DOTALL,
)
SHA256 = re.compile(r"[0-9a-f]{64}")
ATTEMPTS = 10  # a save may replace the folder while it is being read
BLOCK = 1 << 20
_Result = TypeVar("_Result")


def read_latest(path: Path, read: Callable[[ModelFolder], _Result]) -> _Result:
    """What `read` makes of the model at `path`, or of the one that a killed save moved aside.

    A save may replace the folder while it is being read: what fails, or finds no folder, is tried
    again when no save is under way. More attempts are for systems that cannot lock.
    """
    path = path.resolve()
    for attempt in range(ATTEMPTS):
        before = _identity(path)
        must_wait = attempt > 0 or before is None
        try:
            with locked(path.parent, to_read=True) if must_wait else nullcontext():
                return _read_folder(_find(path, is_settled=must_wait), read)
        except ModelFolderError:
            if must_wait and (attempt + 1 == ATTEMPTS or _identity(path) == before):
                raise
    raise AssertionError("unreachable")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What tells a folder from another one that takes its place; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _find(path: Path, *, is_settled: bool) -> Path:
    """The folder to read; one that was moved aside counts only if no save is under way."""
    previous = previous_of(path)
    if is_settled and not path.exists() and (previous / MANIFEST).exists():
        warnings.warn(
            f"The last save to {path} was cut short; loading the model from before it.",
            stacklevel=5,
        )
        return previous
    if not path.exists():
        raise ModelFolderError(f"There is no model folder at {path}.")
    if not path.is_dir():
        raise ModelFolderError(f"{path} is a file, not a model folder.")
    return path


def _read_folder(path: Path, read: Callable[[ModelFolder], _Result]) -> _Result:
    from attnknn.storage.store import has_store, read_store

    with refused_if_it_does_not_fit(path):
        return read_store(path, read) if has_store(path) else read(ModelFolder(path))


@contextmanager
def refused_if_it_does_not_fit(path: Path) -> Iterator[None]:
    """What goes wrong with contents that nobody checked one by one is an error of the folder."""
    try:
        yield
    except ModelFolderError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ModelFolderError(
            f"The model folder {path} cannot be used: its contents do not fit together ({error})."
        ) from error


class ModelFolder:
    """A folder with a manifest; hands out the contents of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = self._checked_manifest(self._read_manifest())

    def refuse(self, why: str) -> ModelFolderError:
        """The error to raise, which names the folder."""
        return ModelFolderError(f"The model folder {self.path} cannot be used: {why}.")

    @property
    def has_trust(self) -> bool:
        """Whether a folder of an attention that asks for trust holds it."""
        return True

    def settings(self) -> dict[str, Any]:
        """What settings.json holds."""
        settings = self._json(self._bytes(SETTINGS), SETTINGS)
        if not isinstance(settings, dict):
            raise self.refuse(f"{SETTINGS} must hold an object")
        return settings

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array of a type and shape that are known beforehand; None fits any length."""
        file_name = f"{name}.npy"
        with self._open(file_name) as (file, size):
            digest = hashlib.sha256()
            array = self._empty_array(file, size, file_name, dtype, shape, digest)
            _fill(array, file, digest)
            self._check_digest(file_name, digest.hexdigest(), file)
        return array

    def lines(self, name: str, n_lines: int) -> list[Any]:
        """One JSON value from each line."""
        file_name = f"{name}.jsonl"
        lines = self._bytes(file_name).split(b"\n")
        if len(lines) != n_lines + 1 or lines[-1]:
            raise self.refuse(f"{file_name} must have {n_lines} lines, one per entry")
        return [self._json(line, file_name, numbers="any") for line in lines[:-1]]

    def tensors(self, name: str) -> dict[str, Any]:
        """The tensors of a part that was trained."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        file_name = f"{name}.safetensors"
        try:
            return load(bytes(self._bytes(file_name)))
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self.refuse(f"{file_name} is not a safetensors file ({error})") from error

    def _read_manifest(self) -> bytes:
        try:
            return read_manifest(self.path)
        except OSError as error:
            raise ModelFolderError(
                f"{self.path} is not a model folder: it has no readable {MANIFEST}."
            ) from error

    def _checked_manifest(self, text: bytes) -> dict[str, dict[str, Any]]:
        manifest = self._json(text, MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ModelFolderError(f"{self.path} is not a model folder: {MANIFEST} is another's.")
        if manifest.get("version") != VERSION or isinstance(manifest["version"], bool):
            raise self.refuse(
                f"it has the format version {manifest.get('version')!r}, this program reads "
                f"{VERSION}"
            )
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise self.refuse(f"{MANIFEST} lists no files")
        for name, known in files.items():
            if not NAME.fullmatch(name) or name == MANIFEST:
                raise self.refuse(f"{MANIFEST} lists the file name {name!r}, which is not ours")
            if not _is_file_record(known):
                raise self.refuse(f"{MANIFEST} has no size and checksum for {name}")
        return files

    def _open(self, name: str) -> Opened:
        if name not in self._files:
            raise self.refuse(f"{MANIFEST} does not list {name}")
        path, size = self.path / name, self._files[name]["bytes"]
        try:
            file = open_regular(path)
        except OSError as error:
            raise self.refuse(f"{name} cannot be read ({error.strerror or error})") from error
        actual = os.fstat(file.fileno()).st_size
        if actual != size:
            file.close()
            raise self.refuse(f"{name} has {actual} bytes, {size} were written")
        return Opened(file, size)

    def _bytes(self, name: str) -> bytes:
        with self._open(name) as (file, _):
            data = file.read()
            self._check_digest(name, hashlib.sha256(data).hexdigest(), file)
        return data

    def _check_digest(self, name: str, found: str, file: BinaryIO) -> None:
        if found != self._files[name]["sha256"] or file.read(1):
            raise self.refuse(f"{name} is not what was written (its checksum differs)")

    def _json(self, text: bytes, name: str, numbers: str = "finite") -> Any:
        def refuse_constant(constant: str) -> Any:
            raise ValueError(f"{constant} is not a number")

        try:
            constants = None if numbers == "any" else refuse_constant
            return json.loads(text.decode("utf-8"), parse_constant=constants)
        except (ValueError, RecursionError) as error:
            raise self.refuse(f"{name} is not JSON ({error})") from error

    def _empty_array(
        self,
        file: BinaryIO,
        size: int,
        name: str,
        dtype: Any,
        shape: tuple[int | None, ...],
        digest: Any,
    ) -> NDArray[Any]:
        """Room for the numbers of a .npy file, whose header and size say the same."""
        head = file.read(10)
        head += file.read(int.from_bytes(head[8:10], "little"))
        digest.update(head)
        found = HEADER.fullmatch(head)
        if found is None:
            raise self.refuse(f"{name} is not a .npy file of plain numbers")
        found_type = found["type"].decode()
        found_shape = tuple(int(axis) for axis in found["shape"].replace(b",", b" ").split())
        wanted = np.dtype(dtype)
        if found_type != wanted.str:
            raise self.refuse(f"{name} must hold {wanted} numbers, it holds {found_type}")
        fits = len(found_shape) == len(shape) and all(
            want is None or want == have for want, have in zip(shape, found_shape, strict=True)
        )
        n_bytes = wanted.itemsize
        for axis in found_shape:
            n_bytes *= axis
        if not fits or n_bytes != size - len(head):
            raise self.refuse(f"{name} has the shape {found_shape}, which does not fit")
        return np.empty(found_shape, dtype=wanted)


class Opened:
    """An open file and its size; closed at the end of a `with`."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size

    def __enter__(self) -> tuple[BinaryIO, int]:
        return self.file, self.size

    def __exit__(self, *_: object) -> None:
        self.file.close()


def _fill(array: NDArray[Any], file: BinaryIO, digest: Any) -> None:
    if not array.size:
        return
    view = array.data.cast("B")
    for start in range(0, len(view), BLOCK):
        part = view[start : start + BLOCK]
        n_read = file.readinto(part)  # type: ignore[attr-defined]
        digest.update(part[:n_read])


def _is_file_record(known: Any) -> bool:
    if not isinstance(known, dict) or set(known) != {"bytes", "sha256"}:
        return False
    size, checksum = known["bytes"], known["sha256"]
    is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return is_size and isinstance(checksum, str) and bool(SHA256.fullmatch(checksum))
