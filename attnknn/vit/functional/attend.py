"""Each token attends to its nearest: choose, weigh, and combine by rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional import by_bags, plain
from attnknn.vit.functional.grid import Grid, nearest_places, spread_out
from attnknn.vit.functional.similarity import SIMILARITIES, Coordinates
from attnknn.vit.functional.weights import WEIGHTS, weigh

FEATURES = ("Col", "Loc", "Loc_Col")


@dataclass(frozen=True)
class Rule:
    """How neighbors are chosen and weighed.

    `similarity_type` says by what: features (`Col`), the place on the grid (`Loc`), or both
    (`Loc_Col`, where features count by `feature_share` and places by the rest).
    """

    n_neighbors: int
    similarity: str = "matmul"
    similarity_type: str = "Col"
    weights: str = "softmax"
    feature_share: float = 0.5

    def __post_init__(self) -> None:
        check_at_least("n_neighbors", self.n_neighbors, 1)
        check_choice("similarity", self.similarity, SIMILARITIES)
        check_choice("similarity_type", self.similarity_type, FEATURES)
        check_choice("weights", self.weights, WEIGHTS)
        if not 0 <= self.feature_share <= 1:
            raise InvalidSettingError(
                f"`feature_share` must be between 0 and 1, got {self.feature_share!r}."
            )
        if self.similarity_type == "Loc_Col" and self.feature_share == 0:
            raise InvalidSettingError(
                "With `similarity_type='Loc_Col'`, `feature_share` must be above 0, got 0: places "
                "alone are `similarity_type='Loc'`, which says who is taken of those equally far."
            )


@dataclass(frozen=True)
class Choice:
    """The neighbors of each token, with scores before they are weighed.

    `index` counts in `candidates`, or in all tokens where those are None. With `has_own` each token
    is its own first neighbor: it has a score, and is left out of `index`.
    """

    scores: Tensor  # (B, H, N, K)
    index: Tensor  # (B, H, N, K), or K − 1
    candidates: Tensor | None = None  # (M,), −1 is a token of zeros outside the grid
    has_own: bool = False

    def tokens(self) -> Tensor:
        """The chosen tokens themselves (B, H, N, K), own ones first; −1 outside the grid."""
        chosen = self.index if self.candidates is None else self.candidates[self.index]
        if not self.has_own:
            return chosen
        itself = torch.arange(chosen.shape[2], device=chosen.device)[:, None]
        return torch.cat([itself.expand(*chosen.shape[:3], 1), chosen], -1)

    def weights(self, rule: Rule) -> Tensor:
        """(B, H, N, K), in the order of `tokens`."""
        similarity = "euclidean" if rule.similarity_type == "Loc" else rule.similarity
        return weigh(self.scores, rule.weights, similarity)


def convnn_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    kernel: Tensor | None,
    rule: Rule,
    *,
    candidates: Tensor | None = None,
    grid: Grid | None = None,
    position_kernel: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The values of each token's nearest tokens, weighed, times the tap of their rank, summed.

    Parameters
    ----------
    query, key, value
        (B, H, N, d) each; without values only places are combined.
    kernel
        One tap for each rank: (C, K) works on each channel by itself, (C, E, K) mixes them, None
        is a kernel of ones.
    candidates
        Tokens (M,) that may be chosen, all if None. With candidates each token is its own first
        neighbor, and chooses the others among the rest.
    grid
        Needed by places, see `Rule` and `position_kernel`.
    position_kernel
        (C, 2, K): the coordinates of the neighbors are combined by it, and added.
    mask
        Broadcast to (B, H, N, N): True where a token may be chosen, or numbers to add to scores,
        which weights other than `softmax` cannot take.
    dropout
        The share of neighbors left out.

    >>> tokens = torch.eye(3)[None, None]
    >>> convnn_attention(tokens, tokens, tokens, None, Rule(1))[0, 0]
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    choice = choose(query, key, rule, candidates=candidates, grid=grid, mask=mask)
    weights = F.dropout(choice.weights(rule), dropout)
    combined = []
    with _without_autocast(query):
        if value is not None:
            combined.append(combine_choice(value, choice, weights, kernel))
        if position_kernel is not None:
            combined.append(_combine_places(_needed(grid), choice, weights, position_kernel))
    return sum(combined[1:], combined[0]).to(query.dtype)


def choose(
    query: Tensor,
    key: Tensor,
    rule: Rule,
    *,
    candidates: Tensor | None = None,
    grid: Grid | None = None,
    mask: Tensor | None = None,
) -> Choice:
    """The nearest tokens of each token, see `convnn_attention`."""
    if mask is not None and mask.dtype != torch.bool and rule.weights != "softmax":
        raise InvalidSettingError(
            "A mask of floats, which are added to scores, needs `weights='softmax'`, got "
            f"{rule.weights!r}: give a mask of booleans, True where one may look."
        )
    # Scores of few digits tie, and which of the tied is taken would be up to the machine.
    with _without_autocast(query):
        return _choose(_precise(query), _precise(key), rule, candidates, grid, mask)


def _choose(
    query: Tensor,
    key: Tensor,
    rule: Rule,
    candidates: Tensor | None,
    grid: Grid | None,
    mask: Tensor | None,
) -> Choice:
    if rule.similarity_type == "Loc":
        return _choose_on_grid(query, rule, candidates, _needed(grid), mask)
    coordinates = None
    if rule.similarity_type == "Loc_Col":
        at = _needed(grid).coordinates(query.device).to(query.dtype)
        coordinates = Coordinates(at, at, rule.feature_share)
    if candidates is None:
        _check_enough(rule.n_neighbors, key.shape[2])
        found = _nearest(query, key, rule.n_neighbors, rule.similarity, coordinates, mask)
        return Choice(*found)
    return _choose_among(query, key, rule, candidates, coordinates, mask)


def way_for(features: Tensor, similarity: str = "matmul", mask: Tensor | None = None) -> ModuleType:
    """The one place that decides between `plain` and `by_bags`.

    Bags are for processors. They order keys by squared distances, to which no mask of numbers can
    be added, and have no gradient for a mask.
    """
    if features.device.type != "cpu":
        return plain
    if mask is None or mask.dtype == torch.bool:
        return by_bags
    return plain if similarity == "euclidean" or mask.requires_grad else by_bags


def combine_choice(value: Tensor, choice: Choice, weights: Tensor, kernel: Tensor | None) -> Tensor:
    """(B, H, N, C), of values of all tokens."""
    value = _precise(value)
    kernel = None if kernel is None else kernel.to(value.dtype)
    shown = (
        value
        if choice.candidates is None
        else _rows(value, choice.candidates, outside=not choice.has_own)
    )
    own = value if choice.has_own else None
    way = way_for(value)
    return way.combine(shown, choice.index, weights.to(value.dtype), kernel, own)


def _nearest(
    query: Tensor,
    key: Tensor,
    n_neighbors: int,
    similarity: str,
    coordinates: Coordinates | None,
    mask: Tensor | None,
    excluded: Tensor | None = None,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    way = way_for(query, similarity, mask)
    return way.nearest(query, key, n_neighbors, similarity, coordinates, mask, excluded, own)


def _choose_among(
    query: Tensor,
    key: Tensor,
    rule: Rule,
    candidates: Tensor,
    coordinates: Coordinates | None,
    mask: Tensor | None,
) -> Choice:
    if coordinates is not None:
        coordinates = Coordinates(
            coordinates.queries, coordinates.keys[candidates], rule.feature_share
        )
    n_others = rule.n_neighbors - 1
    _check_enough(n_others, len(candidates), besides_itself=True)
    scores, index = _nearest(
        query,
        key.index_select(2, candidates),
        n_others,
        rule.similarity,
        coordinates,
        None if mask is None else mask[..., candidates],
        candidates,
        key,
    )
    return Choice(_mask_own(scores, mask), index, candidates, has_own=True)


def _mask_own(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The first scores are those of tokens with themselves."""
    if mask is None:
        return scores
    mask = mask.expand(*mask.shape[:-2], scores.shape[2], -1)  # it may be the same for all rows
    first = plain.masked(scores[..., :1], mask.diagonal(dim1=-2, dim2=-1)[..., None])
    return torch.cat([first, scores[..., 1:]], -1)


