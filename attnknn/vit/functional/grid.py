"""Positions of tokens: a grid of patches behind prefix tokens, and samples of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from attnknn._validation import check_at_least
from attnknn.errors import InvalidSettingError


@dataclass(frozen=True)
class Grid:
    """A grid of patches in raster order, behind prefix tokens without a position.

    Parameters
    ----------
    height, width : int
        Rows and columns of patches.
    n_prefix : int, default=0
        Class and register tokens before the patches.

    Examples
    --------
    >>> Grid(2, 3, n_prefix=1).n_tokens
    7
    """

    height: int
    width: int
    n_prefix: int = 0

    @property
    def n_tokens(self) -> int:
        """Number of prefix tokens and patches."""
        return self.n_prefix + self.height * self.width

    @property
    def center(self) -> tuple[float, float]:
        """Row and column of the center of the grid."""
        return (self.height - 1) / 2, (self.width - 1) / 2


def token_positions(grid: Grid, device: torch.device | None = None) -> Tensor:
    """Row and column (N, 2) of each token; prefix tokens are at the center of the grid."""
    center = torch.tensor(grid.center, device=device).expand(grid.n_prefix, 2)
    return torch.cat([center, patch_positions(grid, 0, device)])


def patch_positions(grid: Grid, margin: int = 0, device: torch.device | None = None) -> Tensor:
    """Row and column of each patch of the grid with a margin around it, in raster order."""
    rows = torch.arange(-margin, grid.height + margin, device=device, dtype=torch.float32)
    columns = torch.arange(-margin, grid.width + margin, device=device, dtype=torch.float32)
    return torch.cartesian_prod(rows, columns)


def token_coordinates(grid: Grid, device: torch.device | None = None) -> Tensor:
    """Positions (N, 2) scaled so that the center is zero and the longer side spans −1 to 1."""
    half = max((max(grid.height, grid.width) - 1) / 2, 0.5)
    return (token_positions(grid, device) - torch.tensor(grid.center, device=device)) / half


def infer_grid(n_tokens: int, size: tuple[int, int] | None, n_prefix: int) -> Grid:
    """The grid of `n_tokens`: of the stated size, or a square.

    >>> infer_grid(197, None, 1)
    Grid(height=14, width=14, n_prefix=1)
    """
    check_prefix(n_prefix, n_tokens)
    n_patches = n_tokens - n_prefix
    side = math.isqrt(n_patches)
    height, width = size or (side, side)
    if height * width != n_patches or n_patches < 1:
        wanted = f"the grid {height} × {width}" if size else "a square grid"
        raise InvalidSettingError(
            f"{n_tokens} tokens, {n_prefix} of them before the patches, do not fill {wanted}. "
            "Set `grid_size` and `num_prefix_tokens` to those of the model."
        )
    return Grid(height, width, n_prefix)


def check_prefix(n_prefix: int, n_tokens: int) -> None:
    """Raise an error if there are more prefix tokens than tokens."""
    if n_prefix > n_tokens:
        raise InvalidSettingError(
            f"`num_prefix_tokens` must be at most {n_tokens}, the number of tokens, got {n_prefix}."
        )


def check_pair(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    """(rows, columns) of one number or of a pair, each at least one."""
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if len(sides) != 2:
        raise InvalidSettingError(f"`{name}` must be one number or (height, width), got {value!r}.")
    return check_at_least(name, sides[0], 1), check_at_least(name, sides[1], 1)


def check_grid_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width), or None where a square is inferred from the number of tokens."""
    return None if size is None else check_pair("grid_size", size)


