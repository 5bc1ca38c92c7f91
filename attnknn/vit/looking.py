"""Which tokens each token looks at, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.vit.functional import choose
from attnknn.vit.layers import ConvNNAttention, KvtAttention
from attnknn.vit.layers.base import HeadedAttention
from attnknn.vit.layers.branching import Branching


@dataclass(frozen=True)
class Looks:
    """What the tokens of one layer look at, the nearest first.

    `tokens` and `weights` are (B, H, N, K); −1 stands for a place outside the grid. Those chosen by
    place stand in raster order. Where every token sees all, only the heaviest are here.
    """

    layer: str
    tokens: Tensor
    weights: Tensor


@torch.no_grad()
def looks_of(model: nn.Module, images: Tensor, n_most: int = 9) -> list[Looks]:
    """What the tokens of `images` look at in each of our layers in `model`, in evaluation.

    Of layers that branch, the part that attends to its nearest is shown; convolutions have nothing
    to show.

    Parameters
    ----------
    n_most
        How many to give of a layer that looks at more.

    >>> from attnknn.vit.model import vit_tiny
    >>> model = vit_tiny("convnn", image_size=32, depth=2, n_neighbors=3)
    >>> [tuple(looks.tokens.shape) for looks in looks_of(model, torch.zeros(1, 3, 32, 32))]
    [(1, 3, 5, 3), (1, 3, 5, 3)]
    """
    found: list[Looks] = []
    layers = {name: module for name, module in model.named_modules() if _is_layer(module)}
    inner = {id(part) for layer in layers.values() for part in layer.modules() if part is not layer}
    hooks = [
        layer.register_forward_pre_hook(_keep(name, found, n_most))
        for name, layer in layers.items()
        if id(layer) not in inner
    ]
    was_training = model.training
    model.eval()
    try:
        model(images)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return found


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, HeadedAttention | Branching)


def _keep(name: str, found: list[Looks], n_most: int) -> Any:
    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        if isinstance(module, Branching):
            part, x = _nearer(module, x)
        else:
            part = module
        if isinstance(part, HeadedAttention):
            found.append(Looks(name, *_looks(part, x, n_most)))

    return keep


def _nearer(layer: Branching, x: Tensor) -> tuple[nn.Module | None, Tensor]:
    """The branch that attends, and its channels."""
    if layer.near is not None:
        return layer.near, x[..., : layer.n_near]
    return layer.other, x


def _looks(layer: HeadedAttention, x: Tensor, n_most: int) -> tuple[Tensor, Tensor]:
    if isinstance(layer, ConvNNAttention):
        choice = layer.choose(x)
        return choice.tokens(), choice.weights(layer.rule)
    query, key, value = layer.projected(x)
    if isinstance(layer, KvtAttention):
        choice = choose(query, key, layer.rule)
        return choice.tokens(), choice.weights(layer.rule)
    # A token's weights are what it gets of values that are the columns of a unit matrix.
    columns = torch.eye(x.shape[1], dtype=value.dtype, device=value.device)
    shown = layer.attend(query, key, columns.expand(*value.shape[:2], -1, -1), None)
    most = shown.topk(min(n_most, shown.shape[-1]))
    return most.indices, most.values
