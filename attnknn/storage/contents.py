"""What a model folder holds, before it is written and after it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

SETTINGS = "settings.json"


@dataclass(frozen=True)
class Contents:
    """Everything of one classifier, each kind in files of its own.

    Parameters
    ----------
    settings : plain values, written as JSON
    arrays : by name; each becomes a .npy file
    lines : by name; one JSON value per line
    tensors : what parts were trained to, by the name of the part; each becomes a safetensors file
    """

    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)
