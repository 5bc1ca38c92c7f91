"""The Brier score in parts: what is promised wrongly, what is told apart, what is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.metrics.bins import check_bins
from attnknn.metrics.checking import checked
from attnknn.records import Floats


@dataclass(frozen=True)
class BrierParts:
    """brier = reliability − resolution + uncertainty + within, summed over the classes.

    Parameters
    ----------
    reliability : how far promised shares are from those that came, lower is better
    resolution : how far the shares of different promises are apart, higher is better
    uncertainty : the score of the class shares alone, given by the labels
    within : what differs inside bins: the spread of promises, less twice what of it came true;
        zero where every bin holds one promise
    """

    reliability: float
    resolution: float
    uncertainty: float
    within: float

    @property
    def brier(self) -> float:
        """The Brier score."""
        return self.reliability - self.resolution + self.uncertainty + self.within


def brier_parts(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    classes: Sequence[Any] | None = None,
) -> BrierParts:
    """The parts of `brier` (Murphy 1973; within bins, Stephenson et al. 2008). They sum to it.

    For each class, rows are put into `n_bins` bins of equal width by its probability p. With o the
    share of rows that are of the class, n_b, p_b and o_b those of bin b:

    - reliability = Σ_b (n_b/n)·(p_b − o_b)², resolution = Σ_b (n_b/n)·(o_b − o)²,
    - uncertainty = o·(1 − o), within = mean of (p − p_b)² − 2·(p − p_b)·([true] − o_b).

    >>> parts = brier_parts([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> round(parts.reliability, 4), round(parts.uncertainty, 4), round(parts.brier, 4)
    (0.2733, 0.4444, 0.2733)
    """
    check_bins(n_bins)
    codes, table = checked(y_true, probabilities, classes)
    parts = np.zeros(4)
    for column in range(table.shape[1]):
        parts += _parts(table[:, column], (codes == column).astype(np.float64), n_bins)
    return BrierParts(*parts.tolist())


def _parts(promised: Floats, came: Floats, n_bins: int) -> Floats:
    """Of one class."""
    place = np.minimum((promised * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    weight = counts / len(place)
    with np.errstate(invalid="ignore"):  # an empty bin weighs nothing
        of_promised, of_came = (
            np.nan_to_num(np.bincount(place, weights=values, minlength=n_bins) / counts)
            for values in (promised, came)
        )
    share = came.mean()
    spread = promised - of_promised[place]
    within = (spread**2 - 2 * spread * (came - of_came[place])).mean()
    return np.array(
        [
            weight @ (of_promised - of_came) ** 2,
            weight @ (of_came - share) ** 2,
            share * (1 - share),
            within,
        ]
    )
