"""Other layers in the place of a trained model's attention, with its weights."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.layers import ConvNNAttention
from attnknn.vit.layers.base import HeadedAttention
from attnknn.vit.layers.branching import Branching
from attnknn.vit.model.named import make_layer
from attnknn.vit.model.patches import Facts, facts_of_towers, tower_of

OF_TIMM, OF_HUGGING_FACE = ("qkv", "proj", "num_heads"), ("q_proj", "k_proj", "v_proj")
OUTPUTS = ("o_proj", "out_proj")
NORMS = ("q_norm", "k_norm", "norm", "gate")


@dataclass(frozen=True)
class Found:
    """The attention of one block: its weights, and whether its block wants a pair back."""

    queries_keys_values: tuple[nn.Linear, ...]
    output: nn.Linear
    num_heads: int
    gives_pair: bool
    extras: Mapping[str, Tensor]
    attn_drop: float = 0.0
    proj_drop: float = 0.0
    is_causal: bool = False
    scale: float | None = None  # of scores; the usual one if None


def replace_attention(
    model: nn.Module,
    layer: str = "convnn",
    *,
    blocks: Iterable[int] | None = None,
    **settings: Any,
) -> nn.Module:
    """Swap the attention of a ViT of timm or Hugging Face, or of ours, in place; returns the model.

    The trained weights of queries, keys, values and output are kept, and frozen ones stay frozen.
    What a layer has beyond these, such as a kernel over ranks, is kept if the old one had the same,
    or else starts so that it changes nothing: with all tokens as neighbors the model answers as
    before. An attention with other trained parts, or that is handed what the new layer cannot use
    (positions that turn queries, say), is refused.

    Parameters
    ----------
    layer
        A name in `LAYERS` of a layer that has queries, keys and values.
    blocks
        The numbers of the blocks to change, all if None. In a model of images and texts only
        the blocks for images count.
    settings
        Of the layer. How the patches stand is asked of the model; `grid_size` and
        `num_prefix_tokens` correct it, and must be given where the model does not tell.

    >>> from attnknn.vit.model import vit_tiny
    >>> model = replace_attention(vit_tiny(depth=2), "kvt", blocks=[1], n_neighbors=9)
    >>> [type(block.attn).__name__ for block in model.blocks]
    ['Attention', 'KvtAttention']
    """
    there = _places(model)
    chosen = range(len(there)) if blocks is None else _checked(blocks, len(there))
    made = []
    for number in chosen:
        name, found, facts = there[number]
        made.append((name, _layer(layer, found, {**facts, "seed": number}, settings, name)))
    for name, new in made:  # after all of them could be made
        if not name:  # the model is an attention itself
            return new
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, new)
    return model


class Paired(nn.Module):
    """A layer for blocks that expect the attention's weights beside its output: there are none."""

    def __init__(self, layer: nn.Module, is_causal: bool = False) -> None:
        super().__init__()
        self.layer, self.is_causal = layer, is_causal

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        is_causal: bool | None = None,
        **others: Any,
    ) -> tuple[Tensor, None]:
        """(B, N, dim) to the same, and None."""
        for name, value in others.items():
            if not (value is None or isinstance(value, bool)):
                raise InvalidInputError(
                    f"The model hands {name!r} to its attention, which the layer in its place "
                    "cannot use."
                )
        is_causal = self.is_causal if is_causal is None else is_causal
        ahead = is_causal and attention_mask is None  # a mask holds it already
        return self.layer(hidden_states, attention_mask, is_causal=ahead), None


def _places(model: nn.Module) -> list[tuple[str, Found, Facts]]:
    """Each attention by name, and how the patches stand there.

    Where a part of the model has patches, attention elsewhere is of texts, say, and is left.
    """
    inner = {
        f"{name}.{part}" if name else part
        for name, module in model.named_modules()
        if isinstance(module, Branching)
        for part in ("near", "other")
    }
    towers, places = facts_of_towers(model), []
    for name, module in model.named_modules():
        found, tower = _found(module), tower_of(name, towers)
        if found is None or name in inner or (towers and tower is None):
            continue
        places.append((name, found, _own_facts(module) if tower is None else towers[tower]))
    if not places:
        raise InvalidInputError(
            "No attention was found in the model: a module with `qkv` and `proj`, as timm has, or "
            "with `q_proj`, `k_proj`, `v_proj` and `o_proj`, as Hugging Face has."
        )
    return places


