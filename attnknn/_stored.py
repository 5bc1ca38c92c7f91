"""Files, values and arrays from a model folder, checked before they are used."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import ModelFolderError
from attnknn.records import Floats

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, NDArray[Any]]
_Module = TypeVar("_Module", bound="nn.Module")


# A file on a disk that compresses needs fewer blocks, too, but seldom so few.
MIN_BYTES_WITH_HOLES, MAX_BYTES_PER_STORED_BYTE = 1 << 24, 64


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file; links, devices, pipes and files with large holes raise `OSError`.

    Devices and pipes might never end, and a file with holes has more bytes than the disk holds.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError("not a regular file")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags | getattr(os, "O_NONBLOCK", 0)), "rb")
    found = os.fstat(file.fileno())
    n_stored = getattr(found, "st_blocks", found.st_size) * 512
    has_holes = n_stored * MAX_BYTES_PER_STORED_BYTE < found.st_size
    if not stat.S_ISREG(found.st_mode) or (has_holes and found.st_size >= MIN_BYTES_WITH_HOLES):
        file.close()
        raise OSError("a file with holes" if has_holes else "not a regular file")
    return file


class Fields:
    """A JSON object whose values are read with their types checked.

    >>> Fields({"n": 3}, "settings").integer("n", least=1)
    3
    >>> Fields({"n": True}, "settings").integer("n")
    Traceback (most recent call last):
    attnknn.errors.ModelFolderError: The stored `settings.n` must be an integer, got True.
    """

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise ModelFolderError(f"The stored `{where}` must be an object, got {_short(values)}.")
        self._values, self._where = values, where

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def to_dict(self) -> dict[str, Any]:
        """The values as they are."""
        return dict(self._values)

    def of(self, name: str) -> Fields:
        """An object inside this one."""
        return Fields(self.anything(name), f"{self._where}.{name}")

    def anything(self, name: str) -> Any:
        """A value of any type, but it must be there."""
        if name not in self._values:
            raise ModelFolderError(f"The stored `{self._where}.{name}` is missing.")
        return self._values[name]

    def integer(self, name: str, least: int = 0) -> int:
        """An integer of at least `least` that 64 bits can hold."""
        value = self.anything(name)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer or not least <= value < 2**63:
            raise self._wrong(name, "an integer" + (f" of at least {least}" if least else ""))
        return int(value)

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        """A finite number from `least` to `most`."""
        value = self.anything(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (least <= value <= most and abs(value) < 1e308):
            raise self._wrong(name, f"a number from {least} to {most}")
        return float(value)

    def number_or_nan(self, name: str) -> float:
        """A finite number, or NaN where null is stored."""
        return math.nan if self.anything(name) is None else self.number(name)

    def text(self, name: str) -> str:
        """A text."""
        value = self.anything(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def flag(self, name: str) -> bool:
        """True or False."""
        value = self.anything(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        value = self.anything(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, "a list of texts")
        return value

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Finite numbers in nested lists of this shape."""
        value = np.array(self.anything(name), dtype=object)
        are_numbers = all(type(number) in (int, float) for number in value.ravel())
        if value.shape != shape or not are_numbers or not np.isfinite(value.astype(float)).all():
            raise self._wrong(name, f"numbers of the shape {shape}")
        return value.astype(np.float64)

    def _wrong(self, name: str, wanted: str) -> ModelFolderError:
        value = _short(self._values[name])
        return ModelFolderError(f"The stored `{self._where}.{name}` must be {wanted}, got {value}.")


def fitted_fields(values: Any) -> Fields:
    """The fitted values of an attention."""
    return Fields(values, "settings.attention.fitted")


def _short(value: Any) -> str:
    return repr(value)[:60]


def state_arrays(module: nn.Module) -> Arrays:
    """The state dict of a module as NumPy arrays."""
    state = module.state_dict()
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in state.items()}


def load_arrays(module: _Module, arrays: Arrays, what: str) -> _Module:
    """The module with stored weights; weights that do not fit raise `ModelFolderError`."""
    import torch

    try:
        module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise ModelFolderError(f"The stored arrays of {what} do not fit: {why}") from error
    return module


def check_arrays(arrays: Arrays, shapes: dict[str, tuple[int, ...]], what: str) -> None:
    """Check shapes before a module is built, so that stored settings alone reserve no memory."""
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            raise ModelFolderError(f"The stored array `{name}` of {what} must have shape {shape}.")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ModelFolderError(f"The stored array `{name}` must hold finite float32 numbers.")
