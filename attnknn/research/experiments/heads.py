"""The CNN head of a training as a method of its tables, treated as the votes are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from attnknn.calibration import Calibration
from attnknn.records import Floats, Integers
from attnknn.research.experiments.clock import Clock
from attnknn.research.experiments.found import Found
from attnknn.research.experiments.pictures import Trained

WIDEST = 3.0  # log of the largest exponent of a head, and of one over the smallest
Features = NDArray[np.float32]  # (V, n, width)


def head_answers(
    trained: Trained, asked: Features, seen: Features, *, has_noise: bool
) -> Iterator[Found]:
    """The head with one view and with all; its temperature is fitted on held-out rows afterward."""
    codes = trained.codes[trained.held_out]
    for views, n_views in (("", 1), (", views", len(asked))):
        clock = Clock()
        head = trained.baseline.fit_on_features(seen[:n_views], codes)
        fitting = clock.lap()
        answers = head.probabilities_of(asked[:n_views])
        answering = clock.lap()
        chosen = {"temperature": head.temperature}
        yield Found(f"CNN head{views}", answers, chosen, fitting, answering)
        if has_noise:
            clock.lap()
            known = head_with_noise(head.probabilities_of(seen[:n_views]), codes)
            fitting += clock.lap()
            chosen = {"exponent": known.exponent, "label_noise": known.label_noise}
            better = known.probabilities(answers)
            name = f"CNN head, noise model{views}"
            yield Found(name, better, chosen, fitting, answering + clock.lap())


def head_with_noise(held_out: Floats, codes: Integers) -> Calibration:
    """The map and the label noise of a head by the likelihood of held-out rows' observed labels.

    What the votes get, for the head: its temperature alone would make it as unsure as its labels
    are wrong.
    """

    def loss(numbers: Floats) -> float:
        return float(Calibration(np.exp(numbers[0]), numbers[1]).losses(held_out, codes).mean())

    bounds = [(-WIDEST, WIDEST), (0.0, 0.9)]
    best = minimize(loss, np.array([0.0, 0.1]), method="Nelder-Mead", bounds=bounds).x
    return Calibration(float(np.exp(best[0])), float(best[1]))
