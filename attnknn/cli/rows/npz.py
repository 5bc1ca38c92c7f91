"""NPZ files: vectors or images, and arrays with one value per row; pickles are never loaded."""

from __future__ import annotations

import io
import lzma
import math
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.rows.memory_bound import check_size
from attnknn.cli.rows.sources import CHUNK_ROWS, Chunk, Kind, Source
from attnknn.errors import InvalidInputError

ROWS = {
    "train": ("X", "X_train", "x_train", "images", "train_images"),
    "test": ("X", "X_test", "x_test", "images", "test_images"),
}
LABELS = {"images": "labels", "X": "y", "x": "y"}  # name of the labels beside each
CHUNK_BYTES = 1 << 26
MAX_HEADER_BYTES = 1 << 16
# RuntimeError: an encrypted array, or an unknown compression. OSError: a place outside of the file.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError),
    *(ValueError, TypeError, KeyError, OverflowError, SyntaxError, tokenize.TokenError),
)


class NpzSource(Source):
    """Vectors or images `X` (or `x_train`, `x_test`) with labels `y`, read in chunks."""

    def __init__(self, path: Path, part: str) -> None:
        self.path = path
        with self._explain_errors(), zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
            self._rows = self._find_rows(names, part)
            headers = {name: self._header(archive, name) for name in names}
        self._bytes = {
            n: math.prod(shape) * dtype.itemsize for n, (shape, _, dtype) in headers.items()
        }
        self._is_fortran = headers[self._rows][1]
        shapes = {name: shape for name, (shape, _, _) in headers.items()}
        self._shape = shapes.pop(self._rows)
        self.kind = self._kind(headers[self._rows][2])
        per_row = (self._shape[:1], (self._shape[0], 1))
        self.columns = [name for name, shape in shapes.items() if shape in per_row]
        self.unusable = {n: self._mismatch(n, s) for n, s in shapes.items() if s not in per_row}
        prefix = next(name for name in LABELS if name in self._rows)
        target = self._rows.replace(prefix, LABELS[prefix])
        self.default_target = target if target in shapes else None

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """The vectors or images in chunks, with the other arrays sliced the same way."""
        row_bytes = max(1, self._bytes[self._rows] // max(1, self._shape[0]))
        n_rows = min(n_rows, max(1, CHUNK_BYTES // row_bytes))
        at_once = self._bytes[self._rows] if self._is_fortran else n_rows * row_bytes
        check_size(self.path, 2 * at_once + sum(self._bytes[name] for name in self.columns))
        with self._explain_errors(), zipfile.ZipFile(self.path) as archive:
            columns = {name: self._read_column(archive, name) for name in self.columns}
            with archive.open(f"{self._rows}.npy") as file:
                for first, items in self._blocks(file, n_rows):
                    rows = slice(first, first + len(items))
                    table = pd.DataFrame(
                        {name: values[rows] for name, values in columns.items()},
                        index=range(len(items)),
                    )
                    yield Chunk(first, table, items)

    @property
    def declared_bytes(self) -> int:
        """The size of the vectors or images, and of the arrays with one value per row."""
        return sum(self._bytes[name] for name in (self._rows, *self.columns))

    def _find_rows(self, names: list[str], part: str) -> str:
        for name in ROWS[part]:
            if name in names:
                return name
        raise InvalidInputError(
            f"{self.path} must have an array of vectors or images named {' or '.join(ROWS[part])}, "
            f"it has: {', '.join(names) or 'none'}."
        )

    def _kind(self, dtype: np.dtype[Any]) -> Kind:
        if len(self._shape) == 2:
            return "vectors"
        if dtype == np.uint8 and len(self._shape) in (3, 4):
            return "images"
        raise InvalidInputError(
            f"The array {self._rows!r} of {self.path} must hold vectors of shape (n, D), or uint8 "
            f"images of shape (n, H, W) or (n, H, W, 3); it has shape {self._shape} and type "
            f"{dtype}."
        )

    def _mismatch(self, name: str, shape: tuple[int, ...]) -> str:
        found = f"{shape[0]} values" if len(shape) == 1 else f"shape {shape}"
        return (
            f"The array {name!r} of {self.path} must have one value per row: {self._rows!r} has "
            f"{self._shape[0]} rows, {name!r} has {found}."
        )

    def _blocks(self, file: IO[bytes], n_rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
        shape, is_fortran, dtype = _read_header(file)
        if is_fortran:  # values of a row are far apart, so the whole array is read at once
            numbers = np.frombuffer(file.read(), dtype=dtype).reshape(shape[::-1]).T
            for first in range(0, shape[0], n_rows):
                yield first, numbers[first : first + n_rows]
            return
        for first in range(0, shape[0], n_rows):
            n_here = min(n_rows, shape[0] - first)
            n_bytes = n_here * math.prod(shape[1:]) * dtype.itemsize
            data = file.read(n_bytes)
            if len(data) != n_bytes:
                raise EOFError("it ends too early")
            yield first, np.frombuffer(bytearray(data), dtype=dtype).reshape(n_here, *shape[1:])

    def _read_column(self, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
        with archive.open(f"{name}.npy") as file:
            values = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        if values.dtype.kind == "U":
            codes = values.astype(values.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
            if (codes > sys.maxunicode).any() or ((codes >= 0xD800) & (codes < 0xE000)).any():
                raise ValueError(f"the array {name!r} holds text that is not Unicode")
        return values.reshape(len(values))  # (n, 1) is one value per row too

    def _header(self, archive: zipfile.ZipFile, name: str) -> tuple[Any, bool, np.dtype[Any]]:
        with archive.open(f"{name}.npy") as file:
            shape, is_fortran, dtype = _read_header(file)
        if dtype.hasobject:
            raise InvalidInputError(
                f"The array {name!r} of {self.path} holds pickled Python objects, which are never "
                "loaded. Save it as numbers or as fixed-width text."
            )
        return shape, is_fortran, dtype

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except InvalidInputError:
            raise
        except DAMAGE as error:
            raise InvalidInputError(f"{self.path} is not a valid NPZ file: {error}.") from error


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        length = file.read(4)  # may declare gigabytes, which compress well
        if int.from_bytes(length, "little") > MAX_HEADER_BYTES:
            raise ValueError("the header of an array is too long")
        header = length + file.read(int.from_bytes(length, "little"))
        return np.lib.format.read_array_header_2_0(io.BytesIO(header))
    raise ValueError(f"a .npy file of version {version}")
