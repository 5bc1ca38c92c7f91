"""The network of a learned table encoder: numbers and categories in, embeddings out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOWEST = 0.02  # the slowest wave beside the fastest


@dataclass(frozen=True)
class NetShape:
    """The sizes of a `TableNet`.

    Parameters
    ----------
    n_numbers : numeric columns
    places : how many places each of the other columns has
    n_frequencies : waves per numeric column; 0 takes numbers as they are
    number_dim : numbers that each numeric column becomes
    width, n_blocks : of the residual network behind
    embed_dim : of the embedding
    dropout : share of inner numbers left out in each step of training
    column_dropout : share of columns that each row loses in each step of training
    """

    n_numbers: int
    places: tuple[int, ...]
    n_frequencies: int
    number_dim: int
    width: int
    n_blocks: int
    embed_dim: int
    dropout: float
    column_dropout: float

    @property
    def n_inputs(self) -> int:
        """Numbers that enter the first layer."""
        return sum(self.places) + self.n_numbers * self.number_dim


class Chance:
    """Where a network draws what to leave out; none is left out before a training sets `draw`."""

    draw: torch.Generator | None = None

    def keep(self, like: Tensor, shape: tuple[int, ...], share_out: float) -> Tensor:
        """Zeros at the share left out, and what makes up for them elsewhere."""
        if self.draw is None or not share_out:
            return like.new_ones(())
        drawn = torch.rand(shape, generator=self.draw, device=self.draw.device)
        return (drawn >= share_out).to(like) / (1 - share_out)


class Waves(nn.Module):
    """Each number as waves of learned frequency, then a small layer of its own.

    A network that gets plain numbers learns slopes; waves let it tell 7,688 from 7,298.
    """

    def __init__(self, shape: NetShape, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        n, k = shape.n_numbers, shape.n_frequencies
        n_inputs = 2 * k + 1
        slowest = math.log(SLOWEST)  # some waves follow a trend, some tell single values apart
        spread = torch.rand(n, k, generator=generator) * slowest
        self.frequencies = nn.Parameter(scale * spread.exp())
        weight = torch.randn(n, n_inputs, shape.number_dim, generator=generator)
        self.weight = nn.Parameter(weight * n_inputs**-0.5)
        self.bias = nn.Parameter(torch.zeros(n, shape.number_dim))

    def forward(self, numbers: Tensor) -> Tensor:
        """(B, P) numbers as (B, P, number_dim)."""
        angles = 2 * math.pi * self.frequencies * numbers[..., None]  # (B, P, k)
        inputs = torch.cat([numbers[..., None], angles.cos(), angles.sin()], dim=2)
        return F.relu(torch.einsum("bpk,pkd->bpd", inputs, self.weight) + self.bias)


class Block(nn.Module):
    """A residual step: norm, wide layer, rectifier, dropout, back."""

    def __init__(self, shape: NetShape, chance: Chance, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(shape.width)
        self.up = _linear(shape.width, 2 * shape.width, generator)
        self.down = _linear(2 * shape.width, shape.width, generator)
        self.dropout, self.chance = shape.dropout, chance

    def forward(self, inner: Tensor) -> Tensor:
        hidden = F.relu(self.up(self.norm(inner)))
        if self.training:
            hidden = hidden * self.chance.keep(hidden, tuple(hidden.shape), self.dropout)
        return inner + self.down(hidden)


class TableNet(nn.Module):
    """Rows (B, n_numbers + places), numbers first, become embeddings (B, embed_dim)."""

    def __init__(
        self, shape: NetShape, generator: torch.Generator, *, frequency_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.shape, self.chance = shape, Chance()
        self.waves = Waves(shape, frequency_scale, generator) if shape.n_numbers else None
        self.entrance = _linear(shape.n_inputs, shape.width, generator)
        blocks = [Block(shape, self.chance, generator) for _ in range(shape.n_blocks)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.BatchNorm1d(shape.width)
        self.exit = _linear(shape.width, shape.embed_dim, generator)

    def forward(self, rows: Tensor) -> Tensor:
        inner = self.entrance(self._inputs(rows))
        for block in self.blocks:
            inner = block(inner)
        # Divided so that squared distances start near 1 whatever the size of the embedding.
        return self.exit(F.relu(self.norm(inner))) / math.sqrt(self.shape.embed_dim)

    def _inputs(self, rows: Tensor) -> Tensor:
        n, sizes = self.shape.n_numbers, self.shape.places
        keep = torch.ones(())
        if self.training:
            size = (len(rows), n + len(sizes))
            keep = self.chance.keep(rows, size, self.shape.column_dropout)
        keep = keep.expand(len(rows), n + len(sizes))
        of_column = torch.repeat_interleave(torch.tensor(sizes, dtype=torch.long))
        places = rows[:, n:] * keep[:, n:][:, of_column]
        if self.waves is None:
            return places
        waves = self.waves(rows[:, :n]) * keep[:, :n, None]
        return torch.cat([waves.flatten(1), places], dim=1)


def _linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """A layer whose start comes from the generator, not from torch's own chance."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
    reach = max(n_in, 1) ** -0.5
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-reach, reach, generator=generator)
    return layer
