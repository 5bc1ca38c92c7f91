"""An image encoder becomes settings and one flat array of weights, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from attnknn.encoders.base import Arrays, Settings
from attnknn.encoders.image.building import bare_module
from attnknn.encoders.image.rows import ImageShape
from attnknn.encoders.image.training import ImageTraining
from attnknn.errors import InvalidSettingError
from attnknn.training.views import Views

if TYPE_CHECKING:
    from attnknn.encoders.image.encoder import ImageEncoder
    from attnknn.encoders.image.networks.embedding import EmbeddingNetwork

    _Encoder = TypeVar("_Encoder", bound=ImageEncoder)

STORED = (
    *("network", "widths", "activation", "embed_dim", "image_size", "backbone"),
    *("holdout", "batch_size", "workers", "device", "random_state"),
)
LARGEST_SIDE = 1 << 14


def settings_of(encoder: ImageEncoder) -> tuple[Settings, Arrays]:
    """Settings that JSON can hold, and the weights, one after the other in their own order."""
    if not isinstance(encoder.network, str):
        raise InvalidSettingError(
            f"The network `{type(encoder.network).__name__}` is your own code, which a model "
            "folder cannot hold. Embed the images yourself and fit with `encoder='identity'` to "
            "store the classifier."
        )
    shape, training = encoder.shape_, encoder.training
    settings = {
        "encoder": encoder.name,
        "settings": {name: _plain(getattr(encoder, name)) for name in STORED},
        "training": None if training is None else training.to_dict(),
        "views": None if encoder.views is None else encoder.views.to_dict(),
        "shape": [shape.channels, shape.height, shape.width],
    }
    numbers = [value.detach().cpu().flatten() for value in _stored(encoder.module_).values()]
    return settings, {"weights": torch.cat(numbers).numpy().astype(np.float64)}


def restore(cls: type[_Encoder], settings: Settings, arrays: Arrays) -> _Encoder:
    """The fitted encoder; memory for weights is reserved only once their number is right."""
    training, views = settings["training"], settings["views"]
    encoder = cls(
        **{name: _tuple(settings["settings"][name]) for name in STORED},
        training=None if training is None else ImageTraining.from_dict(training),
        views=None if views is None else Views.from_dict(views),
    )
    if not isinstance(encoder.network, str):
        raise ValueError("the network must be a name")
    encoder.check_settings()
    encoder.shape_ = _shape(settings["shape"])
    with torch.device("meta"):  # tensors without numbers
        module = bare_module(encoder, encoder.shape_, is_pretrained=False)
    state = _checked_state(module, arrays["weights"])
    if any(name not in state for name, _ in module.named_buffers()):  # they must be computed
        module = bare_module(encoder, encoder.shape_, is_pretrained=False)
    module.load_state_dict(state, assign=True)
    encoder.module_ = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    encoder.module_.eval()
    encoder.width_ = module.width
    encoder.n_features_in_ = int(np.prod(settings["shape"]))
    return encoder


def _checked_state(module: EmbeddingNetwork, weights: Any) -> dict[str, Tensor]:
    """The stored numbers as the state of `module`, if they are as many as it needs."""
    wanted = _stored(module)
    n_numbers = sum(value.numel() for value in wanted.values())
    if weights.ndim != 1 or len(weights) != n_numbers or not np.isfinite(weights).all():
        raise ValueError(f"the weights must be {n_numbers} finite numbers")
    numbers = torch.from_numpy(weights.astype(np.float32))
    parts = numbers.split([value.numel() for value in wanted.values()])
    state: dict[str, Tensor] = {
        name: part.view(value.shape).clone()
        for (name, value), part in zip(wanted.items(), parts, strict=True)
    }
    counters = {n: v for n, v in module.state_dict().items() if n not in state}
    return state | {name: torch.zeros(v.shape, dtype=v.dtype) for name, v in counters.items()}


def _stored(module: EmbeddingNetwork) -> dict[str, Tensor]:
    """All but the counters of batch norms, which predictions do not need."""
    state = module.state_dict()
    return {name: value for name, value in state.items() if value.is_floating_point()}


def _shape(stored: Any) -> ImageShape:
    are_sizes = isinstance(stored, list) and all(type(side) is int for side in stored)
    if not are_sizes or len(stored) != 3 or stored[0] not in (1, 3):
        raise ValueError("`shape` must be channels, height and width")
    if not all(1 <= side <= LARGEST_SIDE for side in stored):
        raise ValueError(f"`shape` must be of sides up to {LARGEST_SIDE}")
    return ImageShape(*stored)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
