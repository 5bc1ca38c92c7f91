"""Fits the probability map for test-time augmentation: after averaging views, not before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from attnknn.calibration.likelihood import PENALTY, pseudo_row_loss
from attnknn.model import FittedModel
from attnknn.records import Integers
from attnknn.vote import class_prior

MAX_ROWS = 5_000  # one scalar needs no more, and each is embedded once for each view
MAX_LOG_FACTOR = 2.0


def views_factor(parts: FittedModel, rows: Integers, views: Sequence[NDArray[np.float32]]) -> float:
    """The factor of the exponent (γ) under which averaged shares predict held-out rows best.

    `rows` (n,): positions of held-out entries; `views`: V embeddings (n, D) of these entries as
    queries; each is left out of its neighbors.
    """
    own = parts.memory.entries.labels[rows]
    prior = class_prior(parts.counts)
    prepared = (parts.memory.prepare(view) for view in views)
    shares = np.mean([parts.left_out_view_shares(rows, view) for view in prepared], axis=0)

    def loss(log_factor: float) -> float:
        exponent = parts.calibration.exponent * float(np.exp(log_factor))
        found = replace(parts.calibration, exponent=exponent)
        observed = found.observed(found.probabilities(shares))
        surprise = pseudo_row_loss(observed, prior)
        return float(found.losses(shares, own).sum() + surprise + 0.5 * PENALTY * log_factor**2)

    found = minimize_scalar(loss, bounds=(-MAX_LOG_FACTOR, MAX_LOG_FACTOR), method="bounded")
    return float(np.exp(found.x))
