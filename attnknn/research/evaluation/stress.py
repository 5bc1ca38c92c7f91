"""Damage done on purpose: label noise, rare classes and few rows, before anything is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name
from attnknn.records import Integers

Seed = int | np.random.Generator | None


def symmetric_noise(
    y: ArrayLike, rate: float, *, random_state: Seed = None, n_classes: int | None = None
) -> Integers:
    """New labels: each one becomes, with probability `rate`, any other class alike.

    Parameters
    ----------
    y : (N,) label codes; they stay as they are
    rate : 0..1; at (C−1)/C the labels tell nothing any more
    n_classes : C, by default the largest code plus one

    Examples
    --------
    >>> symmetric_noise([0, 1, 2, 0, 1, 2], 0.5, random_state=0)
    array([0, 0, 1, 2, 1, 2])
    """
    codes, n_classes = _checked(y, rate, n_classes)
    rng = np.random.default_rng(random_state)
    is_wrong = rng.random(len(codes)) < rate
    steps = rng.integers(1, n_classes, len(codes))
    return np.where(is_wrong, (codes + steps) % n_classes, codes)


def asymmetric_noise(
    y: ArrayLike, rate: float, *, random_state: Seed = None, n_classes: int | None = None
) -> Integers:
    """New labels: each one becomes, with probability `rate`, the next class (the last the first).

    Harder than symmetric noise: from a rate of ½ the wrong class is the most frequent one.

    >>> asymmetric_noise([0, 1, 2, 0, 1, 2], 1.0, random_state=0)
    array([1, 2, 0, 1, 2, 0])
    """
    codes, n_classes = _checked(y, rate, n_classes)
    rng = np.random.default_rng(random_state)
    is_wrong = rng.random(len(codes)) < rate
    return np.where(is_wrong, (codes + 1) % n_classes, codes)


def long_tail(
    y: ArrayLike, ratio: float, *, random_state: Seed = None, n_classes: int | None = None
) -> Integers:
    """Rows that stay, sorted, so that each class is rarer than the one before.

    Counts fall geometrically from the first class, of which as many stay as the smallest class
    has, to the last, of which one in `ratio` of these stays, and at least one.

    Parameters
    ----------
    n_classes : C, by default the largest code plus one; each class must have a row

    >>> y = np.repeat([0, 1, 2], 100)
    >>> np.bincount(y[long_tail(y, 100, random_state=0)]).tolist()
    [100, 10, 1]
    """
    codes, n_classes = _checked(y, 0.0, n_classes)
    if not ratio >= 1:
        raise InvalidSettingError(f"`ratio` must be at least 1, got {ratio}.")
    rng = np.random.default_rng(random_state)
    sizes = np.bincount(codes, minlength=n_classes)
    most = sizes.min()
    if not most:
        raise InvalidInputError(
            f"Every class must have a row for classes to become rare, code {int(sizes.argmin())} "
            "has none. Take more rows."
        )
    counts = np.maximum(1, np.round(most * ratio ** -np.linspace(0, 1, n_classes))).astype(int)
    drawn = [
        rng.permutation(np.flatnonzero(codes == code))[:count] for code, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(drawn))


def few_shots(y: ArrayLike, n_shots: int, *, random_state: Seed = None) -> Integers:
    """Rows that stay, sorted: `n_shots` of each class, or all of a class that has fewer.

    >>> y = np.repeat([0, 1, 2], [5, 50, 2])
    >>> np.bincount(y[few_shots(y, 3, random_state=0)]).tolist()
    [3, 3, 2]
    """
    codes, n_classes = _checked(y, 0.0, None)
    if n_shots < 1:
        raise InvalidSettingError(f"`n_shots` must be an integer of at least 1, got {n_shots}.")
    rng = np.random.default_rng(random_state)
    drawn = [rng.permutation(np.flatnonzero(codes == code))[:n_shots] for code in range(n_classes)]
    return np.sort(np.concatenate(drawn))


NOISES = {"symmetric": symmetric_noise, "asymmetric": asymmetric_noise}


@dataclass(frozen=True)
class LabelNoise:
    """Label noise as `protocol.run(corrupt=...)` wants it: a function that can say what it does.

    >>> LabelNoise(0.3)
    LabelNoise(rate=0.3, kind='symmetric')
    >>> LabelNoise(1.0, "asymmetric")(np.array([0, 1]), 0)
    array([1, 0])
    """

    rate: float
    kind: Literal["symmetric", "asymmetric"] = "symmetric"

    def __call__(self, y: Integers, seed: int) -> Integers:
        if self.kind not in NOISES:
            raise unknown_name("noise", self.kind, NOISES)
        return NOISES[self.kind](y, self.rate, random_state=seed)


def _checked(y: ArrayLike, rate: float, n_classes: int | None) -> tuple[Integers, int]:
    codes = np.asarray(y)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or (codes < 0).any():
        raise InvalidInputError("`y` must be one row of label codes, integers of at least 0.")
    if not 0 <= rate <= 1:
        raise InvalidSettingError(f"`rate` must lie between 0 and 1, got {rate}.")
    largest = int(codes.max(initial=0)) + 1
    found = largest if n_classes is None else n_classes
    if found < max(2, largest):
        raise InvalidSettingError(
            f"`n_classes` must be at least {max(2, largest)} for these labels, got {found}."
        )
    return codes.astype(np.int64), found
