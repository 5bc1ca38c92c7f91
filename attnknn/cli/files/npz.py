"""NPZ files: vectors or images, and arrays with one value per row. Pickles are not opened."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.files.base import ROWS_AT_ONCE, Kind, Part
from attnknn.errors import InvalidInputError

ROWS = {
    "train": ("X", "X_train", "x_train", "images", "train_images"),
    "test": ("X", "X_test", "x_test", "images", "test_images"),
}
LABELS = {"images": "labels", "X": "y", "x": "y"}  # what the labels are called beside them
BYTES_AT_ONCE = 1 << 26  # of images


class NpzSource:
    """Vectors or images `X` (or `x_train`, `x_test`) with labels `y`, read in parts."""

    kind: Kind
    default_id: str | None = None

    def __init__(self, path: Path, part: str) -> None:
        self.path = path
        with self._explained(), zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
            self._rows = self._chosen(names, part)
            headers = {name: self._header(archive, name) for name in names}
        shapes = {name: shape for name, (shape, _, _) in headers.items()}
        self._shape = shapes.pop(self._rows)
        self.kind = self._kind(headers[self._rows][2])
        one_each = (self._shape[:1], (self._shape[0], 1))
        self.columns = [name for name, shape in shapes.items() if shape in one_each]
        self.unusable = {n: self._why(n, s) for n, s in shapes.items() if s not in one_each}
        ours = next(name for name in LABELS if name in self._rows)
        wanted = self._rows.replace(ours, LABELS[ours])
        self.default_target: str | None = wanted if wanted in shapes else None

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]:
        """The vectors or images in parts, with the other arrays cut the same way."""
        if self.kind == "images":
            n_rows = min(n_rows, max(1, BYTES_AT_ONCE // max(1, math.prod(self._shape[1:]))))
        with self._explained(), zipfile.ZipFile(self.path) as archive:
            columns = {name: self._whole(archive, name) for name in self.columns}
            with archive.open(f"{self._rows}.npy") as file:
                for first, items in self._blocks(file, n_rows):
                    rows = slice(first, first + len(items))
                    table = pd.DataFrame(
                        {name: values[rows] for name, values in columns.items()},
                        index=range(len(items)),
                    )
                    yield Part(first, table, items)

    def _chosen(self, names: list[str], part: str) -> str:
        for name in ROWS[part]:
            if name in names:
                return name
        raise InvalidInputError(
            f"{self.path} must hold the vectors or images as an array "
            f"{' or '.join(ROWS[part])}, it holds: {', '.join(names) or 'nothing'}."
        )

    def _kind(self, dtype: np.dtype[Any]) -> Kind:
        if len(self._shape) == 2:
            return "vectors"
        if dtype == np.uint8 and len(self._shape) in (3, 4):
            return "images"
        raise InvalidInputError(
            f"The array {self._rows!r} of {self.path} must be vectors, with rows and columns, or "
            f"images of uint8, (n, H, W) or (n, H, W, 3); it has the shape {self._shape} and is "
            f"{dtype}."
        )

    def _why(self, name: str, shape: tuple[int, ...]) -> str:
        """Why an array is no column."""
        found = f"{shape[0]} values" if len(shape) == 1 else f"the shape {shape}"
        return (
            f"The array {name!r} of {self.path} must have one value per row: {self._rows!r} has "
            f"{self._shape[0]} rows, {name!r} has {found}."
        )

    def _blocks(self, file: IO[bytes], n_rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
        shape, is_fortran, dtype = _read_header(file)
        if is_fortran:  # the numbers of a row are far apart: all or nothing
            numbers = np.frombuffer(file.read(), dtype=dtype).reshape(shape[::-1]).T
            for first in range(0, shape[0], n_rows):
                yield first, numbers[first : first + n_rows]
            return
        for first in range(0, shape[0], n_rows):
            n_here = min(n_rows, shape[0] - first)
            data = _read_exactly(file, n_here * math.prod(shape[1:]) * dtype.itemsize)
            yield first, np.frombuffer(bytearray(data), dtype=dtype).reshape(n_here, *shape[1:])

    def _whole(self, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
        with archive.open(f"{name}.npy") as file:
            values = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        return values.reshape(len(values))  # (n, 1) is one value per row too

    def _header(self, archive: zipfile.ZipFile, name: str) -> tuple[Any, bool, np.dtype[Any]]:
        with archive.open(f"{name}.npy") as file:
            shape, is_fortran, dtype = _read_header(file)
        if dtype.hasobject:
            raise InvalidInputError(
                f"The array {name!r} of {self.path} holds pickled Python objects, which are never "
                "opened. Save it as numbers or as fixed-width text."
            )
        return shape, is_fortran, dtype

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except InvalidInputError:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError) as error:
            raise InvalidInputError(f"{self.path} is not a whole NPZ file: {error}.") from error


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"a .npy file of version {version}")


def _read_exactly(file: IO[bytes], n_bytes: int) -> bytes:
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise EOFError("it ends too early")
    return data
