"""The rows of each class that are set apart, drawn by name: the same on every machine, for good."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from attnknn.records import Booleans, Integers


def fifth_of(y: Integers, name: str) -> Booleans:
    """True for a fifth of the rows of each class, rounded; a class of one or two rows gives none.

    Which rows depends on `name`, their places and their labels, and on no generator of random
    numbers, whose streams may change between versions.

    >>> fifth_of(np.repeat([0, 1, 2], [10, 3, 2]), "iris").nonzero()[0].tolist()
    [1, 8, 10]
    """
    drawn = np.argsort(lots(name, len(y)), kind="stable")
    by_class = drawn[np.argsort(y[drawn], kind="stable")]
    counts = np.unique(y, return_counts=True)[1]
    place = np.arange(len(y)) - np.repeat(counts.cumsum() - counts, counts)  # within its class
    is_chosen = np.zeros(len(y), dtype=bool)
    is_chosen[by_class] = place < np.repeat((counts + 2) // 5, counts)
    return is_chosen


def lots(name: str, n: int) -> Integers:
    """A number for each of `n` rows, by which they are drawn."""
    hashed = (blake2b(f"{name} {row}".encode(), digest_size=8).digest() for row in range(n))
    return np.frombuffer(b"".join(hashed), dtype=">i8").astype(np.int64)
