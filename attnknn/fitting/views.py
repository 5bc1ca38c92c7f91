"""Fits the probability map for test-time augmentation: after averaging views, not before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from attnknn.attention.base import NeighborBatch
from attnknn.calibration.likelihood import PENALTY, pseudo_row_loss
from attnknn.model import FittedModel
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior, vote

MAX_ROWS = 5_000  # one scalar needs no more, and each is embedded once for each view
MAX_LOG_FACTOR = 2.0


def views_factor(parts: FittedModel, rows: Integers, views: Sequence[NDArray[np.float32]]) -> float:
    """The factor of the exponent (γ) under which averaged shares predict held-out rows best.

    `rows` (n,): positions of held-out entries; `views`: V embeddings (n, D) of these entries as
    queries; each is left out of its neighbors.
    """
    own = parts.memory.entries.labels[rows]
    prior = class_prior(parts.counts)
    shares = np.mean([left_out_shares(parts, rows, view) for view in views], axis=0)

    def loss(log_factor: float) -> float:
        exponent = parts.calibration.exponent * float(np.exp(log_factor))
        found = replace(parts.calibration, exponent=exponent)
        observed = found.observed(found.probabilities(shares))
        surprise = pseudo_row_loss(observed, prior)
        return float(found.losses(shares, own).sum() + surprise + 0.5 * PENALTY * log_factor**2)

    found = minimize_scalar(loss, bounds=(-MAX_LOG_FACTOR, MAX_LOG_FACTOR), method="bounded")
    return float(np.exp(found.x))


def left_out_shares(parts: FittedModel, rows: Integers, view: NDArray[np.float32]) -> Floats:
    """Vote shares (n, C) of entries in another view, each left out of its own neighbors."""
    memory, trust = parts.memory, parts.trust()
    queries = memory.prepare(view)
    neighbors = memory.search_prepared(queries, parts.n_neighbors, exclude=rows)
    values = None if trust is None else trust.without(rows, neighbors)
    weights = parts.attention.weigh(NeighborBatch.of(queries, neighbors, memory, values))
    return vote(neighbors.labels, weights, class_prior(parts.counts, memory.entries.labels[rows]))
