"""How numbers are stored and steps compiled: mixed precision, channels last, torch.compile."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import nn

from attnknn._validation import check_choice
from attnknn.errors import InvalidSettingError

Numbers = Literal["float32", "bfloat16", "float16"]
NUMBERS = ("float32", "bfloat16", "float16")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Precision:
    """How the steps of a training compute; weights are float32 always.

    Parameters
    ----------
    numbers : what products and convolutions are computed in. 'bfloat16' works everywhere and is
        fast where the hardware has it; 'float16' is for CUDA, and scales the loss so that small
        gradients do not vanish
    is_channels_last : images with their channels side by side, which convolutions prefer
    is_compiled : compile the module when it is first called; costs a minute, saves time per step
    compile_mode : what the compiler looks for, a name that `torch.compile` knows
    """

    numbers: Numbers = "float32"
    is_channels_last: bool = False
    is_compiled: bool = False
    compile_mode: str = "default"

    def __post_init__(self) -> None:
        check_choice("numbers", self.numbers, NUMBERS)
        check_choice("compile_mode", self.compile_mode, COMPILE_MODES)


def prepare(module: nn.Module, device: torch.device, precision: Precision) -> nn.Module:
    """`module` itself, on its device, laid out and compiled as `precision` says.

    Its parameters keep their names. Build the optimizer afterward.
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
    """A context in which products are computed in the numbers of `precision`."""
    check_precision(precision, device)
    if precision.numbers == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision.numbers))


def loss_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """What scales the loss of float16 trainings, and does nothing for others."""
    return torch.amp.GradScaler(device.type, enabled=precision.numbers == "float16")


def check_precision(precision: Precision, device: torch.device) -> None:
    """An error for numbers that the device does not train with."""
    if precision.numbers == "float16" and device.type != "cuda":
        raise InvalidSettingError(
            f"`numbers='float16'` needs a CUDA device, this one is {device.type!r}. "
            "Use 'bfloat16' or 'float32'."
        )


@lru_cache(maxsize=4)
def check_compiler(device_type: str) -> None:
    """An error if `torch.compile` does not work here; found out by compiling one addition."""
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
