"""Attention of each token to its nearest tokens: select, weight, and combine by rank."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.amp import is_autocast_available

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional import cpu, reference
from attnknn.vit.functional.grid import (
    Grid,
    nearest_positions,
    patch_positions,
    spread_evenly,
    token_coordinates,
    token_positions,
)
from attnknn.vit.functional.reference import SIMILARITIES, WEIGHTS, Coordinates, compute_weights

FEATURES = ("Col", "Loc", "Loc_Col")


@dataclass(frozen=True)
class NeighborConfig:
    """How the neighbors of a token are selected and weighted.

    Parameters
    ----------
    n_neighbors : int
        Number of neighbors K of each token.
    similarity : {'matmul', 'cosine', 'euclidean'}, default='matmul'
        Similarity of features.
    similarity_type : {'Col', 'Loc', 'Loc_Col'}, default='Col'
        What is compared: features, positions on the patch grid, or both.
    weights : {'softmax', 'raw', 'ones'}, default='softmax'
        Weights of the neighbors: softmax of the scores, the scores themselves (for 'euclidean'
        1 / (1 + distance)), or all one.
    feature_weight : float, default=0.5
        Weight of features under 'Loc_Col', above 0 and at most 1; the rest is the weight of
        positions.

    Examples
    --------
    >>> NeighborConfig(9, similarity="cosine").weights
    'softmax'
    """

    n_neighbors: int
    similarity: str = "matmul"
    similarity_type: str = "Col"
    weights: str = "softmax"
    feature_weight: float = 0.5

    def __post_init__(self) -> None:
        check_at_least("n_neighbors", self.n_neighbors, 1)
        check_choice("similarity", self.similarity, SIMILARITIES)
        check_choice("similarity_type", self.similarity_type, FEATURES)
        check_choice("weights", self.weights, WEIGHTS)
        if not 0 <= self.feature_weight <= 1:
            raise InvalidSettingError(
                f"`feature_weight` must be between 0 and 1, got {self.feature_weight!r}."
            )
        if self.similarity_type == "Loc_Col" and self.feature_weight == 0:
            raise InvalidSettingError(
                "With `similarity_type='Loc_Col'`, `feature_weight` must be above 0, got 0. To "
                "select by position alone, use `similarity_type='Loc'`, which defines how ties "
                "are broken."
            )


@dataclass(frozen=True)
class TokenNeighbors:
    """The selected neighbors of each token, with their scores.

    Attributes
    ----------
    scores : Tensor of shape (B, H, N, K)
        Similarity scores; −inf marks a missing neighbor.
    index : Tensor of shape (B, H, N, K) or (B, H, N, K - 1)
        Positions in `candidates`, or token numbers if that is None.
    candidates : Tensor of shape (M,) or None
        Tokens that could be selected; −1 is a token of zeros outside the grid.
    includes_self : bool
        Whether each token is its own first neighbor, with a score but without an index.

    Examples
    --------
    >>> tokens = torch.eye(3)[None, None]
    >>> select_neighbors(tokens, tokens, NeighborConfig(1)).tokens().flatten()
    tensor([0, 1, 2])
    """

    scores: Tensor
    index: Tensor
    candidates: Tensor | None = None
    includes_self: bool = False

    def tokens(self) -> Tensor:
        """Token numbers of the neighbors, a token itself first if it is included.

        Returns
        -------
        Tensor of shape (B, H, N, K)
            −1 stands for a position outside the grid.
        """
        chosen = self.index if self.candidates is None else self.candidates[self.index]
        if not self.includes_self:
            return chosen
        itself = torch.arange(chosen.shape[2], device=chosen.device)[:, None]
        return torch.cat([itself.expand(*chosen.shape[:3], 1), chosen], -1)

    def weights(self, config: NeighborConfig) -> Tensor:
        """Attention weights of the neighbors.

        Parameters
        ----------
        config : NeighborConfig
            The configuration that the neighbors were selected with.

        Returns
        -------
        Tensor of shape (B, H, N, K)
            In the order of `tokens`.
        """
        similarity = "euclidean" if config.similarity_type == "Loc" else config.similarity
        return compute_weights(self.scores, config.weights, similarity)


def convnn_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    kernel: Tensor | None,
    config: NeighborConfig,
    *,
    candidates: Tensor | None = None,
    grid: Grid | None = None,
    position_kernel: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention to the nearest tokens, each rank with its own kernel tap.

    Parameters
    ----------
    query, key : Tensor of shape (B, H, N, d)
        Queries and keys.
    value : Tensor of shape (B, H, N, E) or None
        Values; without them only positions are combined.
    kernel : Tensor of shape (C, K) or (C, E, K), or None
        One tap per rank: depthwise, or mixing channels. None is a kernel of ones.
    config : NeighborConfig
        How neighbors are selected and weighted.
    candidates : Tensor of shape (M,), default=None
        Tokens that can be selected, all if None. With candidates, each token is its own first
        neighbor and selects the others among the rest.
    grid : Grid, default=None
        Arrangement of the patches; required where positions are compared or combined.
    position_kernel : Tensor of shape (C, 2, K), default=None
        Kernel that combines the coordinates of the neighbors; the result is added.
    mask : Tensor, default=None
        Broadcast to (B, H, N, N): boolean, True where a token can be selected, or floats that are
        added to the scores (only with softmax weights).
    dropout : float, default=0.0
        Probability with which each neighbor is dropped.

    Returns
    -------
    Tensor of shape (B, H, N, C)
        The combined values.

    Raises
    ------
    InvalidSettingError
        If there are fewer tokens than neighbors, or a grid is missing.

    Examples
    --------
    >>> tokens = torch.eye(3)[None, None]
    >>> convnn_attention(tokens, tokens, tokens, None, NeighborConfig(1))[0, 0]
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    neighbors = select_neighbors(query, key, config, candidates=candidates, grid=grid, mask=mask)
    weights = F.dropout(neighbors.weights(config), dropout)
    combined = []
    with _without_autocast(query):
        if value is not None:
            combined.append(_combine_values(value, neighbors, weights, kernel))
        if position_kernel is not None:
            at = token_coordinates(_require(grid), weights.device)
            combined.append(_combine_positions(at, neighbors, weights, position_kernel))
    return sum(combined[1:], combined[0]).to(query.dtype)


def select_neighbors(
    query: Tensor,
    key: Tensor,
    config: NeighborConfig,
    *,
    candidates: Tensor | None = None,
    grid: Grid | None = None,
    mask: Tensor | None = None,
) -> TokenNeighbors:
    """Select the nearest tokens of each token.

    Parameters
    ----------
    query, key : Tensor of shape (B, H, N, d)
        Queries and keys.
    config : NeighborConfig
        How neighbors are selected.
    candidates, grid, mask : default=None
        As in `convnn_attention`.

    Returns
    -------
    TokenNeighbors
        The neighbors of each token, nearest first; by position alone, in raster order.

    Examples
    --------
    >>> tokens = torch.eye(3)[None, None]
    >>> select_neighbors(tokens, tokens, NeighborConfig(2)).scores.shape
    torch.Size([1, 1, 3, 2])
    """
    if mask is not None and mask.dtype != torch.bool and config.weights != "softmax":
        raise InvalidSettingError(
            "A mask of floats, which are added to the scores, needs `weights='softmax'`, got "
            f"{config.weights!r}. Use a boolean mask, True where a token can be selected."
        )
    # Low-precision scores tie, and the choice among ties would depend on the machine.
    with _without_autocast(query):
        query, key = _precise(query), _precise(key)
        if config.similarity_type == "Loc":
            return _select_by_position(query, config, candidates, _require(grid), mask)
        return _select_by_score(query, key, config, candidates, grid, mask)


def select_backend(
    features: Tensor, similarity: str = "matmul", mask: Tensor | None = None
) -> ModuleType:
    """The `reference` or the `cpu` implementation of `nearest` and `combine`.

    `cpu` orders keys by squared distances, to which no float mask can be added, and has no
    gradient for a mask.
    """
    if features.device.type != "cpu":
        return reference
    if mask is None or mask.dtype == torch.bool:
        return cpu
    return reference if similarity == "euclidean" or mask.requires_grad else cpu


def _select_by_score(
    query: Tensor,
    key: Tensor,
    config: NeighborConfig,
    candidates: Tensor | None,
    grid: Grid | None,
    mask: Tensor | None,
) -> TokenNeighbors:
    coordinates = None
    if config.similarity_type == "Loc_Col":
        at = token_coordinates(_require(grid), query.device).to(query.dtype)
        keys = at if candidates is None else at[candidates]
        coordinates = Coordinates(at, keys, config.feature_weight)
    includes_self = candidates is not None
    shown, allowed, n_others = key, mask, config.n_neighbors - includes_self
    if candidates is not None:
        shown = key.index_select(2, candidates)
        allowed = None if mask is None else mask[..., candidates]
    _check_enough(n_others, shown.shape[2], besides_itself=includes_self)
    scores, index = select_backend(query, config.similarity, allowed).nearest(
        query,
        shown,
        n_others,
        config.similarity,
        coordinates,
        allowed,
        candidates,
        key if includes_self else None,
    )
    scores = _mask_self(scores, mask) if includes_self else scores
    return TokenNeighbors(scores, index, candidates, includes_self)


def _mask_self(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Mask the first column, the scores of tokens with themselves."""
    if mask is None:
        return scores
    mask = mask.expand(*mask.shape[:-2], scores.shape[2], -1)  # it may be the same for all rows
    first = reference.apply_mask(scores[..., :1], mask.diagonal(dim1=-2, dim2=-1)[..., None])
    return torch.cat([first, scores[..., 1:]], -1)


