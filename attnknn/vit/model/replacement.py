"""Replace the attention of a trained model by another layer and keep its weights."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.layers import AttentionLayer, ConvNNAttention
from attnknn.vit.layers.branching import BranchingLayer
from attnknn.vit.model.factory import make_layer

NORMS = ("q_norm", "k_norm", "norm", "gate")
HEADS = ("num_attention_heads", "num_heads")
DROPOUTS = ("attn_drop", "attention_dropout", "dropout_prob", "dropout")
WITH_POSITION_BIAS_ONLY = ("resolution",)  # inputs that only relative position biases read
PATCH_EMBEDDINGS = ("patch_embeddings", "patch_embedding", "patch_embed")
CLASS_TOKENS = ("cls_token", "class_embedding", "distillation_token", "dist_token")
REGISTERS = ("register_tokens", "reg_token")
DETECTION_TOKENS = ("detection_tokens", "det_token")  # after the patches
TIMM_INPUTS = {"x", "attn_mask", "is_causal"}
POSITION_INPUTS = ("rope", "position_embeddings", "rotary_pos_emb", "shared_rel_pos")
POSITION_KINDS = ("rope", "rotary", "rel_pos")  # in names of modules
N_PROBES = 6  # tokens with which an attention module is tested
POSITION_EMBEDDINGS = ("position_embeddings", "position_embedding", "pos_embed")

Geometry = Mapping[str, Any]  # grid size and number of prefix and suffix tokens, each if known


@dataclass(frozen=True)
class Structure:
    """Names of the parts of an attention module in some library; dots separate submodules."""

    projections: tuple[str, ...]  # queries, keys and values, or all three in one
    outputs: tuple[str, ...]  # alternatives
    inner: str = ""  # the submodule that has heads, scale and dropout of the weights
    dropout: str = ""
    returns_tuple: bool | None = None  # None is both, depending on the version


TIMM = Structure(("qkv",), ("proj",), dropout="proj_drop", returns_tuple=False)
HUGGING_FACE = Structure(("q_proj", "k_proj", "v_proj"), ("o_proj", "out_proj"), returns_tuple=True)
NESTED = Structure(  # YOLOS, and DINOv2 and ViT before version 5 of transformers
    ("attention.query", "attention.key", "attention.value"),
    ("output.dense",),
    inner="attention",
    dropout="output.dropout",
)
STRUCTURES = (TIMM, HUGGING_FACE, NESTED)


def replace_attention(
    model: nn.Module,
    layer: str = "convnn",
    *,
    blocks: Iterable[int] | None = None,
    **settings: Any,
) -> nn.Module:
    """Replace the attention of a ViT of timm, Hugging Face or this package in place.

    Models whose attention modules have the same structure, such as DINOv2 and YOLOS, are recognized
    too.

    The weights of queries, keys, values and output are kept, and frozen parameters stay frozen.
    Other parameters of the new layer, such as a kernel over ranks, are copied if the old layer had
    the same, and are otherwise initialized so that they have no effect: with all tokens as
    neighbors the outputs do not change.

    Parameters
    ----------
    model : nn.Module
        The model, or a single attention module.
    layer : str, default='convnn'
        Name in `LAYERS` of a layer with queries, keys and values.
    blocks : iterable of int, default=None
        Numbers of the blocks to change, from 0; None is all. In a model of images and texts, only
        blocks for images are counted.
    **settings : Any
        Settings of the layer. `grid_size` and `num_prefix_tokens` override those read from the
        model, and are required where the model does not state them. Detection tokens after the
        patches count as prefix tokens.

    Returns
    -------
    nn.Module
        The model; the new layer if `model` is itself an attention module.

    Raises
    ------
    InvalidInputError
        If there is no attention, or one that is more than softmax attention of tokens: with further
        trained parts, rotary positions, windows or other inputs, which would be lost.
    InvalidSettingError
        If the layer cannot take the weights, or a block number is out of range.

    Examples
    --------
    >>> from attnknn.vit.model import vit_tiny
    >>> model = replace_attention(vit_tiny(depth=2), "kvt", blocks=[1], n_neighbors=9)
    >>> [type(block.attn).__name__ for block in model.blocks]
    ['Attention', 'KvtAttention']
    """
    found = _find_all(model)
    chosen = range(len(found)) if blocks is None else _check_blocks(blocks, len(found))
    made = []
    for number in chosen:
        old, geometry = found[number]
        _check_is_softmax_attention(old, model)
        made_layer = _make_layer(layer, old, {**geometry, "seed": number}, settings)
        made.append((old.name, _adapt(made_layer, old, geometry.get("num_suffix_tokens", 0))))
    for name, new in made:  # only after all of them could be made
        if not name:
            return new
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, new)
    return model


@dataclass(frozen=True)
class FoundAttention:
    """The attention module of one block and its weights."""

    name: str
    projections: tuple[nn.Linear, ...]  # queries, keys and values, or all three in one
    output: nn.Linear
    num_heads: int
    is_timm: bool
    returns_tuple: bool
    extras: Mapping[str, Tensor]
    attn_drop: float = 0.0
    proj_drop: float = 0.0
    is_causal: bool = False
    scale: float | None = None  # of scores; 1 / √d if None

    def stacked(self, kind: str) -> list[Tensor | None]:
        """Weights or biases of queries, keys and values, scaled for scores divided by √d."""
        parts = [getattr(part, kind) for part in self.projections]
        if len(parts) == 1:
            parts = [None] * 3 if parts[0] is None else list(parts[0].chunk(3))
        if self.scale is not None and parts[0] is not None:
            default = (len(parts[0]) / self.num_heads) ** -0.5
            if not math.isclose(self.scale, default, rel_tol=1e-6):
                parts[0] = parts[0] * (self.scale / default)
        return [None if part is None else part.detach() for part in parts]


class AdaptedLayer(nn.Module):
    """A layer with the inputs and outputs of the attention module that it replaces.

    Blocks may expect (output, attention weights); the weights are None. Tokens after the patches
    are moved before them for the layer, for which they are prefix tokens.
    """

    def __init__(
        self,
        layer: nn.Module,
        *,
        is_causal: bool = False,
        returns_tuple: bool = True,
        num_suffix_tokens: int = 0,
    ) -> None:
        super().__init__()
        self.layer, self.is_causal, self.returns_tuple = layer, is_causal, returns_tuple
        self.num_suffix_tokens = num_suffix_tokens

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        is_causal: bool | None = None,
        **others: Any,
    ) -> Tensor | tuple[Tensor, None]:
        """Tokens (B, N, dim) to tokens of the same shape; with None if a tuple is expected."""
        if isinstance(others.get("attn_mask"), Tensor):  # timm's name
            attention_mask = others.pop("attn_mask")
        for name, value in others.items():
            if name not in WITH_POSITION_BIAS_ONLY and not isinstance(value, bool | None):
                raise InvalidInputError(
                    f"The model passes {name!r} to its attention, which the new layer cannot use."
                )
        is_causal = self.is_causal if is_causal is None else is_causal
        is_causal = is_causal and attention_mask is None  # a mask includes it already
        n_moved = self.num_suffix_tokens
        if n_moved:
            hidden_states = hidden_states.roll(n_moved, 1)
            if attention_mask is not None:
                attention_mask = attention_mask.roll((n_moved, n_moved), (-2, -1))
        attended = self.layer(hidden_states, attention_mask, is_causal=is_causal)
        attended = attended.roll(-n_moved, 1) if n_moved else attended
        return (attended, None) if self.returns_tuple else attended


def _find_all(model: nn.Module) -> list[tuple[FoundAttention, Geometry]]:
    """Each attention module with its geometry; only in parts with patches, if there are any."""
    inner = {
        f"{name}.{part}" if name else part
        for name, module in model.named_modules()
        if isinstance(module, BranchingLayer | AdaptedLayer)
        for part in ("near", "other", "layer")
    }
    towers, found = _find_towers(model), []
    for name, module in model.named_modules():
        attention = _find(name, module)
        inside = [tower for tower in towers if not tower or f"{name}.".startswith(f"{tower}.")]
        if attention is None or name in inner or (towers and not inside):
            continue
        geometry = towers[max(inside, key=len)] if inside else _own_geometry(module)
        found.append((attention, geometry))
    if not found:
        raise InvalidInputError(
            "No attention was found in the model: a module with `qkv` and `proj`, as timm has, or "
            "with `q_proj`, `k_proj`, `v_proj` and `o_proj`, or with `attention.query`, "
            "`attention.key`, `attention.value` and `output.dense`, as Hugging Face has."
        )
    return found


def _own_geometry(module: nn.Module) -> Geometry:
    """The settings of one of our layers outside of a model."""
    names = ("num_prefix_tokens", "grid_size")
    layer = module.layer if isinstance(module, AdaptedLayer) else module
    known = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
    return {**known, "num_suffix_tokens": getattr(module, "num_suffix_tokens", 0)}


def _find(name: str, module: nn.Module) -> FoundAttention | None:
    if isinstance(module, AdaptedLayer):
        own = _find(name, module.layer)
        return own and replace(
            own, is_timm=False, is_causal=module.is_causal, returns_tuple=module.returns_tuple
        )
    found = (_match(name, module, structure) for structure in STRUCTURES)
    return next((attention for attention in found if attention is not None), None)


def _match(name: str, module: nn.Module, structure: Structure) -> FoundAttention | None:
    linear = {
        path: part
        for path in (*structure.projections, *structure.outputs)
        if isinstance(part := _part(module, path), nn.Linear)
    }
    output = next((path for path in structure.outputs if path in linear), None)
    attention = _part(module, structure.inner) if structure.inner else module
    heads = next((n for key in HEADS if (n := getattr(attention, key, None))), None)
    if output is None or heads is None or not {*structure.projections} <= {*linear}:
        return None
    is_timm = structure is TIMM and {*signature(module.forward).parameters} <= TIMM_INPUTS
    returns_tuple = structure.returns_tuple
    if returns_tuple is None:
        returns_tuple = _returns_tuple(module, linear[output])
    return FoundAttention(
        name,
        tuple(linear[path] for path in structure.projections),
        linear[output],
        int(heads),
        is_timm=is_timm,
        returns_tuple=returns_tuple,
        extras=_extras(module, attention, (*structure.projections, output)),
        attn_drop=_rate(attention, DROPOUTS),
        proj_drop=_rate(module, (structure.dropout,)),
        is_causal=structure is not TIMM and getattr(attention, "is_causal", False) is True,
        scale=_scale(attention),
    )


def _part(module: nn.Module, path: str) -> Any:
    """A submodule or attribute, or None."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _returns_tuple(module: nn.Module, output: nn.Linear) -> bool:
    """Whether an attention module returns a tuple, which depends on the version of its library."""
    try:
        return isinstance(_run(module, output.weight.new_zeros(1, 1, output.out_features)), tuple)
    except Exception:  # see `_check_is_softmax_attention`
        return False


