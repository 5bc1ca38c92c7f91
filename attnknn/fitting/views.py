"""Fits the map for queries that are seen in several views: after averaging, not before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from attnknn.calibration.likelihood import PULL, surprise_of_any
from attnknn.leave_one_out import Trust
from attnknn.pipeline import Parts, make_neighbor_batch
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior, vote

MOST_ROWS = 5_000  # one scalar needs no more, and each is embedded once for each view
WIDEST = 2.0  # log of the largest factor, and of one over the smallest


def views_factor(
    parts: Parts, rows: Integers, views: Sequence[NDArray[np.float32]], trust: Trust | None
) -> float:
    """The factor of the map's exponent under which averaged shares predict held-out rows best.

    Parameters
    ----------
    rows : (n,) positions of entries that no learned part was trained on
    views : V of (n, D), how these entries are seen as queries; none finds itself
    """
    own = parts.memory.entries.labels[rows]
    prior = class_prior(parts.counts)
    shares = np.mean([left_out_shares(parts, rows, view, trust) for view in views], axis=0)

    def loss(log_factor: float) -> float:
        exponent = parts.calibration.exponent * float(np.exp(log_factor))
        found = replace(parts.calibration, exponent=exponent)
        observed = found.observed(found.probabilities(shares))
        surprise = surprise_of_any(observed, prior)
        return float(found.losses(shares, own).sum() + surprise + 0.5 * PULL * log_factor**2)

    found = minimize_scalar(loss, bounds=(-WIDEST, WIDEST), method="bounded")
    return float(np.exp(found.x))


def left_out_shares(
    parts: Parts, rows: Integers, view: NDArray[np.float32], trust: Trust | None
) -> Floats:
    """Shares (n, C) of entries seen in another view, each left out of its own neighbors."""
    memory = parts.memory
    queries = memory.prepare(view)
    neighbors = memory.search_prepared(queries, parts.n_neighbors, exclude=rows)
    values = None if trust is None else trust.without(rows, neighbors)
    weights = parts.attention.weigh(make_neighbor_batch(queries, neighbors, memory, values))
    return vote(neighbors.labels, weights, class_prior(parts.counts, memory.entries.labels[rows]))
