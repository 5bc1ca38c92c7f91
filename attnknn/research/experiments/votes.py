"""Neighbors asked about several views of an image: shares averaged, then one map for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnknn.calibration import Calibration
from attnknn.ensembling import probabilities_of
from attnknn.fitting.fitting import FitSettings, fit_parts
from attnknn.fitting.views import views_factor
from attnknn.leave_one_out import Trust, judge
from attnknn.memory import make_entries, make_memory
from attnknn.pipeline import Parts
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

    def fitted(self, attention: Any, n_neighbors: int, seed: int) -> Parts:
        """Parts whose scalars are fitted on the held-out rows alone."""
        settings = FitSettings(n_neighbors, "auto", "auto", seed)
        return fit_parts(self.memory, self.counts, attention, settings, self.held_out).parts


def probabilities(parts: Parts, queries: Seen, calibration: Calibration | None = None) -> Floats:
    """Probabilities (n, C) of queries by their views, each view asked by itself."""
    answers = [parts.answer(parts.memory.prepare(view)) for view in queries]
    return probabilities_of(answers, calibration or parts.calibration)


def map_after_averaging(parts: Parts, kept: Remembered, views: Seen) -> Calibration:
    """The map for averaged shares, by the log-loss of the held-out rows, left out themselves."""
    assert kept.held_out is not None
    trust = None
    if parts.trust is not None:
        everyone = judge(kept.memory, kept.counts, parts.n_neighbors)
        trust = Trust(everyone, parts.attention.first_look_)
    factor = views_factor(parts, np.flatnonzero(kept.held_out), list(views), trust)
    return replace(parts.calibration, exponent=parts.calibration.exponent * factor)