def _select_by_position(
    query: Tensor,
    config: NeighborConfig,
    candidates: Tensor | None,
    grid: Grid,
    mask: Tensor | None,
) -> TokenNeighbors:
    """Select by position alone; without candidates, the grid is padded with zeros.

    Prefix tokens have no position; their neighbors are patches spread evenly over the grid.
    """
    is_sampled = candidates is not None
    positions = token_positions(grid, query.device)
    if candidates is None:
        margin = math.isqrt(config.n_neighbors - 1) // 2 + 1
        patches = torch.arange(grid.n_prefix, grid.n_tokens, device=query.device)
        patches = patches.view(grid.height, grid.width)
        candidates = F.pad(patches, (margin,) * 4, value=-1).flatten()
        others = patch_positions(grid, margin, query.device)
    else:
        others = positions[candidates]
        _check_enough(config.n_neighbors - 1, len(candidates), besides_itself=True)
    n_others = config.n_neighbors - is_sampled
    excluded = candidates if is_sampled else None
    distances, index = nearest_positions(positions, others, n_others, excluded)
    if grid.n_prefix:
        first = _neighbors_of_prefix(grid, candidates, n_others, is_sampled)
        distances, index = (
            torch.cat([row.expand(grid.n_prefix, -1), rows[grid.n_prefix :]])
            for row, rows in zip(first, (distances, index), strict=True)
        )
    shape = (*query.shape[:3], n_others)
    scores, index = (-distances).to(query.dtype).expand(shape), index.expand(shape)
    if mask is not None:
        mask = mask.expand(*query.shape[:3], -1)
        columns = mask[..., candidates.clamp(min=0)]
        columns = columns.masked_fill(candidates < 0, mask.dtype == torch.bool)  # no effect there
        scores = reference.apply_mask(scores, columns.gather(-1, index))
    if is_sampled:  # a token is at distance zero from itself
        scores = _mask_self(F.pad(scores, (1, 0)), mask)
    return TokenNeighbors(scores, index, candidates, is_sampled)


