"""A trained Vision Transformer as one file, with what is needed to ask it about images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attnknn.errors import InvalidInputError
from attnknn.training.checkpoints import read_checkpoint, write_checkpoint
from attnknn.vit.model import VisionTransformer
from attnknn.vit.training.pixels import Pixels

KIND = "vision transformer"


@dataclass(frozen=True)
class StoredVit:
    """A model, what it was made of, and what becomes of images before it sees them."""

    model: VisionTransformer
    settings: dict[str, Any]
    pixels: Pixels
    classes: tuple[str, ...]


def write_vit(path: str | Path, stored: StoredVit) -> None:
    """Write a model to one file, whole or not at all."""
    state = {
        "kind": KIND,
        "settings": stored.settings,
        "pixels": stored.pixels.state(),
        "classes": list(stored.classes),
        "weights": dict(stored.model.state_dict()),
    }
    write_checkpoint(path, state)


def read_vit(path: str | Path, device: torch.device | str = "cpu") -> StoredVit:
    """The model of such a file, in evaluation."""
    try:
        saved = read_checkpoint(path)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} is no model, or a damaged one.") from error
    if saved.get("kind") != KIND:
        raise InvalidInputError(f"{path} holds no Vision Transformer.")
    model = make_vit(saved["settings"])
    model.load_state_dict(saved["weights"])
    model.to(device).eval()
    pixels = Pixels.from_state(saved["pixels"])
    return StoredVit(model, saved["settings"], pixels, tuple(saved["classes"]))


def make_vit(settings: Mapping[str, Any]) -> VisionTransformer:
    """The model of settings as they are stored: lists stand for pairs."""
    sides = ("image_size", "patch_size")
    pairs = {name: tuple(settings[name]) for name in sides if isinstance(settings[name], list)}
    return VisionTransformer(**{**settings, **pairs})
