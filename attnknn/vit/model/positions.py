"""Where a patch stands, as numbers that are added to it."""

from __future__ import annotations

import torch
from torch import Tensor

from attnknn.vit.functional import Grid

LONGEST_WAVE = 10_000.0


def fixed_positions(grid: Grid, dim: int) -> Tensor:
    """Waves over the rows and over the columns of the grid, (1, N, dim); zeros for prefix tokens.

    A quarter of the channels each holds the sines and cosines of rows and of columns; what is left
    of a `dim` that is no multiple of four is zero.

    >>> fixed_positions(Grid(2, 2, n_prefix=1), 6)[0, :, :4].round(decimals=2)
    tensor([[0.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 1.0000, 0.0000, 1.0000],
            [0.0000, 1.0000, 0.8400, 0.5400],
            [0.8400, 0.5400, 0.0000, 1.0000],
            [0.8400, 0.5400, 0.8400, 0.5400]])
    """
    quarter = dim // 4
    waves = LONGEST_WAVE ** (-torch.arange(quarter, dtype=torch.float64) / max(quarter, 1))
    angles = grid.patch_places(0).double()[:, :, None] * waves  # (N, 2, dim // 4)
    parts = [turn(angles[:, axis]) for axis in (0, 1) for turn in (torch.sin, torch.cos)]
    positions = torch.zeros(1, grid.n_tokens, dim)
    positions[0, grid.n_prefix :, : 4 * quarter] = torch.cat(parts, 1)
    return positions
