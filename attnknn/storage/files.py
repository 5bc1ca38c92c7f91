"""The files of a model folder: written with a manifest, and checked against it when read."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnknn._limits import check_fits
from attnknn._stored import Arrays, open_regular
from attnknn.errors import ModelFolderError, TooLargeError
from attnknn.storage.folder import (
    FORMAT,
    MANIFEST,
    VERSION,
    has_store,
    previous_path,
    read_manifest,
)
from attnknn.storage.locking import folder_lock

if TYPE_CHECKING:
    from attnknn.memory import Memory

SETTINGS = "settings.json"
NAME = re.compile(r"[a-z0-9_]{1,64}\.(json|jsonl|npy|safetensors)")
# Read by a pattern, not by numpy, whose parser accepts more than it writes and warns about it.
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<type>[<|][a-zA-Z]\d{1,2})', 'fortran_order': False, "
    rb"'shape': \((?P<shape>(\d{1,15}, ?)*(\d{1,15})?)\), \} *\n",
    re.DOTALL,
)
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_SETTINGS_BYTES = 1 << 26
# Memory for each byte of a file while it is read; texts become many small objects.
READING_BYTES = {".npy": 2, ".safetensors": 3, ".jsonl": 12, ".json": 24}
MAX_ATTEMPTS = 10  # a save may replace the folder while it is being read
BLOCK_BYTES = 1 << 20
LINES_PER_BLOCK = 4096
BAD_CONTENTS = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError),
    RuntimeError,  # of torch; RecursionError is one
)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Contents:
    """Everything that is stored of one classifier, each kind in files of its own.

    Parameters
    ----------
    settings : plain values, written as JSON
    arrays : by name; each becomes a .npy file
    lines : by name; one JSON value per line
    trained : the fitted arrays by the name of their part; each part becomes a safetensors file
    """

    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    trained: dict[str, Arrays] = field(default_factory=dict)

    def files(self) -> Iterator[tuple[str, Iterable[Any]]]:
        """Each file's name and its bytes in blocks."""
        yield SETTINGS, [_to_json(self.settings)]
        for name, array in self.arrays.items():
            yield f"{name}.npy", _npy_blocks(array)
        for name, lines in self.lines.items():
            yield f"{name}.jsonl", _line_blocks(lines)
        for name, arrays in self.trained.items():
            from safetensors.numpy import save

            stored = {key: np.asarray(array, order="C") for key, array in arrays.items()}
            yield f"{name}.safetensors", [save(stored)]


def write_files(contents: Contents, folder: Path) -> None:
    """Write everything to an empty folder, each file synced; the manifest is written last."""
    files = {name: _write(folder / name, blocks) for name, blocks in contents.files()}
    write_manifest(folder, {"version": VERSION, "files": files})


def copy_files(folder: Path, target: Path) -> None:
    """Copy the files that a manifest lists to an empty folder, each synced."""
    model = ModelFolder(folder)
    for name in model.names:
        _write(target / name, model.blocks(name))
    _write(target / MANIFEST, [read_manifest(folder)])


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, which makes a folder a model."""
    _write(folder / MANIFEST, [_to_json({"format": FORMAT, **manifest})])


def _write(path: Path, blocks: Iterable[Any]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for block in blocks:
            digest.update(block)
            size += file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def _npy_blocks(array: NDArray[Any]) -> Iterable[Any]:
    """The header of a .npy file, then the numbers, which are not copied."""
    array = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    if array.size:
        yield array.data.cast("B")


def _line_blocks(lines: list[str]) -> Iterable[bytes]:
    for start in range(0, len(lines), LINES_PER_BLOCK):
        yield "".join(f"{line}\n" for line in lines[start : start + LINES_PER_BLOCK]).encode()


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def read_model(path: Path, read: Callable[[ModelFolder], _Result]) -> _Result:
    """Apply `read` to the model at `path`, or to the one that a killed save moved aside.

    A save may replace the folder while it is being read. A read that fails, or finds no folder, is
    repeated when no save is running. More attempts are for systems that cannot lock.
    """
    path = path.resolve()
    for attempt in range(MAX_ATTEMPTS):
        before = _identity(path)
        must_wait = attempt > 0 or before is None
        try:
            with folder_lock(path.parent, shared=True) if must_wait else nullcontext():
                return read_folder(_find(path, is_locked=must_wait), read)
        except ModelFolderError:
            if must_wait and (attempt + 1 == MAX_ATTEMPTS or _identity(path) == before):
                raise
    raise AssertionError("unreachable")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What distinguishes a folder from another one that takes its place; None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _find(path: Path, *, is_locked: bool) -> Path:
    """The folder to read; one that was moved aside counts only if no save is running."""
    previous = previous_path(path)
    if is_locked and not path.exists() and (previous / MANIFEST).exists():
        warnings.warn(
            f"The last save to {path} was interrupted; loading the model from before it.",
            stacklevel=5,
        )
        return previous
    if not path.exists():
        raise ModelFolderError(f"There is no model folder at {path}.")
    if not path.is_dir():
        raise ModelFolderError(f"{path} is a file, not a model folder.")
    return path


def read_folder(path: Path, read: Callable[[ModelFolder], _Result]) -> _Result:
    """Apply `read` to the model folder at `path`, which nobody may replace meanwhile."""
    from attnknn.storage.store import read_store

    with wrap_content_errors(path):
        return read_store(path, read) if has_store(path) else read(ModelFolder(path))


@contextmanager
def wrap_content_errors(path: Path) -> Iterator[None]:
    """Turn errors caused by inconsistent contents into `ModelFolderError`."""
    try:
        yield
    except ModelFolderError:
        raise
    except TooLargeError as error:
        raise ModelFolderError(f"The model folder {path} cannot be used: {error}") from error
    except BAD_CONTENTS as error:
        raise ModelFolderError(
            f"The model folder {path} cannot be used: its contents are inconsistent ({error})."
        ) from error


def shape_fits(found: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Whether a shape is the expected one; None fits any length.

    >>> shape_fits((40, 3), (None, 3)), shape_fits((40,), (None, 3))
    (True, False)
    """
    return len(found) == len(expected) and all(
        want is None or want == have for want, have in zip(expected, found, strict=True)
    )


