"""The network of an image encoder at its start: built by name, measured on training images."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from attnknn.encoders.image.networks import NETWORKS, build_network
from attnknn.encoders.image.networks.backbone import PREFIX, Backbone
from attnknn.encoders.image.networks.embedding import EmbeddingNetwork
from attnknn.encoders.image.networks.resnet9 import ResNet9
from attnknn.encoders.image.rows import ImageRows, ImageShape
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.training.seeds import seeded

if TYPE_CHECKING:
    from attnknn.encoders.image.encoder import ImageEncoder

N_MEASURED = 5_000  # images that normalization and whitening are measured on


def sample_of(encoder: ImageEncoder, rows: ImageRows) -> Tensor:
    """Some images (n, C, H, W), 0 to 1, evenly spread over the rows."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), N_MEASURED)).astype(np.int64))
    may_resize = encoder.image_size is not None
    pixels = rows.take(chosen, encoder.shape_, may_resize=may_resize)
    return torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255


def new_module(encoder: ImageEncoder, shape: ImageShape, sample: Tensor) -> EmbeddingNetwork:
    """The network of `encoder` at its start, its normalization measured on a sample of images."""
    with seeded(encoder.random_state):
        module = bare_module(encoder, shape, is_pretrained=encoder.weights is None)
    network = module.network
    if isinstance(network, Backbone):
        if encoder.weights is not None:
            network.load(encoder.weights)
        _normalize_by(module, *network.normalization)
    else:
        axes = (0, 2, 3)
        spread = sample.std(dim=axes, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)  # a channel that never varies
        _normalize_by(module, sample.mean(dim=axes), spread)
    if isinstance(network, ResNet9):
        network.whitening.measure((sample - module.mean) / module.std)
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def bare_module(
    encoder: ImageEncoder, shape: ImageShape, *, is_pretrained: bool
) -> EmbeddingNetwork:
    """The network with weights of no meaning yet, except those that timm brings."""
    network = _network(encoder, shape, is_pretrained)
    width = getattr(network, "width", None) or _measured_width(network, shape)
    return EmbeddingNetwork(
        network,
        channels=shape.channels,
        width=width,
        embed_dim=encoder.embed_dim,
        is_frozen=encoder.backbone == "frozen",
    )


def _network(encoder: ImageEncoder, shape: ImageShape, is_pretrained: bool) -> nn.Module:
    if isinstance(encoder.network, nn.Module):
        return copy.deepcopy(encoder.network)
    if encoder.network.startswith(PREFIX):
        return Backbone(encoder.network, is_pretrained=is_pretrained)
    smallest = NETWORKS[encoder.network].smallest
    if min(shape.height, shape.width) < smallest:
        raise InvalidInputError(
            f"{encoder.network!r} needs images of at least {smallest} pixels a side, got "
            f"{shape.height} × {shape.width}. Set `image_size` to enlarge them."
        )
    return build_network(encoder.network, shape.channels, encoder.widths, encoder.activation)


def _measured_width(network: nn.Module, shape: ImageShape) -> int:
    """How many numbers a user's own network gives."""
    was_training = network.training
    with torch.no_grad():
        output = network.eval()(torch.zeros(1, shape.channels, shape.height, shape.width))
    network.train(was_training)
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InvalidSettingError(f"`network` must give (B, width) for (B, C, H, W), got {got}.")
    return output.shape[1]


def _normalize_by(module: EmbeddingNetwork, mean: object, std: object) -> None:
    channels = len(module.mean)
    for buffer, values in ((module.mean, mean), (module.std, std)):
        numbers = torch.as_tensor(values, dtype=torch.float32)
        if channels == 1 and len(numbers) == 3:  # a gray image becomes three equal channels
            numbers = numbers.mean(dim=0, keepdim=True)
        buffer.copy_(numbers.view(-1, 1, 1))
