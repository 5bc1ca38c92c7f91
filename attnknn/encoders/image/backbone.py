"""Pretrained networks of timm, with weights from its hub or from a local file."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn._optional import require
from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name

PREFIX = "timm:"


class Backbone(nn.Module):
    """A network of timm without its classifier.

    Images are resized to the size that it was trained on, and gray ones get three equal channels.
    """

    def __init__(self, name: str, *, is_pretrained: bool = False) -> None:
        super().__init__()
        needs = {"extra": "images", "needed_by": "A pretrained image encoder"}
        timm = require("timm", **needs, instead="'resnet9'")
        bare = name.removeprefix(PREFIX)
        if bare.split(".")[0] not in timm.list_models():
            raise unknown_name("timm model", bare, timm.list_models())
        try:
            self.model = timm.create_model(bare, pretrained=is_pretrained, num_classes=0)
        except (RuntimeError, OSError, ValueError) as error:
            raise InvalidSettingError(
                f"timm cannot build {bare!r}: {_first_line(error)} Pass `weights=` to read the "
                "weights from a file."
            ) from error
        config = timm.data.resolve_model_data_config(self.model)
        self.size: tuple[int, int] = tuple(config["input_size"][1:])
        self.normalization = (config["mean"], config["std"])
        self.width = int(self.model.num_features)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != self.size:
            images = F.interpolate(
                images, self.size, mode="bicubic", align_corners=False, antialias=True
            )
        return self.model(images.expand(-1, 3, -1, -1))

    def load(self, path: str | Path) -> None:
        """Load weights from a file; those of the removed classifier are ignored."""
        path = Path(path)
        tensors = read_weights(path)
        own = self.model.state_dict()
        missing = [name for name in own if name not in tensors]
        different = [n for n, t in own.items() if n in tensors and tensors[n].shape != t.shape]
        if missing or different:
            what = f"has no {missing[0]!r}" if missing else f"has another size of {different[0]!r}"
            raise InvalidInputError(
                f"The weights in {path} do not fit the timm model: the file {what}."
            )
        self.model.load_state_dict({name: tensors[name] for name in own})


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
        f"{_first_line(why)}"
    )


def _first_line(error: object) -> str:
    line = next(iter(str(error).strip().splitlines()), "the file cannot be read")
    return line if line.endswith(".") else f"{line}."
