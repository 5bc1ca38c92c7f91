"""Build, store and restore the network of an image encoder."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from attnknn._limits import check_fits
from attnknn.encoders.base import Arrays, Settings
from attnknn.encoders.image.backbone import Backbone, is_backbone
from attnknn.encoders.image.networks import (
    NETWORKS,
    EmbeddingNetwork,
    ResNet9,
    build_network,
)
from attnknn.encoders.image.own_networks import (
    build_own,
    check_imported,
    import_path_of,
    is_import_path,
)
from attnknn.encoders.image.rows import ImageRows, ImageShape
from attnknn.encoders.image.standard_resnet import EXPANSION
from attnknn.encoders.image.training import ImageInference, ImageTraining
from attnknn.encoders.image.weights import COUNTER, load_weights
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.training.devices import seeded
from attnknn.training.views import Views

if TYPE_CHECKING:
    from attnknn.encoders.image.encoder import ImageEncoder

    _Encoder = TypeVar("_Encoder", bound=ImageEncoder)

N_MEASURED = 5_000  # images from which normalization and whitening are computed
STORED = (
    *("network", "widths", "activation", "embed_dim", "image_size", "backbone"),
    *("holdout", "random_state"),
)
MAX_SIDE = 1 << 14
MAX_PIXELS = 1 << 20  # of networks for small images, whose first layers keep the size
MAX_NUMBERS = 1 << 30  # in the widest layer of a batch
PIXELS_ON_CPU = 1 << 18  # in a batch for networks of many layers; larger layers miss the caches
MIN_CHECKED_NUMBERS = 1 << 26


def sample_of(encoder: ImageEncoder, rows: ImageRows) -> Tensor:
    """Images (n, C, H, W) with values from 0 to 1, evenly spread over the rows."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), N_MEASURED)).astype(np.int64))
    may_resize = encoder.image_size is not None
    pixels = rows.take(chosen, encoder.shape_, may_resize=may_resize)
    return torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255


def new_module(encoder: ImageEncoder, shape: ImageShape, sample: Tensor) -> EmbeddingNetwork:
    """The initialized network of `encoder`, with normalization computed from sample images."""
    with seeded(encoder.random_state):
        module = bare_module(encoder, shape, is_pretrained=encoder.weights is None)
    network = module.network
    if encoder.weights is not None:
        module.pretrained = _load(encoder, network)
    _check_frozen(encoder, module)
    if isinstance(network, Backbone):
        _normalize_by(module, *network.normalization)
    else:
        axes = (0, 2, 3)
        spread = sample.std(dim=axes, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)  # a constant channel
        _normalize_by(module, sample.mean(dim=axes), spread)
    if isinstance(network, ResNet9) and encoder.weights is None:
        network.whitening.measure((sample - module.mean) / module.std)
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _load(encoder: ImageEncoder, network: nn.Module) -> frozenset[str]:
    """Load the weights of `encoder`; return the names of the parameters that the file holds."""
    assert encoder.weights is not None
    if isinstance(network, Backbone):
        return network.load(encoder.weights)
    is_named = isinstance(encoder.network, str)
    what = f"{encoder.network!r}" if is_named else "your own network"
    return load_weights(network, what, encoder.weights)


def _check_frozen(encoder: ImageEncoder, module: EmbeddingNetwork) -> None:
    """A frozen network must be pretrained, all of it."""
    is_own = isinstance(encoder.network, nn.Module) or is_import_path(encoder.network)
    if not module.is_frozen or (is_own and encoder.weights is None):  # its weights are its own
        return
    fresh = [n for n, _ in module.network.named_parameters() if n not in module.pretrained]
    if fresh and encoder.weights is None:
        raise InvalidSettingError(
            f"`backbone='frozen'` needs pretrained weights, and {encoder.network!r} has none: "
            "pass a file as `weights`."
        )
    if fresh:
        raise InvalidSettingError(
            f"`backbone='frozen'` needs weights of every layer, and {encoder.weights} has none "
            f"for {fresh[0]!r} of {encoder.network!r}. Use `backbone='tuned'`."
        )