@torch.no_grad()
def _run(module: nn.Module, tokens: Tensor) -> Any:
    """The output in evaluation mode, without a change of the module."""
    is_training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        return module(tokens)
    finally:
        for part, mode in is_training.items():
            part.training = mode


def _check_is_softmax_attention(old: FoundAttention, model: nn.Module) -> None:
    """Raise an error if a module of another library computes anything else, which would be lost.

    If it has further parameters, `_copy_extras` names them.
    """
    module, weight = model.get_submodule(old.name), old.output.weight
    is_ours = isinstance(module, AttentionLayer | AdaptedLayer)
    if is_ours or old.extras or weight.device.type == "meta":
        return
    _check_takes_no_positions(old, model)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, N_PROBES, weight.shape[1], generator=generator).to(weight)
    try:
        given = _run(module, tokens)
    except Exception as error:
        raise InvalidInputError(
            f"The attention {old.name!r} cannot be replaced: called with tokens (B, N, "
            f"{weight.shape[1]}) alone, it raises {type(error).__name__} ({error}). Only attention "
            "that takes tokens can be replaced, not one that takes maps (B, H, W, dim) or sizes."
        ) from error
    given = given[0] if isinstance(given, tuple) else given
    plain = _make_layer("attention", old, {}, {}).eval()
    with torch.no_grad():
        expected = [plain(tokens, is_causal=is_causal) for is_causal in {False, old.is_causal}]
    if not any(_is_close(given, each) for each in expected):
        raise InvalidInputError(
            f"The attention {old.name!r} computes something else than softmax attention of its "
            "queries, keys and values, such as windows: it would be lost."
        )


