"""Pretrained weights from files: read without running code, checked, and loaded into a network."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidInputError

CLASSIFIERS = ("fc.", "_fc.", "classifier.", "head.")  # names of the last layer, which is not used
COUNTER = "num_batches_tracked"  # of batch norms; old files do not have it


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Tensors of a safetensors file or of a state dict saved by torch; no code is run."""
    if not path.is_file():
        raise InvalidInputError(f"`weights` must name a file, there is no file at {path}.")
    try:
        tensors = _read(path)
        if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            raise ValueError("it holds more than named tensors")
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError) as error:
        raise _unreadable(path, error) from error
    except pickle.UnpicklingError as error:
        raise _unreadable(path, "it holds code, or is damaged") from error
    return tensors


def load_weights(
    network: nn.Module, what: str, path: str | Path, *, may_have_more: bool = False
) -> frozenset[str]:
    """Load a file into `network`; return the names of its parameters that the file holds.

    A network may have a method `translate`, which gives the tensors of a file its own names and
    leaves out those that it cannot take. The classifier in a file is ignored; other tensors that
    are too many belong to another network, and are an error unless `may_have_more`.

    `what` names the network in errors.
    """
    tensors = read_weights(Path(path))
    translate: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
    translate = getattr(network, "translate", dict)
    found, own = translate(tensors), network.state_dict()
    problem = _problem(own, found, tensors, may_have_more)
    if problem:
        raise InvalidInputError(f"The weights in {path} do not fit {what}: the file {problem}.")
    network.load_state_dict({n: t for n, t in found.items() if n in own}, strict=False)
    return frozenset(name for name, _ in network.named_parameters() if name in found)


def _problem(
    own: Mapping[str, Tensor],
    found: Mapping[str, Tensor],
    in_file: Mapping[str, Tensor],
    may_have_more: bool,
) -> str:
    """What is wrong with the tensors of a file, of which `found` are translated; '' if nothing."""
    for name, tensor in own.items():
        if name in found and found[name].shape != tensor.shape:
            sizes = f"{tuple(found[name].shape)} instead of {tuple(tensor.shape)}"
            return f"has another size of {name!r}, {sizes}"
        is_left_out = name in in_file
        if name not in found and not is_left_out and not name.endswith(COUNTER):
            return f"has no {name!r}"
    more = [name for name in found if name not in own and not name.startswith(CLASSIFIERS)]
    return f"also has {more[0]!r}, which the network has not" if more and not may_have_more else ""


def _read(path: Path) -> Any:
    if path.suffix != ".safetensors":
        with warnings.catch_warnings():  # about old file formats, which are read or refused
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True)
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _unreadable(path: Path, why: object) -> InvalidInputError:
    return InvalidInputError(
        f"{path} must hold weights, as safetensors or a state dict saved by torch: "
        f"{first_line(why)}"
    )


def first_line(error: object) -> str:
    """The first line of an error, as a sentence."""
    line = next(iter(str(error).strip().splitlines()), "the file cannot be read")
    return line if line.endswith(".") else f"{line}."