def _choose_on_grid(
    query: Tensor, rule: Rule, candidates: Tensor | None, grid: Grid, mask: Tensor | None
) -> Choice:
    """By place alone; where all may be chosen, the grid goes on in zeros beyond its border.

    Prefix tokens have no place, and see patches spread evenly over the grid.
    """
    is_sampled = candidates is not None
    places = grid.places(query.device)
    if candidates is None:
        margin = math.isqrt(rule.n_neighbors - 1) // 2 + 1
        candidates, others = _padded(grid, margin, query.device)
    else:
        others = places[candidates]
        _check_enough(rule.n_neighbors - 1, len(candidates), besides_itself=True)
    n_others = rule.n_neighbors - is_sampled
    far, index = nearest_places(places, others, n_others, candidates if is_sampled else None)
    if grid.n_prefix:
        seen = _seen_by_prefix(grid, candidates, n_others, is_sampled)
        far, index = (
            torch.cat([row.expand(grid.n_prefix, -1), rows[grid.n_prefix :]])
            for row, rows in zip(seen, (far, index), strict=True)
        )
    shape = (*query.shape[:3], n_others)
    scores, index = (-far).to(query.dtype).expand(shape), index.expand(shape)
    if mask is not None:
        mask = mask.expand(*query.shape[:3], -1)
        columns = mask[..., candidates.clamp(min=0)]
        columns = columns.masked_fill(candidates < 0, mask.dtype == torch.bool)  # as they are
        scores = plain.masked(scores, columns.gather(-1, index))
    if is_sampled:  # no step away from itself
        scores = _mask_own(F.pad(scores, (1, 0)), mask)
    return Choice(scores, index, candidates, is_sampled)


