"""Labels and probabilities to be judged, hard ones too."""

from __future__ import annotations

import numpy as np

HARD = {
    "sure and right": ([0, 1, 2], np.eye(3)),
    "sure and wrong": ([1, 2, 0], np.eye(3)),
    "one row": ([1], np.array([[0.25, 0.75]])),
    "one class": ([0, 0, 0], np.array([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]])),
    "all alike": ([0, 1, 2, 1], np.full((4, 3), 1 / 3)),
    "ties": ([0, 1, 1, 0, 1], np.array([[0.7, 0.3]] * 3 + [[0.4, 0.6]] * 2)),
}


def random_answers(seed, n=400, n_classes=5, sharpness=2.0):
    rng = np.random.default_rng(seed)
    scores = sharpness * rng.normal(size=(n, n_classes))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return rng.integers(0, n_classes, n), probabilities


def calibrated_answers(rng, n, too_high=0.0):
    """Two classes; class 0 comes `too_high` less often than its probability says."""
    confidence = rng.uniform(0.5 + too_high, 1.0, n)
    y = (rng.uniform(size=n) > confidence - too_high).astype(int)
    return y, np.column_stack([confidence, 1 - confidence])