def _own_facts(module: nn.Module) -> Facts:
    """What one of our layers was told, where there is no model around it to ask."""
    names = ("num_prefix_tokens", "grid_size")
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _found(module: nn.Module) -> Found | None:
    if isinstance(getattr(module, "qkv", None), nn.Linear) and all(
        hasattr(module, part) for part in OF_TIMM
    ):
        return Found(
            _thirds(module.qkv),  # type: ignore[arg-type]
            module.proj,  # type: ignore[arg-type]
            int(module.num_heads),  # type: ignore[arg-type]
            gives_pair=False,
            extras=_extras(module, ("qkv", "proj")),
            attn_drop=_share(getattr(module, "attn_drop", 0.0)),
            proj_drop=_share(getattr(module, "proj_drop", 0.0)),
            scale=_scale(module),
        )
    output = next((part for part in OUTPUTS if hasattr(module, part)), None)
    if output is None or not all(hasattr(module, part) for part in OF_HUGGING_FACE):
        return None
    heads = getattr(module, "num_attention_heads", None) or getattr(module, "num_heads", None)
    if heads is None:
        return None
    return Found(
        tuple(getattr(module, part) for part in OF_HUGGING_FACE),
        getattr(module, output),
        int(heads),
        gives_pair=True,
        extras=_extras(module, (*OF_HUGGING_FACE, output)),
        attn_drop=_share(getattr(module, "attention_dropout", 0.0)),
        is_causal=getattr(module, "is_causal", False) is True,
        scale=_scale(module),
    )


def _scale(module: nn.Module) -> float | None:
    """By what an attention multiplies its scores, if it says."""
    for name in ("scaling", "scale"):
        scale = getattr(module, name, None)
        if isinstance(scale, int | float | Tensor) and not isinstance(scale, nn.Parameter):
            return float(scale)
    return None


def _extras(module: nn.Module, known: Collection[str]) -> dict[str, Tensor]:
    """The parameters of an attention beyond the maps that every one has, and norms without any."""
    extras: dict[str, Tensor] = {
        name: parameter
        for name, parameter in module.named_parameters()
        if name.split(".")[0] not in known
    }
    for name in NORMS:
        if not isinstance(getattr(module, name, None), nn.Identity | None):
            extras.setdefault(name, torch.empty(0))
    return extras


def _thirds(qkv: nn.Linear) -> tuple[nn.Linear, ...]:
    """Queries, keys and values of one linear map, sharing its numbers."""
    thirds = []
    weights = qkv.weight.chunk(3)
    biases = [None] * 3 if qkv.bias is None else qkv.bias.chunk(3)
    for weight, bias in zip(weights, biases, strict=True):
        third = nn.Linear(1, 1, bias=bias is not None, device="meta")
        third.weight = nn.Parameter(weight.detach(), qkv.weight.requires_grad)
        third.bias = None if bias is None else nn.Parameter(bias.detach(), qkv.bias.requires_grad)
        thirds.append(third)
    return tuple(thirds)


def _share(dropout: Any) -> float:
    return float(dropout.p if isinstance(dropout, nn.Dropout) else dropout)


