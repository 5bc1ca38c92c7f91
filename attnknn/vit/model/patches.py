"""Where the tokens of a model's patches stand, as far as its parts tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

CUT_BY = ("patch_embeddings", "patch_embedding", "patch_embed")
TOKENS = ("cls_token", "class_embedding", "distillation_token", "dist_token")
REGISTERS = ("register_tokens", "reg_token")
POSITIONS = ("position_embeddings", "position_embedding", "pos_embed")

Facts = Mapping[str, Any]


def facts_of_towers(model: nn.Module) -> dict[str, Facts]:
    """For each part of a model that makes tokens of patches, by name: `grid_size` and
    `num_prefix_tokens`, each if it can be told.

    timm's models cut patches themselves; in Hugging Face's the embeddings do, for their parent.
    """
    towers: dict[str, Facts] = {}
    for name, module in model.named_modules():
        if not any(isinstance(getattr(module, part, None), nn.Module) for part in CUT_BY):
            continue
        tells = isinstance(getattr(module, "num_prefix_tokens", None), int)
        tower = name if tells or not name else name.rpartition(".")[0]
        towers.setdefault(tower, _facts(module, model.get_submodule(tower)))
    return towers


def tower_of(name: str, towers: Mapping[str, Facts]) -> str | None:
    """The innermost tower that the module `name` is part of."""
    inside = [tower for tower in towers if not tower or f"{name}.".startswith(f"{tower}.")]
    return max(inside, key=len, default=None)


def _facts(embeddings: nn.Module, tower: nn.Module) -> Facts:
    grid = _grid_size(embeddings, tower)
    n_prefix = getattr(embeddings, "num_prefix_tokens", None)
    if not isinstance(n_prefix, int):
        n_prefix = _n_prefix(embeddings, grid)
    known = {"grid_size": grid, "num_prefix_tokens": n_prefix}
    return {name: value for name, value in known.items() if value is not None}


def _grid_size(embeddings: nn.Module, tower: nn.Module) -> tuple[int, int] | None:
    for part in CUT_BY:
        grid = getattr(getattr(embeddings, part, None), "grid_size", None)
        if isinstance(grid, tuple):
            return grid
    for owner in (embeddings, tower):
        config = getattr(owner, "config", None)
        sides = [_sides(getattr(config, name, None)) for name in ("image_size", "patch_size")]
        if None not in sides:
            (height, width), (rows, columns) = sides  # type: ignore[misc]
            return height // rows, width // columns
    return None


def _n_prefix(embeddings: nn.Module, grid: tuple[int, int] | None) -> int | None:
    """The tokens that are there, if they fit the number of positions; None where they do not."""
    n_registers = _n_tokens(embeddings, REGISTERS)
    n_prefix = _n_tokens(embeddings, TOKENS) + n_registers
    n_positions = _n_positions(embeddings)
    if n_positions is None or grid is None:
        return n_prefix or None
    n_others = n_positions - grid[0] * grid[1]
    return n_prefix if n_others in (n_prefix, n_prefix - n_registers) else None


def _n_tokens(embeddings: nn.Module, names: tuple[str, ...]) -> int:
    tokens = [getattr(embeddings, name, None) for name in names]
    return sum(1 if t.dim() == 1 else t.shape[-2] for t in tokens if isinstance(t, Tensor))


def _n_positions(embeddings: nn.Module) -> int | None:
    for name in POSITIONS:
        positions = getattr(embeddings, name, None)
        if isinstance(positions, nn.Embedding):
            return positions.num_embeddings
        if isinstance(positions, Tensor):
            return positions.shape[-2]
    return None


def _sides(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int):
        return value, value
    return tuple(value) if isinstance(value, list | tuple) and len(value) == 2 else None
