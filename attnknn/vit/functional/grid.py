"""Where tokens stand: patches on a grid in raster order, behind class and register tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.errors import InvalidSettingError


@dataclass(frozen=True)
class Grid:
    """Patches of `height` × `width`, in raster order, after `n_prefix` tokens of no place.

    >>> Grid(2, 3, n_prefix=1).n_tokens
    7
    """

    height: int
    width: int
    n_prefix: int = 0

    @property
    def n_tokens(self) -> int:
        """Prefix tokens and patches."""
        return self.n_prefix + self.height * self.width

    def places(self, device: torch.device | None = None) -> Tensor:
        """Row and column of each token, (N, 2); prefix tokens stand in the middle of the grid."""
        middle = torch.tensor([(self.height - 1) / 2, (self.width - 1) / 2], device=device)
        return torch.cat([middle.expand(self.n_prefix, 2), self.patch_places(0, device)])

    def patch_places(self, margin: int, device: torch.device | None = None) -> Tensor:
        """Row and column of each patch of the grid with a margin around it."""
        rows = torch.arange(-margin, self.height + margin, device=device, dtype=torch.float32)
        columns = torch.arange(-margin, self.width + margin, device=device, dtype=torch.float32)
        return torch.cartesian_prod(rows, columns)

    def coordinates(self, device: torch.device | None = None) -> Tensor:
        """`places` with the middle at zero and the longer side from −1 to 1; equal steps."""
        middle = torch.tensor([(self.height - 1) / 2, (self.width - 1) / 2], device=device)
        half = max((max(self.height, self.width) - 1) / 2, 0.5)
        return (self.places(device) - middle) / half


def grid_of(n_tokens: int, size: tuple[int, int] | None, n_prefix: int) -> Grid:
    """The grid of `n_tokens`: of the stated size, or a square.

    >>> grid_of(197, None, 1)
    Grid(height=14, width=14, n_prefix=1)
    """
    n_patches = n_tokens - n_prefix
    if n_patches < 0:
        raise InvalidSettingError(
            f"`num_prefix_tokens` must be at most the {n_tokens} tokens there are, got {n_prefix}."
        )
    side = math.isqrt(n_patches)
    height, width = size or (side, side)
    if height * width != n_patches or n_patches < 1:
        wanted = f"the grid {height} × {width}" if size else "a square grid"
        raise InvalidSettingError(
            f"{n_tokens} tokens, {n_prefix} of them before the patches, do not fill {wanted}. "
            "Set `grid_size` and `num_prefix_tokens` as the model has them."
        )
    return Grid(height, width, n_prefix)


def check_grid_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width), or None where a square is to be found at the first call."""
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2:
        raise InvalidSettingError(
            f"`grid_size` must be one number or (height, width), got {size!r}."
        )
    height, width = sides
    return check_at_least("grid_size", height, 1), check_at_least("grid_size", width, 1)


def spread_out(height: int, width: int, n: int) -> list[int]:
    """n patches of a grid, in rows as evenly apart as in columns; numbered in raster order.

    >>> spread_out(6, 6, 9)
    [7, 9, 11, 19, 21, 23, 31, 33, 35]
    """
    if n >= height * width:
        return list(range(n))
    n_rows = max(math.ceil(n / width), min(height, n, round(math.sqrt(n * height / width))))
    ends = [row * n // n_rows for row in range(n_rows + 1)]
    counts = [after - before for before, after in pairwise(ends)]
    return [
        row * width + column
        for row, count in zip(_middles(height, n_rows), counts, strict=True)
        for column in _middles(width, count)
    ]


def _middles(length: int, n: int) -> list[int]:
    """The middle of each of n equal parts."""
    return [(2 * part + 1) * length // (2 * n) for part in range(n)]


def nearest_places(
    places: Tensor, others: Tensor, n_neighbors: int, excluded: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Which of `others` (M, 2) are nearest to each of `places` (N, 2), in raster order.

    The distance is the larger of the steps along the two axes (Chebyshev), for which the square of
    a convolution *is* the ball, whatever its size and the shape of the grid. Of those equally far
    the first in raster order are taken. Gives distances and index, (N, K); `excluded` (M,) names
    the one of `places` that may not choose it, and distances are infinite where too few are left.
    """
    steps = (places[:, None] - others[None]).abs().amax(-1)  # (N, M)
    if excluded is not None:
        itself = torch.arange(len(places), device=places.device)[:, None] == excluded
        steps = steps.masked_fill(itself, float("inf"))
    order = torch.arange(len(others), device=places.device)
    far = (2 * steps).clamp(max=2.0**30).long()  # twice: the middle may lie between two patches
    nearest = (far * len(others) + order).topk(n_neighbors, largest=False).indices
    index = nearest.sort(-1).values
    return steps.gather(1, index), index
