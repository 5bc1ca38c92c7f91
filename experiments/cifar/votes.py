"""Neighbors asked about several views of an image: shares averaged, then one map for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from attnknn.calibration import Calibration
from attnknn.leave_one_out import Trust, judge
from attnknn.memory import make_entries, make_memory
from attnknn.pipeline import Parts, situation_of
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.fitting import FitSettings, fit_parts
from attnknn.vote import class_prior, vote

Views = NDArray[np.float32]  # (V, n, D)


@dataclass(frozen=True)
class Remembered:
    """All training rows in a memory, as they are seen without a change."""

    memory: Any
    counts: Integers
    fresh: Booleans

    @classmethod
    def of(cls, embeddings: NDArray[np.float32], codes: Integers, fresh: Booleans) -> Remembered:
        memory = make_memory("torch").remember(make_entries(embeddings, codes), "euclidean")
        return cls(memory, np.bincount(codes), fresh)

    def fitted(self, attention: Any, n_neighbors: int, seed: int) -> Parts:
        """Parts whose scalars are fitted on the fresh rows alone."""
        settings = FitSettings(n_neighbors, "auto", "auto", seed, verbose=1)
        return fit_parts(self.memory, self.counts, attention, settings, self.fresh).parts


def probabilities(parts: Parts, queries: Views, calibration: Calibration | None = None) -> Floats:
    """Probabilities (n, C) of queries by their views, each view asked by itself."""
    prepared = (parts.memory.prepare(view) for view in queries)
    shares = np.mean([parts.answer(view).shares for view in prepared], axis=0)
    return (calibration or parts.calibration).probabilities(shares)


def map_after_averaging(parts: Parts, kept: Remembered, views: Views) -> Calibration:
    """The exponent for averaged shares, by the log-loss of the fresh rows, left out themselves."""
    rows = np.flatnonzero(kept.fresh)
    own = kept.memory.entries.labels[rows]
    trust = None
    if parts.trust is not None:
        everyone = judge(kept.memory, kept.counts, parts.n_neighbors)
        trust = Trust(everyone, parts.attention.first_look_)  # type: ignore[attr-defined]
    shares = np.mean([_left_out(parts, kept, view, rows, own, trust) for view in views], axis=0)
    noise = parts.calibration.label_noise

    def loss(log_exponent: float) -> float:
        calibration = Calibration(float(np.exp(log_exponent)), noise)
        return float(calibration.losses(shares, own).mean())

    found = minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded")
    return Calibration(float(np.exp(found.x)), noise)


def _left_out(
    parts: Parts,
    kept: Remembered,
    view: NDArray[np.float32],
    rows: Integers,
    own: Integers,
    trust: Trust | None,
) -> Floats:
    """Shares of entries seen in another view; none finds itself."""
    view = kept.memory.prepare(view)
    neighbors = kept.memory.search_prepared(view, parts.n_neighbors, exclude=rows)
    values = None if trust is None else trust.without(rows, neighbors)
    situation = situation_of(view, neighbors, kept.memory, values)
    weights = parts.attention.weigh(situation)
    return vote(neighbors.labels, weights, class_prior(kept.counts, own))
