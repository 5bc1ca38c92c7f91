"""The learned scores: a torch module that scores each neighbor of a query, and the prior."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnknn._stored import Fields
from attnknn.errors import ModelFolderError
from attnknn.records import Integers

KNOTS = np.linspace(0.0, 2.0, 6, dtype=np.float32)  # where the monotone distance bias bends
BLOCK = 1 << 22  # numbers of projected neighbors held in one tensor
PRIOR_REACH = 3.0  # how far a query may move the prior's score


@dataclass(frozen=True)
class Shape:
    """What a module of scores is built of; everything its stored weights need to be loaded."""

    dim: int
    n_classes: int
    n_heads: int
    head_dim: int
    temperature_bounds: tuple[float, float]
    distance_bias: bool
    support: bool
    trust: bool
    prototypes: bool
    self_attention: bool
    query_prior: bool
    dot_product: bool = False

    @classmethod
    def from_stored(cls, stored: Fields) -> Shape:
        """The shape that a model folder holds."""
        bounds = stored.anything("temperature_bounds")
        are_numbers = isinstance(bounds, list) and all(type(bound) is float for bound in bounds)
        if not are_numbers or len(bounds) != 2 or not 0 < bounds[0] < bounds[1] < 1e300:
            raise ModelFolderError("The stored `temperature_bounds` must be two rising numbers.")
        sizes: Any = {
            n: stored.integer(n, least=1) for n in ("dim", "n_classes", "n_heads", "head_dim")
        }
        terms = ("distance_bias", "support", "trust", "prototypes", "self_attention", "query_prior")
        switches = {name: stored.flag(name) for name in terms}
        switches["dot_product"] = "dot_product" in stored and stored.flag("dot_product")
        return cls(**sizes, temperature_bounds=(bounds[0], bounds[1]), **switches)

    def large_tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors whose size the settings determine."""
        shapes: dict[str, tuple[int, ...]] = {
            "projection": (self.n_heads, self.head_dim, self.dim),
        }
        if self.dot_product:
            shapes["query_projection"] = shapes["projection"]
        if self.prototypes:
            shapes["prototypes"] = (self.n_classes, self.dim)
        return shapes


@dataclass(frozen=True)
class Features:
    """What is known of the K neighbors of B queries, as tensors."""

    queries: Tensor  # (B, D)
    squared: Tensor  # (B, K) squared distances
    labels: Tensor  # (B, K)
    mask: Tensor
    support: Tensor  # (B, K) share of the other neighbors that carry the same label
    trust: Tensor