def _check_takes_no_positions(old: FoundAttention, model: nn.Module) -> None:
    """Some models make rotary or relative positions once and pass them to each attention."""
    attention = model.get_submodule(old.name)
    taken = sorted({*POSITION_INPUTS} & {*signature(attention.forward).parameters})
    others = (
        f"{name.rpartition('.')[2]} {type(part).__name__}".lower()
        for name, part in model.named_modules()
        if not any(type(inner) is type(attention) for inner in part.modules())
    )
    makes_positions = any(kind in part for part in others for kind in POSITION_KINDS)
    if taken and makes_positions:
        raise InvalidInputError(
            f"The attention {old.name!r} uses rotary or relative positions ({taken[0]!r}), which "
            "the new layer does not: they would be lost."
        )


def _is_close(given: Any, expected: Tensor) -> bool:
    if not isinstance(given, Tensor) or given.shape != expected.shape:
        return False
    tolerance = max(5e-3, 8 * torch.finfo(expected.dtype).eps)  # of products in low precision
    atol = tolerance * float(expected.abs().max().nan_to_num())
    return torch.allclose(given, expected, rtol=0, atol=atol, equal_nan=True)


def _scale(module: nn.Module) -> float | None:
    """The factor of the scores, if the module states it."""
    for name in ("scaling", "scale"):
        scale = getattr(module, name, None)
        if isinstance(scale, int | float | Tensor) and not isinstance(scale, nn.Parameter):
            return float(scale)
    return None


