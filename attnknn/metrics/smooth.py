"""Calibration error without bins: gaps smoothed by a kernel that is as wide as the error itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct, idct

from attnknn.metrics.checking import checked
from attnknn.records import Floats

N_CELLS = 4096  # into which 0..1 is cut; a width below a few cells would not be seen
NARROWEST = 4 / N_CELLS
N_HALVINGS = 40


def smooth_ece(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Smooth calibration error of confidences (Błasiok and Nakkiran 2023). Lower is better, 0..1.

    With a Gaussian kernel K_σ reflected at 0 and 1, confidences c and rightness a (0 or 1),

        smECE_σ = ∫ |(1/n) Σᵢ K_σ(t, cᵢ)·(aᵢ − cᵢ)| dt,

    and the result is the σ for which smECE_σ = σ. It has no bins, moves continuously with the
    probabilities, and is within a constant factor of the distance to perfect calibration. Below
    0.001 the kernel stays that wide.

    >>> round(smooth_ece([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 3)
    0.166
    """
    codes, table = checked(y_true, probabilities, classes)
    confidence = table.max(axis=1)
    is_right = (table.argmax(axis=1) == codes).astype(np.float64)
    return _fixed_point(_on_cells(confidence, is_right - confidence))


def _on_cells(confidence: Floats, gaps: Floats) -> Floats:
    """The gaps of all rows, each shared by the two cells it lies between."""
    place = np.clip(confidence * N_CELLS - 0.5, 0, N_CELLS - 1)
    left = np.minimum(place.astype(np.int64), N_CELLS - 2)
    right_share = place - left
    cells = np.bincount(left, weights=gaps * (1 - right_share), minlength=N_CELLS)
    cells += np.bincount(left + 1, weights=gaps * right_share, minlength=N_CELLS)
    return cells / len(gaps)


def _fixed_point(cells: Floats) -> float:
    """The width at which the error is as large as the width; the error falls with the width."""
    waves = dct(cells, norm="ortho")
    low, high = NARROWEST, 1.0
    if _error(waves, low) <= low:
        return _error(waves, low)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _error(waves, middle) > middle else (low, middle)
    return _error(waves, high)


def _error(waves: Floats, width: float) -> float:
    """A reflected Gaussian makes each cosine of the cells smaller, the faster ones more."""
    damping = np.exp(-((np.pi * width * np.arange(len(waves))) ** 2) / 2)
    return min(1.0, float(np.abs(idct(waves * damping, norm="ortho")).sum()))
