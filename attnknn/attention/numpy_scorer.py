"""The learned scores of a few queries in numpy: torch's operations take longer to begin than to do.

`attnknn.attention.scores` is the reference, with which this agrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attnknn.attention.base import NeighborBatch, Scores
from attnknn.attention.scores import KNOTS, PRIOR_REACH, NeighborScores
from attnknn.records import Floats, Integers


@dataclass(frozen=True)
class NumpyScorer:
    """A trained module as arrays, with everything done that is the same for all queries.

    Parts that the module does not have are None. Neighbors are not mixed among themselves.
    """

    unit: float
    projection: NDArray[np.float32]  # (D, H E)
    slope: Floats  # (H, 1)
    temperature: Floats
    bends: Floats | None  # (H, 1, knots) of the distance bias
    support: Floats | None
    trust: Floats | None
    # directions (D, C) of the classes, and the factor (H, 1) of the cosine with them
    prototypes: tuple[Floats, Floats] | None
    prior: Floats  # (H,)
    query_prior: tuple[Floats, Floats] | None  # (D, H) and (H,)

    def scores(
        self,
        batch: NeighborBatch,
        support: Floats,
        entries: NDArray[np.float32],
        places: Integers,
    ) -> Scores:
        """Scores of the neighbors, given their support (B, K) and projected entries (N, H, E).

        `places` (B, K): the row of each neighbor in `entries`.
        """
        queries, neighbors = batch.queries, batch.neighbors
        squared = np.where(neighbors.mask, batch.squared, 0.0)[:, None] / self.unit
        learned = self._learned(queries, entries[places])
        scores = -learned / self.unit - self.slope * squared
        if self.bends is not None:
            scores -= _distance_bias(squared, self.bends)
        if self.support is not None:
            scores += self.support * support[:, None]
        if self.trust is not None and batch.trust is not None:
            scores += self.trust * batch.trust[:, None]
        if self.prototypes is not None:
            directions, slope = self.prototypes
            cosines = _directions(queries) @ directions
            scores += slope * np.take_along_axis(cosines, neighbors.labels, 1)[:, None]
        return Scores(scores / self.temperature, self._prior(queries))

    def _learned(self, queries: NDArray[np.float32], neighbors: NDArray[np.float32]) -> Floats:
        """Squared distances (B, H, K) of the queries to projected neighbors (B, K, H, E)."""
        projected = (queries @ self.projection).reshape(len(queries), 1, *neighbors.shape[2:])
        away = neighbors - projected
        return np.einsum("bkhe,bkhe->bhk", away, away).astype(np.float64)

    def _prior(self, queries: NDArray[np.float32]) -> Floats:
        prior = np.tile(self.prior, (len(queries), 1))
        if self.query_prior is not None:
            weight, bias = self.query_prior
            prior = prior + PRIOR_REACH * np.tanh(queries @ weight + bias)
        return prior


_known: WeakKeyDictionary[NeighborScores, NumpyScorer] = WeakKeyDictionary()


def numpy_scorer(module: NeighborScores) -> NumpyScorer:
    """A module that is no longer trained as arrays; made once, and kept as long as the module."""
    found = _known.get(module)
    if found is None:
        found = _known[module] = _build(module)
    return found


def _build(module: NeighborScores) -> NumpyScorer:
    has = module.shape

    def column(name: str, is_there: bool) -> Any:
        return _array(getattr(module, name))[:, None] if is_there else None

    prototypes = query_prior = None
    with torch.no_grad():
        if has.prototypes:
            directions = _array(F.normalize(module.prototypes, dim=1).T)
            prototypes = directions, column("prototype_slope", True)
        if has.query_prior:
            query_prior = _array(module.query_prior.weight.T), _array(module.query_prior.bias)
        return NumpyScorer(
            unit=float(module.unit),
            projection=_array(module.scaled_projection.flatten(0, 1).T),
            slope=_array(F.softplus(module.raw_slope))[:, None],
            temperature=_array(module.temperatures)[:, None],
            bends=_array(F.softplus(module.raw_bends))[:, None] if has.distance_bias else None,
            support=column("support_slope", has.support),
            trust=column("trust_slope", has.trust),
            prototypes=prototypes,
            prior=_array(module.prior_score),
            query_prior=query_prior,
        )


def _array(value: Tensor) -> Any:
    return value.detach().contiguous().numpy()


def _distance_bias(squared: Floats, bends: Floats) -> Floats:
    distance = np.sqrt(np.maximum(squared, 0.0) + 1e-12)[..., None]  # (B, 1, K, 1)
    rise: Floats = (bends * np.maximum(distance - KNOTS, 0.0)).sum(axis=-1)
    return rise


def _directions(vectors: NDArray[np.float32]) -> Floats:
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    return vectors / np.maximum(lengths, 1e-12)
