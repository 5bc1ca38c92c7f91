"""Attention maps: which tokens each token attends to, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.vit.functional import select_neighbors
from attnknn.vit.layers import AttentionLayer, ConvNNAttention, KvtAttention
from attnknn.vit.layers.base import add_causal_mask, check_mask
from attnknn.vit.layers.branching import BranchingLayer
from attnknn.vit.model.replacement import AdaptedLayer


@dataclass(frozen=True)
class AttentionMap:
    """The tokens that each token of one layer attends to.

    Attributes
    ----------
    layer : str
        Name of the module.
    tokens : Tensor of shape (B, H, N, K)
        Token numbers in the order of the model, nearest first, or in raster order if selected by
        position; −1 is a position outside the grid.
    weights : Tensor of shape (B, H, N, K)
        Attention weights of these tokens.

    Examples
    --------
    >>> maps = extract_attention_maps(KvtAttention(12, 3, n_neighbors=2), torch.zeros(1, 5, 12))
    >>> maps[0].weights.shape
    torch.Size([1, 3, 5, 2])
    """

    layer: str
    tokens: Tensor
    weights: Tensor


@torch.no_grad()
def extract_attention_maps(
    model: nn.Module, images: Tensor, n_tokens: int = 9
) -> list[AttentionMap]:
    """Record what tokens attend to in each attention layer of a model.

    Masks that the model passes to a layer count. Of layers with branches, the branch that attends
    to its nearest tokens is recorded; convolutions have no attention.

    Parameters
    ----------
    model : nn.Module
        A model, or a layer, of this package; it is evaluated and keeps its mode.
    images : Tensor
        Input of the model.
    n_tokens : int, default=9
        Number of tokens, those with the largest weights, for layers that attend to all.

    Returns
    -------
    list of AttentionMap
        One for each layer, in the order of computation.

    Examples
    --------
    >>> from attnknn.vit.model import vit_tiny
    >>> model = vit_tiny("convnn", image_size=32, depth=2, n_neighbors=3)
    >>> maps = extract_attention_maps(model, torch.zeros(1, 3, 32, 32))
    >>> [tuple(layer.tokens.shape) for layer in maps]
    [(1, 3, 5, 3), (1, 3, 5, 3)]
    """
    maps: list[AttentionMap] = []
    kinds = (AttentionLayer, BranchingLayer)
    layers = {name: part for name, part in model.named_modules() if isinstance(part, kinds)}
    inner = {id(part) for layer in layers.values() for part in layer.modules() if part is not layer}
    adapted = [part for part in model.modules() if isinstance(part, AdaptedLayer)]
    moved = {id(part.layer): part.num_suffix_tokens for part in adapted}
    hooks = [
        layer.register_forward_pre_hook(
            _make_hook(name, maps, n_tokens, moved.get(id(layer), 0)), with_kwargs=True
        )
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
    return maps


def _make_hook(
    name: str, maps: list[AttentionMap], n_tokens: int, n_moved: int
) -> Callable[..., None]:
    def record(module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]) -> None:
        call = signature(module.forward).bind(*inputs, **settings).arguments
        x, mask = call["x"], call.get("attn_mask")
        mask = add_causal_mask(mask, x) if call.get("is_causal") else mask
        if isinstance(module, BranchingLayer):
            has_near = module.near is not None
            x = x[..., : module.n_near] if has_near else x
            module = module.near if has_near else module.other  # type: ignore[assignment]
        if isinstance(module, AttentionLayer):
            tokens, weights = _attention_of(module, x, mask, n_tokens)
            maps.append(AttentionMap(name, *_in_order_of_model(tokens, weights, n_moved)))

    return record


def _in_order_of_model(tokens: Tensor, weights: Tensor, n_moved: int) -> tuple[Tensor, Tensor]:
    """Undo that `AdaptedLayer` moves the last tokens before the others."""
    if not n_moved:
        return tokens, weights
    in_model = (tokens - n_moved) % tokens.shape[2]
    tokens = torch.where(tokens < 0, tokens, in_model)
    return tokens.roll(-n_moved, 2), weights.roll(-n_moved, 2)


def _attention_of(
    layer: AttentionLayer, x: Tensor, mask: Tensor | None, n_tokens: int
) -> tuple[Tensor, Tensor]:
    """Tokens and weights (B, H, N, K)."""
    mask = check_mask(mask, len(x), layer.num_heads, x.shape[1])
    if isinstance(layer, ConvNNAttention):
        neighbors = layer.select_neighbors(x, mask)
        return neighbors.tokens(), neighbors.weights(layer.config)
    query, key, value = layer.project(x)
    if isinstance(layer, KvtAttention):
        neighbors = select_neighbors(query, key, layer.config, mask=mask)
        return neighbors.tokens(), neighbors.weights(layer.config)
    # With the columns of an identity matrix as values, the outputs are the attention weights.
    columns = torch.eye(x.shape[1], dtype=value.dtype, device=value.device)
    weights = layer.attend(query, key, columns.expand(*value.shape[:2], -1, -1), mask)
    largest = weights.topk(min(n_tokens, weights.shape[-1]))
    return largest.indices, largest.values
