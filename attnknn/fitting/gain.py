"""How much better one answer is than another, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnknn.fitting.holdout import clusters_of
from attnknn.records import Floats, Integers


@dataclass(frozen=True)
class Gain:
    """The mean of gains over rows, and its standard error; rows of a group err together.

    >>> print(Gain.of(np.array([0.1, 0.3]), np.array([-1, -1])))
    gain +0.2000 ± 0.0707
    """

    mean: float
    error: float

    @classmethod
    def of(cls, gains: Floats, groups: Integers) -> Gain:
        """From the gain (n,) of each row; -1 is no group."""
        mean = float(gains.mean())
        together = np.bincount(clusters_of(groups), gains - mean)
        return cls(mean, math.sqrt(np.square(together).sum()) / len(gains))

    def __str__(self) -> str:
        return f"gain {self.mean:+.4f} ± {self.error:.4f}"