def _layer(
    name: str, found: Found, facts: Mapping[str, Any], settings: Mapping[str, Any], where: str
) -> nn.Module:
    weights, biases = _merged(found)
    like = found.output.weight
    made = make_layer(
        name,
        weights.shape[1],
        found.num_heads,
        facts=facts,
        settings=settings,
        qkv_bias=any(bias is not None for bias in biases),
        attn_drop=found.attn_drop,
        proj_drop=found.proj_drop,
        proj_bias=found.output.bias is not None,
        device=like.device,
        dtype=like.dtype,
    )
    if not isinstance(made, HeadedAttention) or made.qkv.weight.shape != weights.shape:
        raise InvalidSettingError(
            f"The layer {name!r} with these settings has other weights than the queries, keys and "
            "values of the model, so they cannot be kept."
        )
    if made.reads_prefix and "num_prefix_tokens" not in {*facts, *settings}:
        raise InvalidSettingError(
            f"The layer {name!r} goes by place, and the model does not tell how many tokens stand "
            "before its patches: set `num_prefix_tokens`."
        )
    _keep_weights(made, found, weights, biases)
    _keep_extras(made, found.extras, where)
    _keep_frozen(made, found, where)
    made.train(found.output.training)
    return Paired(made, found.is_causal) if found.gives_pair else made


def _merged(found: Found) -> tuple[Tensor, list[Tensor | None]]:
    """The weights of queries, keys and values as one, and their biases.

    Our layers divide scores by the root of a head's width; any other scale goes into the queries.
    """
    parts = found.queries_keys_values
    weights = [part.weight.detach() for part in parts]
    biases: list[Tensor | None] = [
        None if part.bias is None else part.bias.detach() for part in parts
    ]
    usual = (len(weights[0]) / found.num_heads) ** -0.5
    if found.scale is not None and not math.isclose(found.scale, usual, rel_tol=1e-6):
        weights[0] = weights[0] * (found.scale / usual)
        if biases[0] is not None:
            biases[0] = biases[0] * (found.scale / usual)
    return torch.cat(weights), biases


@torch.no_grad()
def _keep_extras(made: nn.Module, extras: Mapping[str, Tensor], where: str) -> None:
    """What the new layer has too is copied; what would be lost must have changed nothing."""
    if isinstance(made, ConvNNAttention):
        made.start_as_attention()
    own = dict(made.named_parameters())
    for name, values in extras.items():
        if name in own and own[name].shape == values.shape:
            own[name].copy_(values).requires_grad_(values.requires_grad)
        elif name != "kernel" or not bool((values == 1).all()):
            raise InvalidInputError(
                f"The attention {where!r} has a {name!r}, which the new layer has not: it would be "
                "lost."
            )


@torch.no_grad()
def _keep_weights(
    made: HeadedAttention, found: Found, weights: Tensor, biases: Sequence[Tensor | None]
) -> None:
    made.qkv.weight.copy_(weights)
    made.proj.weight.copy_(found.output.weight)
    if made.qkv.bias is not None:
        width = len(weights) // 3
        for start, bias in zip(range(0, 3 * width, width), biases, strict=True):
            made.qkv.bias[start : start + width] = 0.0 if bias is None else bias
    if made.proj.bias is not None:
        made.proj.bias.copy_(found.output.bias)


def _keep_frozen(made: HeadedAttention, found: Found, where: str) -> None:
    """Each parameter is trained, or not, as it was."""
    parts = {"qkv": found.queries_keys_values, "proj": (found.output,)}
    for name, kind in ((name, kind) for name in parts for kind in ("weight", "bias")):
        new = getattr(getattr(made, name), kind)
        old = [getattr(part, kind) for part in parts[name]]
        trains = {tensor.requires_grad for tensor in old if tensor is not None}
        if len(trains) > 1:
            raise InvalidInputError(
                f"Of queries, keys and values in {where!r} some {kind}s are frozen and some are "
                "not, but the new layer has them in one: freeze all or none with `requires_grad_`."
            )
        if new is not None and trains:
            new.requires_grad_(trains.pop())


def _checked(blocks: Iterable[int], n_blocks: int) -> list[int]:
    try:
        numbers = [operator.index(block) for block in blocks]
    except TypeError:
        raise InvalidSettingError(
            f"`blocks` must be numbers of blocks, such as [0, 2], got {blocks!r}."
        ) from None
    for block in numbers:
        if not 0 <= block < n_blocks:
            raise InvalidSettingError(
                f"`blocks` must be numbers from 0 to {n_blocks - 1}, since the model has "
                f"{n_blocks} blocks, got {block}."
            )
    return sorted(set(numbers))