class ModelFolder:
    """A folder with a manifest; returns the contents of its files after checking them."""

    builds_index = True  # of the memory, which takes long for approximate ones

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = self._check_manifest(self._read_manifest())

    def memory(self, classes: list[Any]) -> Memory | None:  # noqa: ARG002  (a database needs them)
        """The memory with the entries, if it is not built from arrays of the folder."""
        return None

    def refuse(self, why: str) -> ModelFolderError:
        """The error to raise, which names the folder."""
        return ModelFolderError(f"The model folder {self.path} cannot be used: {why}.")

    @property
    def has_trust(self) -> bool:
        """Whether the folder of a model whose attention needs trust holds it."""
        return True

    @property
    def names(self) -> list[str]:
        """The names of the files that the manifest lists."""
        return list(self._files)

    def blocks(self, name: str) -> Iterator[bytes]:
        """The content of a file, which is checked when it ends."""
        digest = hashlib.sha256()
        with self._open(name) as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                yield block
            self._check_digest(name, digest.hexdigest(), file)

    def check(self, name: str) -> None:
        """Raise an error if a file is not what was written."""
        for _ in self.blocks(name):
            pass

    def settings(self) -> dict[str, Any]:
        """The content of settings.json."""
        settings = self._parse_json(self._read(SETTINGS), SETTINGS)
        if not isinstance(settings, dict):
            raise self.refuse(f"{SETTINGS} must hold an object")
        return settings

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array of a known type and shape; None fits any length."""
        file_name = f"{name}.npy"
        with self._open(file_name) as file:
            digest = hashlib.sha256()
            array = self._empty_array(file, file_name, dtype, shape, digest)
            _fill(array, file, digest)
            self._check_digest(file_name, digest.hexdigest(), file)
        return array

    def lines(self, name: str, n_lines: int) -> list[Any]:
        """One JSON value from each line."""
        file_name = f"{name}.jsonl"
        lines = self._read(file_name).split(b"\n")
        if len(lines) != n_lines + 1 or lines[-1]:
            raise self.refuse(f"{file_name} must have {n_lines} lines, one per entry")
        return [self._parse_json(line, file_name, allow_nan=True) for line in lines[:-1]]

    def trained(self, name: str) -> Arrays:
        """The fitted arrays of a part."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        file_name = f"{name}.safetensors"
        try:
            return load(bytes(self._read(file_name)))
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self.refuse(f"{file_name} is not a safetensors file ({error})") from error

    def _read_manifest(self) -> bytes:
        try:
            return read_manifest(self.path)
        except OSError as error:
            raise ModelFolderError(
                f"{self.path} is not a model folder: it has no readable {MANIFEST}."
            ) from error

    def _check_manifest(self, text: bytes) -> dict[str, dict[str, Any]]:
        manifest = self._parse_json(text, MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ModelFolderError(
                f"{self.path} is not a model folder: its {MANIFEST} has another format."
            )
        self._check_version(manifest.get("version"))
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise self.refuse(f"{MANIFEST} lists no files")
        for name, known in files.items():
            if not NAME.fullmatch(name) or name == MANIFEST:
                raise self.refuse(f"{MANIFEST} lists the invalid file name {name!r}")
            if not _is_file_record(known):
                raise self.refuse(f"{MANIFEST} has no size and checksum for {name}")
        check_readable({name: known["bytes"] for name, known in files.items()})
        return files

    def _check_version(self, version: Any) -> None:
        is_number = isinstance(version, int) and not isinstance(version, bool)
        if is_number and version < VERSION:
            raise self.refuse(
                f"it was written by an older development version of attnknn (format version "
                f"{version}, this version reads {VERSION}); fit the model again"
            )
        if not is_number or version != VERSION:
            raise self.refuse(
                f"its format version must be {VERSION}, got {version!r}; "
                "was it written by a newer version of attnknn?"
            )

    def _open(self, name: str) -> BinaryIO:
        if name not in self._files:
            raise self.refuse(f"{MANIFEST} does not list {name}")
        size = self._files[name]["bytes"]
        if name == SETTINGS and size > MAX_SETTINGS_BYTES:
            raise self.refuse(f"{name} must have at most {MAX_SETTINGS_BYTES:,} bytes, has {size}")
        try:
            file = open_regular(self.path / name)
        except OSError as error:
            raise self.refuse(f"{name} cannot be read ({error.strerror or error})") from error
        found = os.fstat(file.fileno()).st_size
        if found != size:
            file.close()
            raise self.refuse(f"{name} has {found} bytes, {size} were written")
        return file

    def _read(self, name: str) -> bytes:
        with self._open(name) as file:
            data = file.read()
            self._check_digest(name, hashlib.sha256(data).hexdigest(), file)
        return data

    def _check_digest(self, name: str, found: str, file: BinaryIO) -> None:
        if found != self._files[name]["sha256"] or file.read(1):
            raise self.refuse(f"{name} is not what was written (its checksum differs)")

    def _parse_json(self, text: bytes, name: str, *, allow_nan: bool = False) -> Any:
        def refuse_constant(constant: str) -> Any:
            raise ValueError(f"{constant} is not a number")

        try:
            constants = None if allow_nan else refuse_constant
            return json.loads(text.decode("utf-8"), parse_constant=constants)
        except (ValueError, RecursionError) as error:
            raise self.refuse(f"{name} is not JSON ({error})") from error

    def _empty_array(
        self, file: BinaryIO, name: str, dtype: Any, shape: tuple[int | None, ...], digest: Any
    ) -> NDArray[Any]:
        """An array for the numbers of a .npy file whose header agrees with the file's size."""
        head = file.read(10)
        head += file.read(int.from_bytes(head[8:10], "little"))
        digest.update(head)
        found = HEADER.fullmatch(head)
        if found is None:
            raise self.refuse(f"{name} is not a .npy file of plain numbers")
        found_type, wanted = found["type"].decode(), np.dtype(dtype)
        if found_type != wanted.str:
            raise self.refuse(f"{name} must hold {wanted} numbers, it holds {found_type}")
        found_shape = tuple(int(axis) for axis in found["shape"].replace(b",", b" ").split())
        n_bytes = math.prod(found_shape) * wanted.itemsize
        if not shape_fits(found_shape, shape) or n_bytes != self._files[name]["bytes"] - len(head):
            raise self.refuse(f"{name} has the unexpected shape {found_shape}")
        return np.empty(found_shape, dtype=wanted)


def check_readable(sizes: dict[str, int]) -> None:
    """Raise unless files of these sizes in bytes, by name, can be held in memory.

    >>> check_readable({"embeddings.npy": 4096, "settings.json": 1000})
    """
    needed = sum(READING_BYTES[Path(name).suffix] * size for name, size in sizes.items())
    if needed > BLOCK_BYTES:  # small files always fit
        check_fits("Loading it", needed, "Load it on a machine with more memory.")


def _fill(array: NDArray[Any], file: BinaryIO, digest: Any) -> None:
    if not array.size:
        return
    view = array.data.cast("B")
    for start in range(0, len(view), BLOCK_BYTES):
        part = view[start : start + BLOCK_BYTES]
        n_read = file.readinto(part)  # type: ignore[attr-defined]
        digest.update(part[:n_read])


def _is_file_record(known: Any) -> bool:
    if not isinstance(known, dict) or set(known) != {"bytes", "sha256"}:
        return False
    size, checksum = known["bytes"], known["sha256"]
    is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return is_size and isinstance(checksum, str) and bool(SHA256.fullmatch(checksum))