def _extras(module: nn.Module, attention: nn.Module, known: Collection[str]) -> dict[str, Tensor]:
    """Parameters besides the projections, and norms even without parameters."""
    extras: dict[str, Tensor] = {
        name: parameter
        for name, parameter in module.named_parameters()
        if name.rpartition(".")[0] not in known
    }
    for name in NORMS:
        if not isinstance(getattr(attention, name, None), nn.Identity | None):
            extras.setdefault(name, torch.empty(0))
    return extras


def _rate(module: nn.Module, names: Iterable[str]) -> float:
    """The rate of the first dropout that the module has."""
    for dropout in (_part(module, name) for name in names):
        if isinstance(dropout, nn.Dropout):
            return dropout.p
        if isinstance(dropout, int | float):
            return float(dropout)
    return 0.0


def _make_layer(
    name: str, old: FoundAttention, from_model: Mapping[str, Any], settings: Mapping[str, Any]
) -> AttentionLayer:
    weights, biases = torch.cat(old.stacked("weight")), old.stacked("bias")  # type: ignore[arg-type]
    made = make_layer(
        name,
        weights.shape[1],
        old.num_heads,
        from_model=from_model,
        settings=settings,
        qkv_bias=any(bias is not None for bias in biases),
        attn_drop=old.attn_drop,
        proj_drop=old.proj_drop,
        proj_bias=old.output.bias is not None,
        device=old.output.weight.device,
        dtype=old.output.weight.dtype,
    )
    if not isinstance(made, AttentionLayer) or made.qkv.weight.shape != weights.shape:
        raise InvalidSettingError(
            f"The layer {name!r} with these settings has no queries, keys and values of the shape "
            "in the model, so their weights cannot be kept."
        )
    if made.uses_prefix_count and "num_prefix_tokens" not in {*from_model, *settings}:
        raise InvalidSettingError(
            f"The layer {name!r} depends on positions, and the model does not state how many "
            "tokens precede its patches: set `num_prefix_tokens`."
        )
    with torch.no_grad():
        made.qkv.weight.copy_(weights)
        made.proj.weight.copy_(old.output.weight)
        if made.qkv.bias is not None:
            for part, bias in zip(made.qkv.bias.chunk(3), biases, strict=True):
                part.copy_(torch.zeros_like(part) if bias is None else bias)
        if made.proj.bias is not None:
            made.proj.bias.copy_(old.output.bias)
    _copy_extras(made, old)
    _copy_requires_grad(made, old)
    made.train(old.output.training)
    return made


def _adapt(made: AttentionLayer, old: FoundAttention, n_suffix: int) -> nn.Module:
    """The layer with the inputs and outputs of the module that it replaces."""
    n_moved = n_suffix if made.uses_prefix_count else 0
    if old.is_timm and not n_moved:
        return made
    return AdaptedLayer(
        made,
        is_causal=old.is_causal,
        returns_tuple=old.returns_tuple,
        num_suffix_tokens=n_moved,
    )