class NeighborScores(nn.Module):
    """Score each neighbor by its distance under a learned projection, and by what speaks for it.

    One projection per head is shared by query and entry: with two, or with an inner product, the
    scores no longer are a distance (TabR's ablation). Its size is fixed, because the temperature
    carries the size already. With `dot_product`, queries and entries have a projection each, and
    the score is the product of the two, as in attention of Transformers.
    """

    unit: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        H, D, C = shape.n_heads, shape.dim, shape.n_classes
        self.projection = nn.Parameter(torch.zeros(H, shape.head_dim, D))
        self.raw_temperature = nn.Parameter(torch.zeros(H))
        self.raw_slope = nn.Parameter(torch.full((H,), -2.0))
        self.prior_score = nn.Parameter(torch.zeros(H))
        self.register_buffer("unit", torch.ones(()))  # the typical squared distance
        if shape.dot_product:
            self.query_projection = nn.Parameter(torch.zeros(H, shape.head_dim, D))
        if shape.distance_bias:
            self.raw_bends = nn.Parameter(torch.full((H, len(KNOTS)), -4.0))
        if shape.support:
            self.support_slope = nn.Parameter(torch.zeros(H))
        if shape.trust:
            self.trust_slope = nn.Parameter(torch.zeros(H))
        if shape.prototypes:
            self.prototypes = nn.Parameter(torch.zeros(C, D))
            self.prototype_slope = nn.Parameter(torch.full((H,), 0.1))
        if shape.self_attention:
            self.mixing = nn.Parameter(torch.full((H,), 0.1))
            self.raw_mixing_temperature = nn.Parameter(torch.zeros(H))
        if shape.query_prior:
            self.query_prior = nn.Linear(D, H)
            nn.init.zeros_(self.query_prior.weight)
            nn.init.zeros_(self.query_prior.bias)

    def with_class(self, prototype: Tensor) -> NeighborScores:
        """The same module with room for one more class."""
        return self._changed(lambda known: torch.cat([known, prototype[None]]), 1)

    def reordered(self, order: Integers) -> NeighborScores:
        """The same module with class `order[i]` as class i."""
        return self._changed(lambda known: known[torch.from_numpy(order)])

    def _changed(self, change: Callable[[Tensor], Tensor], n_new: int = 0) -> NeighborScores:
        """The same module with other prototypes."""
        made = NeighborScores(replace(self.shape, n_classes=self.shape.n_classes + n_new))
        state = dict(self.state_dict())
        if self.shape.prototypes:
            state["prototypes"] = change(state["prototypes"])
        made.load_state_dict(state)
        return made

    @property
    def temperatures(self) -> Tensor:
        """The temperature of each head, inside its bounds, in units of `unit`."""
        low, high = (math.log(bound) for bound in self.shape.temperature_bounds)
        return (low + (high - low) * torch.sigmoid(self.raw_temperature)).exp()

    def start_at(self, temperature: float, prior_score: float) -> None:
        """Begin with these; heads differ a little so that they can part."""
        low, high = (math.log(bound) for bound in self.shape.temperature_bounds)
        place = (math.log(temperature) - low) / (high - low)
        place = min(max(place, 0.02), 0.98)
        spread = torch.linspace(-0.3, 0.3, self.shape.n_heads) if self.shape.n_heads > 1 else 0.0
        with torch.no_grad():
            self.raw_temperature.fill_(math.log(place / (1 - place))).add_(spread)
            self.prior_score.fill_(prior_score)

    @property
    def scaled_projection(self) -> Tensor:
        """The projections (H, E, D) of entries in their fixed size."""
        return self._scaled(self.projection)

    @property
    def scaled_query_projection(self) -> Tensor:
        """Those of queries, which are the same unless scores are dot products."""
        return self._scaled(self.query_projection if self.shape.dot_product else self.projection)

    def _scaled(self, projection: Tensor) -> Tensor:
        lengths = projection.flatten(1).norm(dim=1)[:, None, None]
        return projection * (math.sqrt(self.shape.head_dim) / lengths)

    def project(self, vectors: Tensor) -> Tensor:
        """Entries (n, D) as the heads see them, (n, H, E)."""
        scaled = self.scaled_projection
        return (vectors @ scaled.flatten(0, 1).T).unflatten(1, scaled.shape[:2])

    def project_queries(self, vectors: Tensor) -> Tensor:
        """Queries (n, D) as the heads see them, (n, H, E)."""
        scaled = self.scaled_query_projection
        return (vectors @ scaled.flatten(0, 1).T).unflatten(1, scaled.shape[:2])

    def forward(self, learned: Tensor, features: Features) -> tuple[Tensor, Tensor]:
        """Scores (B, H, K) of the neighbors and (B, H) of the prior.

        `learned` (B, H, K) are the squared distances between projected queries and neighbors.
        """
        squared = features.squared[:, None] / self.unit  # (B, 1, K)
        scores = -learned / self.unit - F.softplus(self.raw_slope)[:, None] * squared
        if self.shape.distance_bias:
            scores = scores - self._distance_bias(squared)
        if self.shape.support:
            scores = scores + self.support_slope[:, None] * features.support[:, None]
        if self.shape.trust:
            scores = scores + self.trust_slope[:, None] * features.trust[:, None]
        if self.shape.prototypes:
            scores = scores + self.prototype_slope[:, None] * self._affinity(features)[:, None]
        return scores / self.temperatures[:, None], self._prior(features.queries)

    def _distance_bias(self, squared: Tensor) -> Tensor:
        """A monotone function of the distance that is zero at zero, (B, H, K)."""
        distance = squared.clamp_min(0.0).add(1e-12).sqrt()[..., None]  # (B, 1, K, 1)
        knots = torch.from_numpy(KNOTS).to(squared.device)
        rises = F.softplus(self.raw_bends)[:, None]  # (H, 1, knots)
        return (rises * F.relu(distance - knots)).sum(dim=-1)

    def _affinity(self, features: Features) -> Tensor:
        """Cosine (B, K) between the query and the prototype of each neighbor's class."""
        prototypes = F.normalize(self.prototypes, dim=1)
        return (F.normalize(features.queries, dim=1) @ prototypes.T).gather(1, features.labels)

    def _prior(self, queries: Tensor) -> Tensor:
        prior = self.prior_score.expand(len(queries), -1)
        if self.shape.query_prior:
            prior = prior + PRIOR_REACH * torch.tanh(self.query_prior(queries))
        return prior

    def mix(self, neighbors: Tensor, mask: Tensor) -> Tensor:
        """Neighbors (B, K, H, E), each moved a little towards those near it.

        Their distances come from products: all differences would be K times as many numbers.
        """
        each = neighbors.transpose(1, 2)  # (B, H, K, E)
        centered = each - each.mean(dim=2, keepdim=True)  # shorter vectors round less
        lengths = centered.square().sum(-1)
        between = lengths[..., None] + lengths[..., None, :] - 2 * centered @ centered.mT
        spread = self.unit * F.softplus(self.raw_mixing_temperature)[:, None, None]
        closeness = -between.clamp_min(0.0) / spread  # (B, H, K, K)
        closeness = closeness.masked_fill(~mask[:, None, None], -torch.inf)
        mean = torch.softmax(closeness, dim=-1) @ each
        moved = each + self.mixing[:, None, None] * (mean - each)
        return moved.transpose(1, 2)


def learned_distances(
    module: NeighborScores, queries: Tensor, entries: Tensor, positions: Tensor, mask: Tensor
) -> Tensor:
    """Squared distances (B, H, K) of projected queries (B, H, E) to entries[positions].

    Of dot products, minus two of them.

    In blocks: tensors above 32 MB are handed back to the system after every use, and fetching
    their pages again costs more than the arithmetic.
    """
    step = max(1, BLOCK // (positions.shape[1] * entries[0].numel()))
    parts = zip(queries.split(step), positions.split(step), mask.split(step), strict=True)
    return torch.cat([_learned_block(module, q, entries, p, m) for q, p, m in parts])


def _learned_block(
    module: NeighborScores, queries: Tensor, entries: Tensor, positions: Tensor, mask: Tensor
) -> Tensor:
    neighbors = F.embedding(positions, entries.flatten(1)).unflatten(2, entries.shape[1:])
    if module.shape.self_attention:
        neighbors = module.mix(neighbors, mask)
    if module.shape.dot_product:  # twice, as in the square of a difference
        return -2.0 * (queries[:, None] * neighbors).sum(-1).transpose(1, 2)
    return (queries[:, None] - neighbors).square().sum(-1).transpose(1, 2)  # (B, H, K)
