"""The state of a training as one file: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnknn.errors import InvalidInputError

FORMAT = "attnknn-checkpoint-1"
Tree = Any  # dicts, lists and tuples of tensors, numbers, texts, booleans and None


def write_checkpoint(path: str | Path, state: Mapping[str, Tree]) -> None:
    """Write `state` to `path`; a crash at any moment leaves the old file or the new one.

    Tensors are stored as safetensors, the rest as JSON in the header of the same file, so that one
    renaming replaces both.

    Parameters
    ----------
    state : dicts, lists and tuples of tensors, numbers, texts, booleans and None
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    outline = json.dumps(_pack(dict(state), tensors, "state"))
    _write_atomically(Path(path), save(tensors, {"format": FORMAT, "outline": outline}))


def read_checkpoint(path: str | Path) -> dict[str, Tree]:
    """What `write_checkpoint` wrote: the same tree, its tensors on the CPU."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"There is no checkpoint at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.get("format") != FORMAT:
            raise ValueError(f"its format is {header.get('format')!r}, not {FORMAT!r}")
        return _unpack(json.loads(header["outline"]), tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(
            f"{path} is not a checkpoint, or a damaged one ({error}). "
            "Delete it to start from the beginning."
        ) from error


def _pack(value: Tree, tensors: dict[str, Tensor], name: str) -> Any:
    """`value` as JSON: tensors are put aside under their path, containers say what they are."""
    if isinstance(value, Tensor):
        key = f"{len(tensors)}:{name}"  # names have dots, so paths alone could meet
        tensors[key] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": key}
    if isinstance(value, Mapping):  # pairs, because keys may be integers
        return {"dict": [[k, _pack(v, tensors, f"{name}.{k}")] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        parts = [_pack(part, tensors, f"{name}.{i}") for i, part in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"A checkpoint cannot hold {name}, which is a {type(value).__name__}.")


def _unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Tree:
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(part, tensors) for key, part in content}
    parts = [_unpack(part, tensors) for part in content]
    return {"list": list, "tuple": tuple}[kind](parts)


def _write_atomically(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")  # one name: the next writing reuses it
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself last; where folders cannot be opened, the system does it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def chance_state(generator: torch.Generator) -> dict[str, Tensor]:
    """Where every source of chance stands: the generator, and torch's own, which dropout uses."""
    state = {"generator": generator.get_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_chance(generator: torch.Generator, state: Mapping[str, Tensor]) -> None:
    """Put every source of chance back to where `chance_state` found it."""
    generator.set_state(state["generator"])
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
