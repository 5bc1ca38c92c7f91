"""Sets of classes in place of one: how often the truth is inside, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import InvalidInputError
from attnknn.metrics.checking import codes_of
from attnknn.records import Booleans


def set_coverage(
    y_true: ArrayLike, sets: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Share of rows whose set holds the true class. The nearer to what was promised the better.

    Parameters
    ----------
    sets : (n, C) True where a class is in the set of a row

    >>> set_coverage([0, 1, 1], [[True, False], [True, True], [True, False]])
    0.6666666666666666
    """
    members = _members(sets)
    codes = codes_of(y_true, members.shape, classes)
    return float(members[np.arange(len(codes)), codes].mean())


def set_size(sets: ArrayLike) -> float:
    """Mean number of classes in a set. Lower is better, at the same coverage, 0..C.

    >>> set_size([[True, False], [True, True], [True, False]])
    1.3333333333333333
    """
    return float(_members(sets).sum(axis=1).mean())


def _members(sets: ArrayLike) -> Booleans:
    members = np.asarray(sets)
    if members.dtype != bool or members.ndim != 2 or not members.size:
        raise InvalidInputError(
            "`sets` must be booleans of the shape (rows, classes) with at least one of each, got "
            f"{members.dtype} of the shape {members.shape}."
        )
    return members