def spread_evenly(height: int, width: int, n: int) -> list[int]:
    """n patches of a grid, about equally far apart in rows and in columns; in raster order.

    >>> spread_evenly(6, 6, 9)
    [7, 9, 11, 19, 21, 23, 31, 33, 35]
    """
    if n >= height * width:
        return list(range(n))
    n_rows = max(math.ceil(n / width), min(height, n, round(math.sqrt(n * height / width))))
    ends = [row * n // n_rows for row in range(n_rows + 1)]
    counts = [after - before for before, after in pairwise(ends)]
    return [
        row * width + column
        for row, count in zip(_centers(height, n_rows), counts, strict=True)
        for column in _centers(width, count)
    ]


def _centers(length: int, n: int) -> list[int]:
    """The center of each of n equal parts."""
    return [(2 * part + 1) * length // (2 * n) for part in range(n)]


def nearest_positions(
    positions: Tensor, others: Tensor, n_neighbors: int, excluded: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Distances and index (N, K) of the nearest of `others` (M, 2) to `positions` (N, 2).

    The Chebyshev distance makes the ball a square, as in a convolution, for every kernel size and
    shape of the grid. Ties go to the first in raster order, in which neighbors are returned.
    `excluded` (M,) is the position that must not select each of the others; distances are infinite
    where too few are left.
    """
    distances = (positions[:, None] - others[None]).abs().amax(-1)  # (N, M)
    if excluded is not None:
        itself = torch.arange(len(positions), device=positions.device)[:, None] == excluded
        distances = distances.masked_fill(itself, float("inf"))
    order = torch.arange(len(others), device=positions.device)
    rank = (2 * distances).clamp(max=2.0**30).long()  # doubled: the center may be half a step off
    nearest = (rank * len(others) + order).topk(n_neighbors, largest=False).indices
    index = nearest.sort(-1).values
    return distances.gather(1, index), index


def random_candidates(
    n_tokens: int,
    n_samples: int,
    n_prefix: int = 0,
    *,
    seed: int | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Prefix tokens and `n_samples` of the others at random, ascending.

    The same seed draws the same tokens; None draws from torch's global generator.

    >>> random_candidates(10, 3, 1, seed=0)
    tensor([0, 1, 3, 9])
    """
    check_prefix(n_prefix, n_tokens)
    n_others = n_tokens - n_prefix
    if n_samples > n_others:
        raise InvalidSettingError(
            f"`num_samples` must be at most {n_others}, the number of tokens to draw from, got "
            f"{n_samples}."
        )
    if seed is None:
        drawn = torch.randperm(n_others, device=device)[:n_samples]
    else:
        drawn = torch.tensor(_draw(n_others, n_samples, seed), device=device)
    prefix = torch.arange(n_prefix, device=device)
    return torch.cat([prefix, n_prefix + drawn.sort().values])


# The draw never changes, and the cache cannot be traced. A list, since a graph allows only one such
# tensor, and a model has many layers.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _draw(n_others: int, n_samples: int, seed: int) -> list[int]:
    return list(_shuffle(n_others, n_samples, seed))


@lru_cache(maxsize=256)
def _shuffle(n_others: int, n_samples: int, seed: int) -> tuple[int, ...]:
    """The first samples of `torch.randperm(n_others)` with a CPU generator of this seed.

    `torch.export` cannot trace generators of torch. NumPy's is the same Mersenne Twister, and the
    permutation is a Fisher–Yates shuffle.

    >>> generator = torch.Generator().manual_seed(3)
    >>> _shuffle(9, 4, 3) == tuple(torch.randperm(9, generator=generator)[:4].tolist())
    True
    """
    numbers = np.random.RandomState(seed % 2**32).randint(0, 2**32, n_samples, np.uint32)
    tokens = list(range(n_others))
    for place, number in enumerate(numbers.tolist()):
        other = place + number % (n_others - place)
        tokens[place], tokens[other] = tokens[other], tokens[place]
    return tuple(tokens[:n_samples])


def spatial_candidates(
    grid: Grid, n_per_side: int, padding: int = 0, *, device: torch.device | None = None
) -> Tensor:
    """Prefix tokens and `n_per_side` × `n_per_side` patches spread evenly over the grid.

    The outermost `padding` rows and columns are left out.

    >>> spatial_candidates(Grid(5, 5, n_prefix=1), 3)
    tensor([ 0,  1,  3,  5, 11, 13, 15, 21, 23, 25])
    """
    rows = _spread_axis(grid.height, n_per_side, padding, device)
    columns = _spread_axis(grid.width, n_per_side, padding, device)
    patches = (rows[:, None] * grid.width + columns).flatten()
    return torch.cat([torch.arange(grid.n_prefix, device=device), grid.n_prefix + patches])


def _spread_axis(length: int, n: int, padding: int, device: torch.device | None) -> Tensor:
    left = length - 2 * padding
    if n > left:
        raise InvalidSettingError(
            f"`num_samples` must be at most {max(left, 0)}, the rows or columns of patches that "
            f"`sample_padding={padding}` leaves of {length}, got {n}."
        )
    if n == 1:
        return torch.tensor([(length - 1) // 2], device=device)
    spread = torch.linspace(padding, length - 1 - padding, n, dtype=torch.float64)
    return spread.round().long().to(device)  # some devices have no float64
