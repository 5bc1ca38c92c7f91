"""Device, numeric precision, compilation and random seed of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import nn

from attnknn._validation import check_choice
from attnknn.errors import InvalidSettingError

DEVICES = ("auto", "cpu", "cuda", "mps")
MISSING = {
    "cuda": "torch finds no GPU it can use (or was built without CUDA)",
    "mps": "torch finds no Apple GPU",
}
DType = Literal["float32", "bfloat16", "float16"]
DTYPES = ("float32", "bfloat16", "float16")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def device_of(name: str) -> torch.device:
    """The torch device called `name`; 'auto' is the fastest available one.

    >>> device_of("cpu")
    device(type='cpu')
    """
    check_choice("device", name, DEVICES)
    if name == "auto":
        return torch.device(next((kind for kind in MISSING if _is_available(kind)), "cpu"))
    if name != "cpu" and not _is_available(name):
        raise InvalidSettingError(
            f"`device={name!r}` is not available: {MISSING[name]}. Use 'cpu', or 'auto' to take "
            "the fastest available device."
        )
    return torch.device(name)


def _is_available(name: str) -> bool:
    return torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A block in which torch's global generators start from `seed`; they are restored afterward.

    >>> draws = []
    >>> for _ in range(2):
    ...     with seeded(0):
    ...         draws.append(torch.rand(3))
    >>> torch.equal(*draws)
    True
    """
    with torch.random.fork_rng():
        torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        if torch.cuda.is_available():
            torch.cuda.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Precision:
    """Numeric precision, memory layout and compilation of training steps; weights stay float32.

    Parameters
    ----------
    dtype : {"float32", "bfloat16", "float16"}, default="float32"
        What matrix products and convolutions are computed in. 'bfloat16' works everywhere and is
        fast where the hardware supports it; 'float16' needs CUDA and scales the loss so that small
        gradients do not vanish.
    is_channels_last : bool, default=False
        Whether images are stored with their channels side by side, which convolutions prefer.
    is_compiled : bool, default=False
        Whether `torch.compile` compiles the module on its first call, which takes about a minute
        and makes each step faster.
    compile_mode : str, default="default"
        Mode of `torch.compile`.
    """

    dtype: DType = "float32"
    is_channels_last: bool = False
    is_compiled: bool = False
    compile_mode: str = "default"

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("compile_mode", self.compile_mode, COMPILE_MODES)


def prepare(module: nn.Module, device: torch.device, precision: Precision) -> nn.Module:
    """Move `module` to its device, and lay out and compile it as `precision` says.

    Parameters keep their names. Build the optimizer afterward.
    """
    check_precision(precision, device)
    module.to(device)
    if precision.is_channels_last:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precision.is_compiled:
        check_compiler(device.type)
        module.compile(mode=precision.compile_mode)
    return module


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context in which products are computed in the dtype of `precision`."""
    check_precision(precision, device)
    if precision.dtype == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision.dtype))


def loss_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Scaler of the loss for float16; it does nothing for other dtypes."""
    return torch.amp.GradScaler(device.type, enabled=precision.dtype == "float16")


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise an error for a dtype that the device cannot train with."""
    if precision.dtype == "float16" and device.type != "cuda":
        raise InvalidSettingError(
            f"`dtype='float16'` needs a CUDA device, this one is {device.type!r}. "
            "Use 'bfloat16' or 'float32'."
        )


@lru_cache(maxsize=4)
def check_compiler(device_type: str) -> None:
    """Raise an error if `torch.compile` does not work here, found by compiling one addition."""
    try:
        torch.compile(_add_one)(torch.zeros(8, device=device_type))
    except Exception as error:  # whatever the compiler behind it raises
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InvalidSettingError(
            f"`is_compiled=True` needs a working compiler (a C++ compiler with Python's headers, "
            f"or Triton on a GPU), and torch.compile failed here: {reason} Set it to False."
        ) from error


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1
