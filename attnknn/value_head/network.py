"""The network of a value head: a query, the vote, and differences in; log-probabilities out."""

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
    """The sizes of a `ValueNet`; everything its stored weights need to be loaded.

    Parameters
    ----------
    width : numbers in which query and values add up
    value_dim : numbers in which query and neighbors are compared
    """

    dim: int
    n_classes: int
    width: int
    value_dim: int


@dataclass(frozen=True)
class Seen:
    """What a value head looks at, for B queries; classes are those that the network knows.

    Parameters
    ----------
    queries : (B, D)
    start : (B, C) log-probabilities of the vote
    near : (B, k) weights of the nearest neighbors
    labels : (B, k) theirs
    positions : (B, k) theirs among the entries
    rest : (B, C) what everybody else had to say, the prior too; with `near` it is the vote
    reach : (B,) how many times the say of the nearest all neighbors have
    """

    queries: Tensor
    start: Tensor
    near: Tensor
    labels: Tensor
    positions: Tensor
    rest: Tensor
    reach: Tensor

    def rows(self, chosen: Any) -> Seen:
        """The same for some of the queries."""
        return Seen(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @classmethod
    def joined(cls, parts: list[Seen]) -> Seen:
        """Several of them, one after the other."""
        names = [f.name for f in fields(cls)]
        return cls(**{name: torch.cat([getattr(p, name) for p in parts]) for name in names})


class ValueNet(nn.Module):
    """The value of a neighbor is its label's embedding plus a function of its difference.

    Values are added up by the weights of the fitted attention. Of labels that sum is the vote
    through a matrix; of differences the nearest neighbors stand for all. Query and sum correct the
    logarithm of the vote; a new network corrects nothing.

    Embedding and difference are TabR's values (Gorishniy et al., 2023, section 3); that the vote is
    where training starts from is ours.
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
        """Entries (n, D) as they are compared with queries, (n, V)."""
        return self.compare(self._scaled(entries))

    def forward(self, seen: Seen, entries: Tensor, drop: Drop | None = None) -> Tensor:
        """Log-probabilities (B, C); `seen.positions` are rows of the projected `entries`.

        In training `drop` leaves out some of the inner numbers.
        """
        drop = drop or nn.Identity()
        queries = self._scaled(seen.queries)
        inner = self.query(queries) + self._context(seen, self.compare(queries), entries)
        inner = inner + self.down(drop(F.relu(self.up(self.norm(inner)))))  # (B, W)
        correction = self.exit(drop(F.relu(self.last_norm(inner))))
        return torch.log_softmax(seen.start + correction, dim=1)

    def _context(self, seen: Seen, queries: Tensor, entries: Tensor) -> Tensor:
        """The weighed sum (B, W) of the values."""
        say = vote_in_torch(seen.labels, seen.near, torch.ones_like(seen.reach), seen.rest)
        total = say.sum(dim=1, keepdim=True).clamp_min(torch.finfo(say.dtype).tiny)
        differences = F.relu(queries[:, None] - F.embedding(seen.positions, entries))  # (B, k, V)
        near = seen.near * seen.reach[:, None] / total
        summed = (near[:, None] @ differences)[:, 0]  # before the last layer, which is linear
        return self.label_values(say / total) + self.difference_values(summed)

    def _scaled(self, vectors: Tensor) -> Tensor:
        """Columns of spread one; what lies far outside is taken as lying at the edge."""
        return ((vectors - self.center) / self.spread).clamp(-EDGE, EDGE)


def _linear(n_in: int, n_out: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """A layer whose start comes from the generator, not from torch's own chance."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-(n_in**-0.5), n_in**-0.5, generator=generator)
    return layer