def bare_module(
    encoder: ImageEncoder, shape: ImageShape, *, is_pretrained: bool
) -> EmbeddingNetwork:
    """The network with weights that are not initialized yet, except those of timm."""
    network = _network(encoder, shape, is_pretrained)
    width = getattr(network, "width", None) or _measured_width(network, shape)
    module = EmbeddingNetwork(
        network,
        channels=shape.channels,
        width=width,
        embed_dim=encoder.embed_dim,
        is_frozen=encoder.backbone == "frozen",
    )
    if isinstance(network, Backbone) and network.is_pretrained:
        module.pretrained = frozenset(name for name, _ in network.named_parameters())
    return module


def rows_per_batch(encoder: ImageEncoder) -> int:
    """Number of images to encode at once: fewer than `batch_size` if they or the layers are large.

    Raises `TooLargeError` if there is not enough memory for one image.
    """
    shape, network = encoder.shape_, encoder.network
    channels = 16.0  # of the image itself, while it is resized
    if isinstance(network, str) and network in NETWORKS:
        plan = NETWORKS[network]
        widths = encoder.widths or plan.widths
        expansion = EXPANSION if network.startswith("resnet50") else 1
        channels = max(channels, *(expansion * w / 4**i for i, w in enumerate(widths)))
    n_images, n_pixels, backbone = encoder.computing.batch_size, shape.height * shape.width, None
    if isinstance(encoder.module_.network, Backbone):  # resized inside
        backbone = encoder.module_.network
        n_pixels = max(n_pixels, math.prod(backbone.size))
    if backbone is not None and encoder.module_.mean.device.type == "cpu":
        n_images = min(n_images, PIXELS_ON_CPU // math.prod(backbone.size))
    numbers = int(channels * n_pixels)
    if numbers > MIN_CHECKED_NUMBERS:
        what = f"One image of {shape.height} × {shape.width} pixels in {network!r}"
        check_fits(what, 12 * numbers, "Fit again with a smaller `image_size` or `widths`.")
    return max(1, min(n_images, MAX_NUMBERS // numbers))


def _network(encoder: ImageEncoder, shape: ImageShape, is_pretrained: bool) -> nn.Module:
    if isinstance(encoder.network, nn.Module):
        return copy.deepcopy(encoder.network)
    if is_import_path(encoder.network):
        return build_own(encoder.network)
    if is_backbone(encoder.network):
        return Backbone.named(encoder.network, encoder.size, is_pretrained=is_pretrained)
    min_side = NETWORKS[encoder.network].min_side
    if min(shape.height, shape.width) < min_side:
        raise InvalidInputError(
            f"{encoder.network!r} needs images of at least {min_side} pixels a side, got "
            f"{shape.height} × {shape.width}. Set `image_size` to enlarge them.",
            parameter="image_size",
        )
    if shape.height * shape.width > MAX_PIXELS:
        raise InvalidInputError(
            f"{encoder.network!r} takes images of at most {MAX_PIXELS:,} pixels, got "
            f"{shape.height} × {shape.width}. Set `image_size` to reduce them.",
            parameter="image_size",
        )
    return build_network(encoder.network, shape.channels, encoder.widths, encoder.activation)


def _measured_width(network: nn.Module, shape: ImageShape) -> int:
    """Output size of a user's own network."""
    was_training = network.training
    with torch.no_grad():
        output = network.eval()(torch.zeros(1, shape.channels, shape.height, shape.width))
    network.train(was_training)
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InvalidSettingError(f"`network` must return (B, width) for (B, C, H, W), got {got}.")
    return output.shape[1]


def _normalize_by(module: EmbeddingNetwork, mean: object, std: object) -> None:
    channels = len(module.mean)
    for buffer, values in ((module.mean, mean), (module.std, std)):
        numbers = torch.as_tensor(values, dtype=torch.float32)
        if channels == 1 and len(numbers) == 3:  # a gray image becomes three equal channels
            numbers = numbers.mean(dim=0, keepdim=True)
        buffer.copy_(numbers.view(-1, 1, 1))


def settings_of(encoder: ImageEncoder) -> tuple[Settings, Arrays]:
    """Settings that JSON can hold, and all weights in one flat array."""
    shape, training, network = encoder.shape_, encoder.training, encoder.network
    if not isinstance(network, str):
        sides = shape.channels, shape.height, shape.width
        probe = torch.linspace(-1, 1, math.prod(sides)).view(1, *sides)
        network = import_path_of(copy.deepcopy(encoder.module_.network), probe)
    settings = {
        "encoder": encoder.name,
        "settings": {name: getattr(encoder, name) for name in STORED} | {"network": network},
        "training": None if training is None else training.to_dict(),
        "views": None if encoder.views is None else encoder.views.to_dict(),
        "inference": None if encoder.inference is None else asdict(encoder.inference),
        "shape": [shape.channels, shape.height, shape.width],
    }
    numbers = [value.detach().cpu().flatten() for value in _stored(encoder.module_).values()]
    return settings, {"weights": torch.cat(numbers).numpy().astype(np.float64)}


def restore(cls: type[_Encoder], settings: Settings, arrays: Arrays) -> _Encoder:
    """The fitted encoder; memory for weights is reserved after their number was checked."""
    training, views, inference = (settings[name] for name in ("training", "views", "inference"))
    stored = settings["settings"]
    given: dict[str, Any] = {
        name: tuple(stored[name]) if isinstance(stored[name], list) else stored[name]
        for name in STORED
    }
    encoder = cls(
        **given,
        training=None if training is None else ImageTraining.from_dict(training),
        views=None if views is None else Views.from_dict(views),
        inference=None if inference is None else ImageInference(**inference),
    )
    if not isinstance(encoder.network, str):
        raise ValueError("the network must be a name")
    encoder.check_settings()
    encoder.shape_ = _shape(settings["shape"])
    is_own = is_import_path(encoder.network)
    if is_own:
        check_imported(encoder.network)
    # Without storage, but for a user's code, which may compute with its initial weights.
    with seeded(encoder.random_state) if is_own else torch.device("meta"):
        module = bare_module(encoder, encoder.shape_, is_pretrained=False)
    state = _checked_state(module, arrays["weights"])
    if any(name not in state for name, _ in module.named_buffers()) and not is_own:
        module = bare_module(encoder, encoder.shape_, is_pretrained=False)  # computed buffers
    module.load_state_dict(state, strict=False, assign=True)
    encoder.module_ = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    encoder.module_.eval()
    encoder.width_ = module.width
    encoder.n_features_in_ = int(np.prod(settings["shape"]))
    rows_per_batch(encoder)  # raises if no image can be encoded
    return encoder


def _checked_state(module: EmbeddingNetwork, weights: Any) -> dict[str, Tensor]:
    """The stored weights as a state dict of `module`; their number must match."""
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
    counters = {n: v for n, v in module.state_dict().items() if n.endswith(COUNTER)}
    return state | {name: torch.zeros(v.shape, dtype=v.dtype) for name, v in counters.items()}


def _stored(module: EmbeddingNetwork) -> dict[str, Tensor]:
    """All tensors but the counters of batch norms, which predictions do not need."""
    state = module.state_dict()
    return {name: value for name, value in state.items() if value.is_floating_point()}


def _shape(stored: Any) -> ImageShape:
    are_sizes = isinstance(stored, list) and all(type(side) is int for side in stored)
    if not are_sizes or len(stored) != 3 or stored[0] not in (1, 3):
        raise ValueError("`shape` must be channels, height and width")
    if not all(1 <= side <= MAX_SIDE for side in stored):
        raise ValueError(f"`shape` must be of sides up to {MAX_SIDE}")
    return ImageShape(*stored)
