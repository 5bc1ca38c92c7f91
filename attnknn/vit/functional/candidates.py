"""Which tokens may be chosen: some drawn at random, or a coarser grid of patches."""

from __future__ import annotations

import torch
from torch import Tensor

from attnknn.errors import InvalidSettingError
from attnknn.vit.functional.grid import Grid


def random_candidates(
    n_tokens: int,
    n_samples: int,
    n_prefix: int = 0,
    *,
    seed: int | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """The prefix tokens and `n_samples` of the others, ascending.

    With a `seed` they are always the same; without, they are drawn by torch's generator, as
    dropout is.

    >>> random_candidates(10, 3, 1, seed=0)
    tensor([0, 1, 3, 9])
    """
    n_others = n_tokens - n_prefix
    if n_others < 0:
        raise InvalidSettingError(
            f"`num_prefix_tokens` must be at most the {n_tokens} tokens there are, got {n_prefix}."
        )
    if n_samples > n_others:
        raise InvalidSettingError(
            f"`num_samples` must be at most the {n_others} tokens there are, got {n_samples}."
        )
    if seed is None:
        drawn = torch.randperm(n_others, device=device)[:n_samples]
    else:
        drawn = torch.tensor(_same_draw(n_others, n_samples, seed), device=device)
    prefix = torch.arange(n_prefix, device=device)
    return torch.cat([prefix, n_prefix + drawn.sort().values])


# Generators cannot be traced, and the draw never changes. Numbers, since only one such tensor may
# be in a graph, which has many layers.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _same_draw(n_others: int, n_samples: int, seed: int) -> list[int]:
    drawn = torch.randperm(n_others, generator=torch.Generator().manual_seed(seed))[:n_samples]
    return list(map(int, drawn))


def spatial_candidates(
    grid: Grid, n_per_side: int, padding: int = 0, *, device: torch.device | None = None
) -> Tensor:
    """The prefix tokens and `n_per_side` × `n_per_side` patches, evenly spread over the grid.

    The outermost `padding` rows and columns are left out.

    >>> spatial_candidates(Grid(5, 5, n_prefix=1), 3)
    tensor([ 0,  1,  3,  5, 11, 13, 15, 21, 23, 25])
    """
    rows = _spread(grid.height, n_per_side, padding, device)
    columns = _spread(grid.width, n_per_side, padding, device)
    patches = (rows[:, None] * grid.width + columns).flatten()
    return torch.cat([torch.arange(grid.n_prefix, device=device), grid.n_prefix + patches])


def _spread(length: int, n: int, padding: int, device: torch.device | None) -> Tensor:
    left = length - 2 * padding
    if n > left:
        raise InvalidSettingError(
            f"`num_samples` must be at most the {max(left, 0)} rows or columns of patches that "
            f"`sample_padding={padding}` leaves of {length}, got {n}."
        )
    if n == 1:
        return torch.tensor([(length - 1) // 2], device=device)
    spread = torch.linspace(padding, length - 1 - padding, n, dtype=torch.float64)
    return spread.round().long().to(device)  # not every device has float64