def _seen_by_prefix(
    grid: Grid, candidates: Tensor, n: int, is_sampled: bool
) -> tuple[Tensor, Tensor]:
    """Distances and index (n,): from no place all are equally far, so patches are spread evenly.

    Where there are fewer, the others are missing.
    """
    patches_first = (candidates < grid.n_prefix).long().argsort(stable=True)
    rows, columns = (grid.height, grid.width)
    if is_sampled:  # in the order of the sequence
        rows, columns = 1, len(candidates) - grid.n_prefix
    index = patches_first[torch.tensor(spread_out(rows, columns, n), device=candidates.device)]
    far = torch.zeros(n, device=index.device)
    return far.masked_fill(candidates[index] < grid.n_prefix, float("inf")), index


def _padded(grid: Grid, margin: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The tokens of the grid with a margin of −1 around it, in raster order, and their places."""
    patches = torch.arange(grid.n_prefix, grid.n_tokens, device=device)
    inside = patches.view(grid.height, grid.width)
    tokens = F.pad(inside, (margin,) * 4, value=-1).flatten()
    return tokens, grid.patch_places(margin, device)


def _combine_places(grid: Grid, choice: Choice, weights: Tensor, kernel: Tensor) -> Tensor:
    """Coordinates are two, so that the neighbors' own may well be copied."""
    coordinates = F.pad(grid.coordinates(weights.device), (0, 0, 0, 1))  # −1 is the middle
    places = coordinates[choice.tokens()].to(weights.dtype)  # (B, H, N, K, 2)
    weighed = (weights[..., None] * places).flatten(-2)
    return weighed @ kernel.permute(2, 1, 0).flatten(0, 1).to(weights.dtype)


def _rows(value: Tensor, candidates: Tensor, *, outside: bool) -> Tensor:
    """The candidates' values, zeros for −1 if some may be outside the grid."""
    rows = value.index_select(2, candidates.clamp(min=0))
    return rows.masked_fill((candidates < 0)[:, None], 0.0) if outside else rows


def _without_autocast(features: Tensor) -> torch.autocast:
    return torch.autocast(features.device.type, enabled=False)


def _precise(features: Tensor) -> Tensor:
    return features if features.dtype == torch.float64 else features.float()


def _needed(grid: Grid | None) -> Grid:
    if grid is None:
        raise InvalidSettingError("Places need a `grid`: say how the patches stand.")
    return grid


def _check_enough(n_neighbors: int, n_tokens: int, *, besides_itself: bool = False) -> None:
    if n_neighbors > n_tokens:
        raise InvalidSettingError(
            f"`n_neighbors` must be at most {n_tokens + besides_itself}, since there are "
            f"{n_tokens} tokens to choose from{' besides itself' * besides_itself}, "
            f"got {n_neighbors + besides_itself}."
        )
