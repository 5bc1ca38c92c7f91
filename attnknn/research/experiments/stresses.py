"""Damage to training rows and to test images as settings that can say what they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import check_choice
from attnknn.errors import InvalidSettingError
from attnknn.records import Integers
from attnknn.research.evaluation.shift import SEVERITIES, SHIFTS, shifted
from attnknn.research.evaluation.stress import NOISES, few_shots, long_tail

Kind = Literal["none", "symmetric", "asymmetric", "imbalance", "shots"]
KINDS = ("none", "symmetric", "asymmetric", "imbalance", "shots")


@dataclass(frozen=True)
class Stress:
    """What is done to the training rows of a run before anything is fitted.

    Parameters
    ----------
    kind : 'symmetric' or 'asymmetric' label noise, 'imbalance', few 'shots', or 'none'
    level : the rate of the noise; how much rarer the last class is; rows that stay of each class

    >>> Stress("symmetric", 0.3).words
    '30 % symmetric noise'
    """

    kind: Kind = "none"
    level: float = 0.0

    def __post_init__(self) -> None:
        check_choice("kind of stress", self.kind, KINDS)
        if self.kind in NOISES and not 0 <= self.level <= 1:
            raise InvalidSettingError(f"The rate of noise must lie in 0..1, got {self.level:g}.")
        if self.kind in ("imbalance", "shots") and not self.level >= 1:
            raise InvalidSettingError(
                f"The level of '{self.kind}' must be at least 1, got {self.level:g}."
            )
        if self.kind == "shots" and not float(self.level).is_integer():
            raise InvalidSettingError(
                f"The level of 'shots' must be a whole number of rows, got {self.level:g}."
            )

    @property
    def is_about_noise(self) -> bool:
        """Whether this is a rate of label noise, be it 0."""
        return self.kind in NOISES

    @property
    def does_nothing(self) -> bool:
        """Whether the rows stay as they are."""
        return self.kind == "none" or (self.kind in NOISES and self.level == 0)

    @property
    def name(self) -> str:
        """A word for folders; '' where nothing is done."""
        return "" if self.does_nothing else f"{self.kind}-{self.level:g}"

    @property
    def words(self) -> str:
        """What was done, for people; '' for nothing."""
        if self.does_nothing:
            return ""
        if self.kind in NOISES:
            return f"{100 * self.level:g} % {self.kind} noise"
        if self.kind == "shots":
            return f"{self.level:g} rows of each class"
        return f"the last class {self.level:g} times rarer than the first"

    def apply(self, codes: Integers, n_classes: int, seed: int) -> Damaged:
        """Which rows stay, and their labels.

        >>> rare = Stress("imbalance", 10).apply(np.repeat([0, 1], 20), 2, seed=0)
        >>> np.bincount(rare.codes).tolist()
        [20, 2]
        """
        everyone = np.arange(len(codes))
        if self.does_nothing:
            return Damaged(everyone, codes)
        if self.kind in NOISES:
            noisy = NOISES[self.kind](codes, self.level, random_state=seed, n_classes=n_classes)
            return Damaged(everyone, noisy)
        if self.kind == "shots":
            rows = few_shots(codes, int(self.level), random_state=seed)
        else:
            rows = long_tail(codes, self.level, random_state=seed, n_classes=n_classes)
        return Damaged(rows, codes[rows])


@dataclass(frozen=True)
class Shift:
    """What is done to the test images, after everything was fitted on images as they are.

    Parameters
    ----------
    kind : 'noise', 'blur' or 'contrast'
    severity : 1 to 5; 0 leaves images as they are

    >>> Shift("blur", 3).words
    'test images with blur 3 of 5'
    """

    kind: str = "noise"
    severity: int = 0

    def __post_init__(self) -> None:
        check_choice("kind of shift", self.kind, SHIFTS)
        if not isinstance(self.severity, int) or self.severity not in (0, *SEVERITIES):
            raise InvalidSettingError(
                f"The severity of a shift must be an integer from 0 to 5, got {self.severity!r}."
            )

    @property
    def words(self) -> str:
        """What was done, for people; '' for nothing."""
        return f"test images with {self.kind} {self.severity} of 5" if self.severity else ""

    def apply(self, images: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
        """The images, damaged."""
        if not self.severity:
            return images
        return shifted(images, self.kind, self.severity, random_state=seed)


NO_SHIFT = Shift()


@dataclass(frozen=True, eq=False)
class Damaged:
    """The places of the rows that stay, and their labels."""

    rows: Integers
    codes: Integers

    def take(self, X: Any) -> Any:
        """The rows that stay, of a table or an array."""
        return X.iloc[self.rows] if hasattr(X, "iloc") else np.asarray(X)[self.rows]
