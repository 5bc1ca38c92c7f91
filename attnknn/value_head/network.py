"""The network of a value head: query, vote and differences in, log-probabilities out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnknn.vote import vote_in_torch

EDGE = 10.0  # standard deviations
Drop = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ValueShape:
    """The sizes of a `ValueNet`, with which its stored weights are loaded.

    Parameters
    ----------
    width : size of the hidden layer in which query and values add up
    value_dim : size of the projection in which query and neighbors are compared
    """

    dim: int
    n_classes: int
    width: int
    value_dim: int


@dataclass(frozen=True)
class HeadInput:
    """Inputs of a value head for B queries; classes are those that the network knows.

    Parameters
    ----------
    queries : (B, D)
    start : (B, C) log-probabilities of the vote
    near : (B, k) weights of the nearest neighbors
    labels : (B, k) of the nearest neighbors
    positions : (B, k) of the nearest neighbors among the entries
    rest : (B, C) vote shares of all other neighbors and of the prior
    reach : (B,) weight of all neighbors divided by that of the nearest
    """

    queries: Tensor
    start: Tensor
    near: Tensor
    labels: Tensor
    positions: Tensor
    rest: Tensor
    reach: Tensor

    def rows(self, chosen: Any) -> HeadInput:
        """The same for some of the queries."""
        return HeadInput(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @classmethod
    def joined(cls, parts: list[HeadInput]) -> HeadInput:
        """Several of them, one after the other."""
        names = [f.name for f in fields(cls)]
        return cls(**{name: torch.cat([getattr(p, name) for p in parts]) for name in names})


class ValueNet(nn.Module):
    """The value of a neighbor is its label's embedding plus a function of its difference.

    Values are summed with the weights of the fitted attention. For labels that sum is the vote
    times a matrix; for differences the nearest neighbors represent all. Query and sum correct the
    logarithm of the vote; an untrained network corrects nothing.

    Embedding and difference are TabR's values (Gorishniy et al., 2023, section 3); starting from
    the vote is not.
    """

    center: Tensor
    spread: Tensor

    def __init__(self, shape: ValueShape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        self.register_buffer("center", torch.zeros(shape.dim))
        self.register_buffer("spread", torch.ones(shape.dim))
        self.query = _linear(shape.dim, width, generator)
        self.label_values = _linear(shape.n_classes, width, generator, bias=False)
        self.compare = _linear(shape.dim, shape.value_dim, generator, bias=False)
        self.difference_values = _linear(shape.value_dim, width, generator, bias=False)
        self.norm = nn.LayerNorm(width)
        self.up = _linear(width, 2 * width, generator)
        self.down = _linear(2 * width, width, generator)
        self.last_norm = nn.LayerNorm(width)
        self.exit = _linear(width, shape.n_classes, generator)
        nn.init.zeros_(self.exit.weight)
        nn.init.zeros_(self.exit.bias)

    def project(self, entries: Tensor) -> Tensor:
        """Entries (n, D) in the projection (n, V) in which they are compared with queries."""
        return self.compare(self._scaled(entries))

    def forward(self, inputs: HeadInput, entries: Tensor, drop: Drop | None = None) -> Tensor:
        """Log-probabilities (B, C); `inputs.positions` are rows of the projected `entries`.

        In training `drop` is the dropout of hidden units.
        """
        drop = drop or nn.Identity()
        queries = self._scaled(inputs.queries)
        hidden = self.query(queries) + self._context(inputs, self.compare(queries), entries)
        hidden = hidden + self.down(drop(F.relu(self.up(self.norm(hidden)))))  # (B, W)
        correction = self.exit(drop(F.relu(self.last_norm(hidden))))
        return torch.log_softmax(inputs.start + correction, dim=1)

    def _context(self, inputs: HeadInput, queries: Tensor, entries: Tensor) -> Tensor:
        """The weighted sum (B, W) of the values."""
        votes = vote_in_torch(
            inputs.labels, inputs.near, torch.ones_like(inputs.reach), inputs.rest
        )
        total = votes.sum(dim=1, keepdim=True).clamp_min(torch.finfo(votes.dtype).tiny)
        differences = F.relu(queries[:, None] - F.embedding(inputs.positions, entries))  # (B, k, V)
        near = inputs.near * inputs.reach[:, None] / total
        summed = (near[:, None] @ differences)[:, 0]  # before the last layer, which is linear
        return self.label_values(votes / total) + self.difference_values(summed)

    def _scaled(self, vectors: Tensor) -> Tensor:
        """Standardized columns, clipped at `EDGE` standard deviations."""
        return ((vectors - self.center) / self.spread).clamp(-EDGE, EDGE)


def _linear(n_in: int, n_out: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """A layer initialized from `generator` instead of torch's global one."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-(n_in**-0.5), n_in**-0.5, generator=generator)
    return layer
