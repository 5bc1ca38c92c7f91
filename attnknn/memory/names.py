"""Short names become memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sklearn.base import clone

from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.memory.auto import AutoMemory
from attnknn.memory.base import Memory
from attnknn.memory.in_faiss import FaissMemory
from attnknn.memory.in_numpy import NumpyMemory
from attnknn.memory.in_torch import TorchMemory

MEMORIES: dict[str, Callable[[str], Memory]] = {
    "auto": lambda device: AutoMemory(device=device),
    "faiss": lambda device: FaissMemory(),  # noqa: ARG005
    "numpy": lambda device: NumpyMemory(),  # noqa: ARG005
    "torch": lambda device: TorchMemory(device=device),
}


def make_memory(memory: str | Memory, *, device: str = "cpu") -> Memory:
    """An empty memory for a short name, or a clone of the memory given.

    Parameters
    ----------
    memory : 'auto', 'faiss', 'numpy', 'torch', or an object whose settings are taken over
    device : where the products of 'auto' and 'torch' run; an object keeps its own

    >>> make_memory("torch")
    TorchMemory()
    >>> make_memory("toch")
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: No memory is called 'toch'. Did you mean 'torch'? ...
    """
    if isinstance(memory, Memory):
        return cast(Memory, clone(memory))
    if not isinstance(memory, str):
        raise InvalidSettingError(
            f"`memory` must be a short name or a `Memory`, got {type(memory).__name__}."
        )
    if memory not in MEMORIES:
        raise unknown_name("memory", memory, MEMORIES)
    return MEMORIES[memory](device)
