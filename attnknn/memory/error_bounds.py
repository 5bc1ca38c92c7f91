"""How far a float32 matrix product may be off, so that what it rules out is ruled out for sure.

Write q for a query, e for an entry, and similarity for q·e − |e|²/2 (or q·e alone for the inner
product): the larger, the nearer. A float32 product of D terms is off by at most c·|q||e| with
c = (D + 8)·2⁻²⁴, in any order of summation, and |q||e| ≤ (|q|² + |e|²)/2. So

    similarity ≤ product − |e|²·(1/2 − c) + c·|q|²/2,

where the second term belongs to the entry, the *penalty*, and the third to the query, the *slack*.
An entry far from the origin thus widens nobody's bound but its own.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from attnknn.memory.distances import Vectors, squared_lengths
from attnknn.records import Floats, Integers

INPUT_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}  # float32, tf32, bfloat16
LARGEST = 2.0**120  # products beyond this may overflow float32
SMALLEST = 2.0**-120  # products below this may vanish


class Slack:
    """The bounds for one set of entries.

    Parameters
    ----------
    precision : what `torch.get_float32_matmul_precision()` says

    >>> slack = Slack(np.ones((2, 4), dtype=np.float32), "euclidean")
    >>> slack.penalties.round(4).tolist()
    [2.0, 2.0]
    """

    def __init__(self, vectors: Vectors, metric: str, precision: str = "highest") -> None:
        squares = squared_lengths(vectors)
        self.precision = precision
        self.is_inner_product = metric == "inner_product"
        self.share = (vectors.shape[1] + 8) * 2.0**-24 + INPUT_ROUNDING[precision]
        self.reach = float(np.sqrt(squares.max(initial=0.0)))
        with np.errstate(over="ignore"):
            self.penalties = (squares * (0.5 - self.share)).astype(np.float32)

    def joined(self, vectors: Vectors) -> Slack:
        """The bounds for these entries and more."""
        more = Slack(vectors, "inner_product" if self.is_inner_product else "", self.precision)
        return self._with(
            np.concatenate([self.penalties, more.penalties]), max(self.reach, more.reach)
        )

    def without(self, positions: Integers) -> Slack:
        """The bounds for all but some; the longest may be gone, and is counted on all the same."""
        return self._with(np.delete(self.penalties, positions), self.reach)

    def _with(self, penalties: Vectors, reach: float) -> Slack:
        other = copy(self)
        other.penalties, other.reach = penalties, reach
        return other

    def overflows(self, queries: Vectors) -> bool:
        """Whether float32 may overflow, so that the bounds would mean nothing."""
        longest = float(np.sqrt(squared_lengths(queries).max(initial=0.0)))
        return max(self.reach, longest) * self.reach > LARGEST

    def threshold(self, queries: Vectors, kth_key: Floats) -> Vectors:
        """An entry whose product minus penalty is below this is farther than the k-th key."""
        squares = squared_lengths(queries)
        if self.is_inner_product:
            similarity, slack = -kth_key, self.share * np.sqrt(squares) * self.reach
        else:
            similarity, slack = (squares - kth_key) / 2, self.share * squares / 2
        with np.errstate(over="ignore"):
            lowest = (similarity - slack - SMALLEST).astype(np.float32)
        return np.nextafter(lowest, np.float32(-np.inf))


def product_error(queries: Vectors, kth_key: Floats, slack: Slack) -> Floats:
    """How far a key |q|² + |e|² − 2q·e from float32 may be off for an entry as near as the k-th.

    Such an entry is no longer than |q| plus its distance, so its length need not be known.
    """
    lengths = np.sqrt(squared_lengths(queries))
    if slack.is_inner_product:
        return slack.share * lengths * slack.reach + SMALLEST
    farthest = lengths + np.sqrt(np.where(kth_key < np.inf, kth_key, 0.0))
    return slack.share * 2 * (np.square(lengths) + np.square(farthest)) + SMALLEST
