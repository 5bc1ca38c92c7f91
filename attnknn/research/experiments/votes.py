"""Neighbors asked about several views of an image: shares averaged, then one map for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnknn.calibration import Calibration
from attnknn.encoders import IdentityEncoder
from attnknn.fitting.fitting import FitSettings, fit_model
from attnknn.fitting.views import views_factor
from attnknn.memory import make_entries, make_memory
from attnknn.model import FittedModel, average_probabilities
from attnknn.records import Booleans, Floats, Integers
from attnknn.research.experiments.scenes import Scene, Seen


@dataclass(frozen=True)
class Remembered:
    """All training rows in a memory, as they are seen without a change."""

    memory: Any
    counts: Integers
    held_out: Booleans | None

    @classmethod
    def of(cls, scene: Scene) -> Remembered:
        """The entries of a scene; classes without a row are counted too."""
        entries = make_entries(scene.entries, scene.codes)
        memory = make_memory("torch").remember(entries, "euclidean")
        return cls(memory, np.bincount(scene.codes, minlength=scene.n_classes), scene.held_out)

    def fitted(self, attention: Any, n_neighbors: int, seed: int) -> FittedModel:
        """Parts whose scalars are fitted on the held-out rows alone."""
        settings = FitSettings(n_neighbors, "auto", "auto", seed)
        classes = np.arange(len(self.counts))
        encoder = IdentityEncoder()
        return fit_model(encoder, self.memory, classes, attention, settings, self.held_out)


def probabilities(
    parts: FittedModel, queries: Seen, calibration: Calibration | None = None
) -> Floats:
    """Probabilities (n, C) of queries by their views, each view asked by itself."""
    answers = [parts.answer(parts.memory.prepare(view)) for view in queries]
    return average_probabilities(answers, calibration or parts.calibration)


def map_after_averaging(parts: FittedModel, kept: Remembered, views: Seen) -> Calibration:
    """The map for averaged shares, by the log-loss of the held-out rows, left out themselves."""
    assert kept.held_out is not None
    factor = views_factor(parts, np.flatnonzero(kept.held_out), list(views))
    return replace(parts.calibration, exponent=parts.calibration.exponent * factor)
