"""Labels and probabilities to be judged, hard ones too."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

HARD = {
    "sure and right": ([0, 1, 2], np.eye(3)),
    "sure and wrong": ([1, 2, 0], np.eye(3)),
    "one row": ([1], np.array([[0.25, 0.75]])),
    "one class": ([0, 0, 0], np.array([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]])),
    "all alike": ([0, 1, 2, 1], np.full((4, 3), 1 / 3)),
    "ties": ([0, 1, 1, 0, 1], np.array([[0.7, 0.3]] * 3 + [[0.4, 0.6]] * 2)),
    "one sure row": ([0], np.array([[1.0, 0.0, 0.0]])),
    "sure beside almost sure": ([0, 0, 1, 1], np.array([[1.0, 0.0], [0.99, 0.01]] * 2)),
    "empty bins": ([0, 1, 2, 0], np.array([[0.34, 0.33, 0.33], [0.01, 0.98, 0.01]] * 2)),
    "on the edges of bins": ([0, 0, 1, 1], np.array([[c, 1 - c] for c in (0.6, 0.8, 1.0, 0.2)])),
    "never the truth": ([0, 0, 1], np.array([[0.0, 0.0, 1.0], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])),
    "almost impossible": ([1, 0], np.array([[1 - 1e-16, 1e-16], [1e-300, 1.0]])),
}


@st.composite
def any_answers(draw):
    """Up to 40 rows of up to six classes; zeros, ones and equal probabilities are common."""
    n, n_classes = draw(st.integers(1, 40)), draw(st.integers(2, 6))
    raw = draw(
        hnp.arrays(np.float64, (n, n_classes), elements=st.floats(0, 1, allow_subnormal=False))
    )
    raw[raw.sum(axis=1) < 1e-6] = 1.0
    y = draw(hnp.arrays(np.int64, n, elements=st.integers(0, n_classes - 1)))
    return y, raw / raw.sum(axis=1, keepdims=True)


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
