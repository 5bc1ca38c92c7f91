"""Error bounds of float32 matrix products, so that a product can rule entries out safely.

Write q for a query, e for an entry, and similarity for q·e − |e|²/2 (or q·e alone for the inner
product): the larger, the nearer. A float32 product of D terms has an error of at most c·|q||e| with
c = (D + 8)·2⁻²⁴, in any order of summation, and |q||e| ≤ (|q|² + |e|²)/2. So

    similarity ≤ product − |e|²·(1/2 − c) + c·|q|²/2,

where the second term depends on the entry only, the *penalty*, and the third on the query only.
An entry far from the origin thus widens no bound but its own.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from attnknn.memory.distances import Vectors, squared_lengths
from attnknn.records import Floats, Integers

INPUT_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}  # float32, tf32, bfloat16
MAX_PRODUCT = 2.0**120  # larger products may overflow float32
MIN_PRODUCT = 2.0**-120  # smaller products may underflow


class ErrorBounds:
    """The bounds for one set of entries.

    Parameters
    ----------
    vectors : prepared vectors (N, D) of the entries
    metric : metric of the memory
    precision : value of `torch.get_float32_matmul_precision()`

    >>> bounds = ErrorBounds(np.ones((2, 4), dtype=np.float32), "euclidean")
    >>> bounds.penalties.round(4).tolist()
    [2.0, 2.0]
    """

    def __init__(self, vectors: Vectors, metric: str, precision: str = "highest") -> None:
        squares = squared_lengths(vectors)
        self.precision = precision
        self.is_inner_product = metric == "inner_product"
        self.relative_error = (vectors.shape[1] + 8) * 2.0**-24 + INPUT_ROUNDING[precision]
        self.max_length = float(np.sqrt(squares.max(initial=0.0)))
        with np.errstate(over="ignore"):
            self.penalties = (squares * (0.5 - self.relative_error)).astype(np.float32)

    def joined(self, vectors: Vectors) -> ErrorBounds:
        """The bounds for these entries and more."""
        more = ErrorBounds(
            vectors, "inner_product" if self.is_inner_product else "", self.precision
        )
        joined = copy(self)
        joined.penalties = np.concatenate([self.penalties, more.penalties])
        joined.max_length = max(self.max_length, more.max_length)
        return joined

    def without(self, positions: Integers) -> ErrorBounds:
        """The bounds for all entries but some; the maximum length is kept as an upper bound."""
        fewer = copy(self)
        fewer.penalties = np.delete(self.penalties, positions)
        return fewer

    def overflows(self, queries: Vectors) -> bool:
        """Whether float32 may overflow, so that the bounds do not hold."""
        longest = float(np.sqrt(squared_lengths(queries).max(initial=0.0)))
        return max(self.max_length, longest) * self.max_length > MAX_PRODUCT

    def threshold(self, queries: Vectors, kth_key: Floats) -> Vectors:
        """An entry whose product minus penalty is below this is farther than the k-th key."""
        squares = squared_lengths(queries)
        if self.is_inner_product:
            similarity = -kth_key
            error = self.relative_error * np.sqrt(squares) * self.max_length
        else:
            similarity, error = (squares - kth_key) / 2, self.relative_error * squares / 2
        with np.errstate(over="ignore"):
            lowest = (similarity - error - MIN_PRODUCT).astype(np.float32)
        return np.nextafter(lowest, np.float32(-np.inf))

    def key_error(self, queries: Vectors, kth_key: Floats) -> Floats:
        """Largest error of a float32 key |q|² + |e|² − 2q·e, for entries as near as the k-th.

        Such an entry is no longer than |q| plus its distance, so its length need not be known.
        """
        lengths = np.sqrt(squared_lengths(queries))
        if self.is_inner_product:
            return self.relative_error * lengths * self.max_length + MIN_PRODUCT
        farthest = lengths + np.sqrt(np.where(kth_key < np.inf, kth_key, 0.0))
        return self.relative_error * 2 * (np.square(lengths) + np.square(farthest)) + MIN_PRODUCT
