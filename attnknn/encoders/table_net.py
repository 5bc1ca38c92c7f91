"""The network of `LearnedTableEncoder`, from numbers and categories to embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_FREQUENCY = 0.02  # lowest initial frequency, relative to the highest


@dataclass(frozen=True)
class NetShape:
    """The sizes of a `TableNet`."""

    n_numbers: int  # number of numeric columns
    # width of each of the other columns (one-hot, or indicator of missing values)
    places: tuple[int, ...]
    n_frequencies: int  # periodic features per numeric column; 0 takes numbers as they are
    number_dim: int  # size of the embedding of each numeric column
    width: int  # size of the residual network
    n_blocks: int
    embed_dim: int  # size of the embedding
    dropout: float  # dropout rate inside residual blocks
    column_dropout: float  # share of columns that each row loses in each training step

    @property
    def n_inputs(self) -> int:
        """Inputs of the first layer."""
        return sum(self.places) + self.n_numbers * self.number_dim


class SeededDropout:
    """Dropout masks from a generator that the training sets; without it nothing is dropped."""

    generator: torch.Generator | None = None

    def mask(self, like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
        """Zeros at the rate given, and 1 / (1 − rate) elsewhere."""
        if self.generator is None or not rate:
            return like.new_ones(())
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (drawn >= rate).to(like) / (1 - rate)


class PeriodicEmbedding(nn.Module):
    """Sines and cosines of each number with learned frequencies, then a linear layer per column.

    On plain numbers a network learns smooth functions; periodic features separate close values
    (Gorishniy et al. 2022, "On embeddings for numerical features").
    """

    def __init__(self, shape: NetShape, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        n, k = shape.n_numbers, shape.n_frequencies
        n_inputs = 2 * k + 1
        lowest = math.log(MIN_FREQUENCY)  # low ones follow a trend, high ones separate values
        spread = torch.rand(n, k, generator=generator) * lowest
        self.frequencies = nn.Parameter(scale * spread.exp())
        weight = torch.randn(n, n_inputs, shape.number_dim, generator=generator)
        self.weight = nn.Parameter(weight * n_inputs**-0.5)
        self.bias = nn.Parameter(torch.zeros(n, shape.number_dim))

    def forward(self, numbers: Tensor) -> Tensor:
        """Numbers (B, P) as embeddings (B, P, number_dim)."""
        angles = 2 * math.pi * self.frequencies * numbers[..., None]  # (B, P, k)
        inputs = torch.cat([numbers[..., None], angles.cos(), angles.sin()], dim=2)
        return F.relu(torch.einsum("bpk,pkd->bpd", inputs, self.weight) + self.bias)


class Block(nn.Module):
    """A residual block: norm, linear, ReLU, dropout, linear."""

    def __init__(
        self, shape: NetShape, seeded_dropout: SeededDropout, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(shape.width)
        self.up = _linear(shape.width, 2 * shape.width, generator)
        self.down = _linear(2 * shape.width, shape.width, generator)
        self.dropout, self.seeded_dropout = shape.dropout, seeded_dropout

    def forward(self, inner: Tensor) -> Tensor:
        hidden = F.relu(self.up(self.norm(inner)))
        if self.training:
            hidden = hidden * self.seeded_dropout.mask(hidden, tuple(hidden.shape), self.dropout)
        return inner + self.down(hidden)


class TableNet(nn.Module):
    """From rows (B, n_numbers + places), numbers first, to embeddings (B, embed_dim)."""

    def __init__(
        self, shape: NetShape, generator: torch.Generator, *, frequency_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.shape, self.seeded_dropout = shape, SeededDropout()
        self.waves = (
            PeriodicEmbedding(shape, frequency_scale, generator) if shape.n_numbers else None
        )
        self.entrance = _linear(shape.n_inputs, shape.width, generator)
        blocks = [Block(shape, self.seeded_dropout, generator) for _ in range(shape.n_blocks)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.BatchNorm1d(shape.width)
        self.exit = _linear(shape.width, shape.embed_dim, generator)

    def forward(self, rows: Tensor) -> Tensor:
        inner = self.entrance(self._inputs(rows))
        for block in self.blocks:
            inner = block(inner)
        # Scaled so that initial squared distances are near 1 whatever the size of the embedding.
        return self.exit(F.relu(self.norm(inner))) / math.sqrt(self.shape.embed_dim)

    def _inputs(self, rows: Tensor) -> Tensor:
        n, sizes = self.shape.n_numbers, self.shape.places
        keep = torch.ones(())
        if self.training:
            size = (len(rows), n + len(sizes))
            keep = self.seeded_dropout.mask(rows, size, self.shape.column_dropout)
        keep = keep.expand(len(rows), n + len(sizes))
        of_column = torch.repeat_interleave(torch.tensor(sizes, dtype=torch.long))
        places = rows[:, n:] * keep[:, n:][:, of_column]
        if self.waves is None:
            return places
        waves = self.waves(rows[:, :n]) * keep[:, :n, None]
        return torch.cat([waves.flatten(1), places], dim=1)


def _linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer initialized from the generator, not from torch's global one."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
    bound = max(n_in, 1) ** -0.5
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-bound, bound, generator=generator)
    return layer
