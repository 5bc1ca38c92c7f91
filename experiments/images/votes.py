"""Neighbors asked about several views of an image: shares averaged, then one map for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from attnknn.calibration import Calibration
from attnknn.ensembling import probabilities_of
from attnknn.leave_one_out import Trust, judge
from attnknn.memory import make_entries, make_memory
from attnknn.pipeline import Parts
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.fitting import FitSettings, fit_parts
from attnknn.training.views import views_factor

WIDEST = 3.0  # log of the largest exponent of a head, and of one over the smallest
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
    answers = [parts.answer(parts.memory.prepare(view)) for view in queries]
    return probabilities_of(answers, calibration or parts.calibration)


def map_after_averaging(parts: Parts, kept: Remembered, views: Views) -> Calibration:
    """The map for averaged shares, by the log-loss of the fresh rows, left out themselves."""
    trust = None
    if parts.trust is not None:
        everyone = judge(kept.memory, kept.counts, parts.n_neighbors)
        trust = Trust(everyone, parts.attention.first_look_)
    factor = views_factor(parts, np.flatnonzero(kept.fresh), list(views), trust)
    return replace(parts.calibration, exponent=parts.calibration.exponent * factor)


def head_with_noise(fresh: Floats, codes: Integers) -> Calibration:
    """The map and the label noise of a head by the likelihood of fresh rows' observed labels.

    What the votes get, for the head: its temperature alone would make it as unsure as its labels
    are wrong.
    """

    def loss(numbers: Floats) -> float:
        return float(Calibration(np.exp(numbers[0]), numbers[1]).losses(fresh, codes).mean())

    bounds = [(-WIDEST, WIDEST), (0.0, 0.9)]
    best = minimize(loss, np.array([0.0, 0.1]), method="Nelder-Mead", bounds=bounds).x
    return Calibration(float(np.exp(best[0])), float(best[1]))