@torch.no_grad()
def _copy_extras(made: nn.Module, old: FoundAttention) -> None:
    """Copy further parameters that the new layer has too; refuse to lose any with an effect."""
    if isinstance(made, ConvNNAttention):
        made.init_as_attention()
    own = dict(made.named_parameters())
    for name, values in old.extras.items():
        if name in own and own[name].shape == values.shape:
            own[name].copy_(values).requires_grad_(values.requires_grad)
        elif name != "kernel" or not bool((values == 1).all()):
            raise InvalidInputError(
                f"The attention {old.name!r} has a {name!r}, which the new layer does not have: it "
                "would be lost."
            )


def _copy_requires_grad(made: AttentionLayer, old: FoundAttention) -> None:
    parts = {"qkv": old.projections, "proj": (old.output,)}
    for name, kind in ((name, kind) for name in parts for kind in ("weight", "bias")):
        new = getattr(getattr(made, name), kind)
        given = [getattr(part, kind) for part in parts[name]]
        flags = {tensor.requires_grad for tensor in given if tensor is not None}
        if len(flags) > 1:
            raise InvalidInputError(
                f"In {old.name!r} some {kind}s of queries, keys and values are frozen and some are "
                "not, but the new layer has them in one tensor: freeze all or none with "
                "`requires_grad_`."
            )
        if new is not None and flags:
            new.requires_grad_(flags.pop())


def _check_blocks(blocks: Iterable[int], n_blocks: int) -> list[int]:
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


def _find_towers(model: nn.Module) -> dict[str, Geometry]:
    """The parts of a model that embed patches, by name, with their geometry.

    timm's models embed patches themselves; in Hugging Face's a submodule does it for its parent.
    """
    towers: dict[str, Geometry] = {}
    for name, module in model.named_modules():
        if not any(isinstance(getattr(module, part, None), nn.Module) for part in PATCH_EMBEDDINGS):
            continue
        n_prefix = getattr(module, "num_prefix_tokens", None)
        is_tower = isinstance(n_prefix, int) or not name
        tower = name if is_tower else name.rpartition(".")[0]
        grid = _find_grid_size(module, model.get_submodule(tower))
        n_suffix = _count_tokens(module, DETECTION_TOKENS)
        if not isinstance(n_prefix, int):
            n_prefix = _count_prefix(module, grid, n_suffix)
        known = {"grid_size": grid, "num_prefix_tokens": n_prefix, "num_suffix_tokens": n_suffix}
        towers.setdefault(tower, {key: value for key, value in known.items() if value is not None})
    return towers


def _find_grid_size(embeddings: nn.Module, tower: nn.Module) -> tuple[int, int] | None:
    for part in PATCH_EMBEDDINGS:
        patches = getattr(embeddings, part, None)
        for name in ("grid_size", "patches_resolution"):  # of timm, and of DINOv2's own code
            if isinstance(grid := getattr(patches, name, None), tuple):
                return grid
    for owner in (embeddings, tower):
        config = getattr(owner, "config", None)
        sides = [_pair(getattr(config, name, None)) for name in ("image_size", "patch_size")]
        if None not in sides:
            (height, width), (rows, columns) = sides  # type: ignore[misc]
            return height // rows, width // columns
    return None


def _count_prefix(embeddings: nn.Module, grid: tuple[int, int] | None, n_suffix: int) -> int | None:
    """Tokens besides patches, which a layer sees before them.

    None if they do not match the number of positions.
    """
    n_registers = _count_tokens(embeddings, REGISTERS)
    n_prefix = _count_tokens(embeddings, CLASS_TOKENS) + n_registers + n_suffix
    n_positions = _count_positions(embeddings)
    if n_positions is None or grid is None:
        return n_prefix or None
    n_others = n_positions - grid[0] * grid[1]
    return n_prefix if n_others in (n_prefix, n_prefix - n_registers) else None


def _count_tokens(embeddings: nn.Module, names: tuple[str, ...]) -> int:
    tokens = [getattr(embeddings, name, None) for name in names]
    return sum(1 if t.dim() == 1 else t.shape[-2] for t in tokens if isinstance(t, Tensor))


def _count_positions(embeddings: nn.Module) -> int | None:
    for name in POSITION_EMBEDDINGS:
        positions = getattr(embeddings, name, None)
        if isinstance(positions, nn.Embedding):
            return positions.num_embeddings
        if isinstance(positions, Tensor):
            return positions.shape[-2]
    return None


def _pair(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int):
        return value, value
    return tuple(value) if isinstance(value, list | tuple) and len(value) == 2 else None
