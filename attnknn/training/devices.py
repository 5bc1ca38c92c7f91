"""Where a training runs, by name."""

from __future__ import annotations

import torch

from attnknn._validation import check_choice
from attnknn.errors import InvalidSettingError

DEVICES = ("auto", "cpu", "cuda", "mps")
MISSING = {
    "cuda": "torch finds no GPU it can use (or was built without CUDA)",
    "mps": "torch finds no Apple GPU",
}


def device_of(name: str) -> torch.device:
    """The device called `name`; 'auto' is the fastest there is.

    >>> device_of("cpu")
    device(type='cpu')
    """
    check_choice("device", name, DEVICES)
    if name == "auto":
        return torch.device(next((kind for kind in MISSING if _is_there(kind)), "cpu"))
    if name != "cpu" and not _is_there(name):
        raise InvalidSettingError(
            f"`device={name!r}` cannot be used here: {MISSING[name]}. Use 'cpu', or 'auto' to take "
            "what there is."
        )
    return torch.device(name)


def _is_there(name: str) -> bool:
    return torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()