def _neighbors_of_prefix(
    grid: Grid, candidates: Tensor, n: int, is_sampled: bool
) -> tuple[Tensor, Tensor]:
    """Distances and index (n,) of patches spread evenly; missing ones are infinitely far."""
    patches_first = (candidates < grid.n_prefix).long().argsort(stable=True)
    rows, columns = (grid.height, grid.width)
    if is_sampled:  # along the sequence
        rows, columns = 1, len(candidates) - grid.n_prefix
    index = patches_first[torch.tensor(spread_evenly(rows, columns, n), device=candidates.device)]
    distances = torch.zeros(n, device=index.device)
    return distances.masked_fill(candidates[index] < grid.n_prefix, float("inf")), index


def _combine_values(
    value: Tensor, neighbors: TokenNeighbors, weights: Tensor, kernel: Tensor | None
) -> Tensor:
    """(B, H, N, C) from the values of all tokens."""
    value, candidates = _precise(value), neighbors.candidates
    kernel = None if kernel is None else kernel.to(value.dtype)
    shown = value
    if candidates is not None:
        shown = value.index_select(2, candidates.clamp(min=0))
        if not neighbors.includes_self:  # then some may be outside the grid
            shown = shown.masked_fill((candidates < 0)[:, None], 0.0)
    own = value if neighbors.includes_self else None
    backend = select_backend(value)
    return backend.combine(shown, neighbors.index, weights.to(value.dtype), kernel, own)


def _combine_positions(
    coordinates: Tensor, neighbors: TokenNeighbors, weights: Tensor, kernel: Tensor
) -> Tensor:
    coordinates = F.pad(coordinates, (0, 0, 0, 1))  # −1 is the center
    at = coordinates[neighbors.tokens()].to(weights.dtype)  # (B, H, N, K, 2)
    weighted = (weights[..., None] * at).flatten(-2)
    return weighted @ kernel.permute(2, 1, 0).flatten(0, 1).to(weights.dtype)


def _without_autocast(features: Tensor) -> AbstractContextManager[object]:
    kind = features.device.type
    return torch.autocast(kind, enabled=False) if is_autocast_available(kind) else nullcontext()


def _precise(features: Tensor) -> Tensor:
    return features if features.dtype == torch.float64 else features.float()


def _require(grid: Grid | None) -> Grid:
    if grid is None:
        raise InvalidSettingError("Positions need a `grid`: pass a `Grid` of the patches.")
    return grid


def _check_enough(n_neighbors: int, n_tokens: int, *, besides_itself: bool = False) -> None:
    if n_neighbors > n_tokens:
        raise InvalidSettingError(
            f"`n_neighbors` must be at most {n_tokens + besides_itself}, since there are "
            f"{n_tokens} tokens to choose from{' besides itself' * besides_itself}, "
            f"got {n_neighbors + besides_itself}."
        )
