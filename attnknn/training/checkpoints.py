"""Checkpoints of a training: one file, replaced atomically, read without pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnknn._output_files import publish
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.training.loop import Run

FORMAT = "attnknn-checkpoint-1"
Tree = Any  # dicts, lists and tuples of tensors, numbers, texts, booleans and None
N_COMPARED = 20  # steps at which two schedules are compared
HASHED_AT_ONCE = 1 << 24  # bytes


class Stateful(Protocol):
    """State that a checkpoint can hold: numbers, texts and tensors in dicts and lists."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, saved: dict[str, Any], /) -> Any: ...


def save_run(run: Run, path: Path) -> None:
    """Write the whole state of a training to one file; the first process writes for all."""
    random_states = {
        name: run.processes.gather(state[None])  # one row per process
        for name, state in random_state_of(run.generator).items()
    }
    if run.processes.is_first:
        parts = {name: part.state_dict() for name, part in _parts(run).items()}
        progress = {
            "step": run.step,
            "seconds": run.result.seconds,
            "train": run.result.train_losses,
            "validation": run.result.validation_losses,
            "components": run.result.components,
        }
        state = {"training": _fingerprint(run), "progress": progress, "parts": parts}
        write_checkpoint(path, {**state, "random_states": random_states})


def resume_run(run: Run, path: Path) -> None:
    """Put `run` into the state stored at `path`, random number generators included."""
    saved = read_checkpoint(path)
    if saved.keys() != {"training", "progress", "parts", "random_states"}:
        raise InvalidInputError(f"{path} is not the checkpoint of a training.")
    _check_same_training(saved["training"], _fingerprint(run), path)
    for name, part in _parts(run).items():
        part.load_state_dict(saved["parts"][name])
    progress = saved["progress"]
    run.step, run.result.seconds = progress["step"], progress["seconds"]
    run.result.train_losses = progress["train"]
    run.result.validation_losses = progress["validation"]
    run.result.components = progress.get("components", {})  # not in those of earlier versions
    # Clones, because torch reads a generator's state from the start of its storage.
    stored = saved["random_states"]
    own = {name: states[run.processes.rank].clone() for name, states in stored.items()}
    restore_random_state(run.generator, own)


def _parts(run: Run) -> dict[str, Stateful]:
    parts: dict[str, Any] = {
        "module": run.module,
        "optimizer": run.optimizer,
        "scaler": run.scaler,
        "best": run.best,
    }
    if run.average is not None:
        parts["average"] = run.average
    return parts | {f"also {name}": part for name, part in run.extra_state.items()}


def _fingerprint(run: Run) -> dict[str, Any]:
    """What a training must share with a checkpoint to resume from it."""
    config = run.config
    names = ["epochs", "batch_size", "warmup", "patience", "optimizer", "clip"]
    names += ["average", "lookahead", "label_smoothing"]
    shapes = {name: list(value.shape) for name, value in run.module.state_dict().items()}
    return {
        **{name: getattr(config, name) for name in names},
        "tolerance": run.tolerance,
        "schedule": _describe_schedule(run),
        "dtype": run.precision.dtype,
        "rows": run.n_rows,
        "learning rates": run.top_rates,
        "weight decays": [group.get("weight_decay", 0.0) for group in run.groups],
        "processes": run.processes.count,
        "parts": sorted(_parts(run)),
        "shapes": shapes,
        **run.fingerprint,
    }


def _describe_schedule(run: Run) -> str | list[float]:
    """A schedule as another process recognizes it: its name, or its factors at some steps."""
    if isinstance(run.config.schedule, str):
        return run.config.schedule
    if hasattr(run.schedule, "state_dict"):
        return repr(run.schedule)  # its factors change with the training
    steps = {round(run.n_steps * part / N_COMPARED) for part in range(N_COMPARED + 1)}
    return [float(run.schedule(step)) for step in sorted(steps)]


def _check_same_training(there: dict[str, Any], here: dict[str, Any], path: Path) -> None:
    """Name what differs; a different module follows from it and is only mentioned if alone."""
    differing = [name for name, value in here.items() if there.get(name) != value]
    if not differing:
        return
    reasons = [
        reason
        for name in differing
        if name != "shapes"
        for reason in _differences(name, there.get(name), here[name])
    ]
    raise InvalidInputError(
        f"The checkpoint {path} belongs to another training: "
        f"{'; '.join(reasons) or 'the module is another one'}. "
        "Train with the settings of the checkpoint, or delete it to start from the beginning."
    )


def _differences(name: str, there: Any, here: Any) -> list[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        names = [key for key in here if there.get(key) != here[key]]
        return [words for key in names for words in _differences(key, there.get(key), here[key])]
    return [f"`{name}` is {there} there and {here} here"]


def write_checkpoint(path: str | Path, state: Mapping[str, Tree]) -> None:
    """Write `state` to `path`; a crash at any moment leaves the old file or the new one.

    Tensors are stored as safetensors, the rest as JSON in the header of the same file, so that one
    rename replaces both. `state` may hold dicts, lists and tuples of tensors, numbers, texts,
    booleans and None.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    outline = json.dumps(_pack(dict(state), tensors, "state"))
    write_atomically(Path(path), save(tensors, {"format": FORMAT, "outline": outline}))


def read_checkpoint(path: str | Path) -> dict[str, Tree]:
    """The state that `write_checkpoint` stored, with its tensors on the CPU."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"No checkpoint found at {path}.")
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
    """`value` as JSON: tensors move to `tensors`, containers are tagged with their type."""
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


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file; a crash at any moment leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")  # one name: the next write reuses it
    try:
        unfinished.write_bytes(content)
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def random_state_of(generator: torch.Generator) -> dict[str, Tensor]:
    """State of `generator` and of torch's global generators, which dropout uses."""
    state = {"generator": generator.get_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(generator: torch.Generator, state: Mapping[str, Tensor]) -> None:
    """Restore what `random_state_of` returned."""
    generator.set_state(state["generator"])
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def checksum(*arrays: NDArray[Any]) -> str:
    """SHA-256 of the shapes, dtypes and values of arrays, independent of their memory layout.

    >>> left = np.arange(6).reshape(2, 3)
    >>> checksum(left) == checksum(np.asfortranarray(left)), checksum(left) == checksum(left.T)
    (True, False)
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype.str}".encode())
        step = max(1, HASHED_AT_ONCE * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), step):
            digest.update(np.ascontiguousarray(array[start : start + step]).tobytes())
    return digest.hexdigest()
