"""A trained Vision Transformer in one file, with its preprocessing and classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attnknn.errors import InvalidInputError
from attnknn.training.checkpoints import read_checkpoint, write_checkpoint
from attnknn.vit.model import VisionTransformer
from attnknn.vit.training.images import ImagePreprocessor

KIND = "vision transformer"


@dataclass(frozen=True)
class StoredVit:
    """A model with everything that is needed to classify images.

    Attributes
    ----------
    model : VisionTransformer
        The model.
    settings : dict
        Arguments of `VisionTransformer` that the model was built with.
    preprocessor : ImagePreprocessor
        How images become the input of the model.
    classes : tuple of str
        Names of the classes.

    Examples
    --------
    >>> stored = load_vit("OUT/model.safetensors")  # doctest: +SKIP
    >>> stored.classes  # doctest: +SKIP
    ('cat', 'dog')
    """

    model: VisionTransformer
    settings: dict[str, Any]
    preprocessor: ImagePreprocessor
    classes: tuple[str, ...]


def save_vit(path: str | Path, stored: StoredVit) -> None:
    """Write a model to one file, atomically.

    Parameters
    ----------
    path : str or Path
        File to write.
    stored : StoredVit
        The model.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> settings = {"image_size": 8, "dim": 12, "depth": 1, "num_classes": 2}
    >>> preprocessor = ImagePreprocessor((8, 8), (0.5,) * 3, (0.25,) * 3)
    >>> stored = StoredVit(VisionTransformer(**settings), settings, preprocessor, ("cat", "dog"))
    >>> with TemporaryDirectory() as folder:
    ...     save_vit(f"{folder}/model", stored)
    ...     load_vit(f"{folder}/model").classes
    ('cat', 'dog')
    """
    pixels = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(stored.preprocessor).items()
    }
    state = {
        "kind": KIND,
        "settings": stored.settings,
        "pixels": pixels,
        "classes": list(stored.classes),
        "weights": dict(stored.model.state_dict()),
    }
    write_checkpoint(path, state)


def load_vit(path: str | Path, device: torch.device | str = "cpu") -> StoredVit:
    """Read a model that `save_vit` wrote, in evaluation mode.

    Parameters
    ----------
    path : str or Path
        The file.
    device : torch.device or str, default='cpu'
        Device of the model.

    Returns
    -------
    StoredVit
        The model.

    Raises
    ------
    InvalidInputError
        If the file is damaged or is not a Vision Transformer.

    Examples
    --------
    >>> stored = load_vit("OUT/model.safetensors")  # doctest: +SKIP
    """
    try:
        saved = read_checkpoint(path)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} is not a model file, or is damaged.") from error
    if saved.get("kind") != KIND:
        raise InvalidInputError(f"{path} does not contain a Vision Transformer.")
    model = build_vit(saved["settings"])
    model.load_state_dict(saved["weights"])
    model.to(device).eval()
    size, mean, std = (tuple(saved["pixels"][name]) for name in ("size", "mean", "std"))
    preprocessor = ImagePreprocessor(size, mean, std, saved["pixels"]["noise"])
    return StoredVit(model, saved["settings"], preprocessor, tuple(saved["classes"]))


def build_vit(settings: Mapping[str, Any]) -> VisionTransformer:
    """The model of stored settings, in which lists stand for pairs."""
    sides = ("image_size", "patch_size")
    pairs = {name: tuple(settings[name]) for name in sides if isinstance(settings.get(name), list)}
    return VisionTransformer(**{**settings, **pairs})
