"""Validation of settings, rows and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name


def check_at_least(name: str, value: Any, least: int) -> int:
    """Return the integer `value`, or raise an error that names the setting.

    >>> check_at_least("n_neighbors", 3, 1)
    3
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InvalidSettingError(
            f"`{name}` must be an integer of at least {least}, got {value!r}."
        )
    return int(value)


@dataclass(frozen=True)
class Limits:
    """The range of a number: at least `least`, at most `most`, above `above`, below `below`."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    is_whole: bool = False
    may_be_none: bool = False
    most: float | None = None

    def allow(self, value: Any) -> bool:
        """Whether `value` is in the range."""
        if value is None:
            return self.may_be_none
        if isinstance(value, bool) or not isinstance(value, Integral if self.is_whole else Real):
            return False
        number = float(value)
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        bounds = {
            "of at least": self.least,
            "above": self.above,
            "below": self.below,
            "at most": self.most,
        }
        stated = " and ".join(f"{word} {b:g}" for word, b in bounds.items() if b is not None)
        kind = "an integer" if self.is_whole else "a finite number"
        return " ".join(filter(None, [kind, stated, "or None" * self.may_be_none]))


def check_limits(part: object, limits: Mapping[str, Limits]) -> None:
    """Raise for the first setting of `part` outside its limits.

    >>> from types import SimpleNamespace
    >>> check_limits(SimpleNamespace(dropout=1.0), {"dropout": Limits(least=0, below=1)})
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: `dropout` must be a finite number of at least 0 and below 1,
    got 1.0.
    """
    for name, limit in limits.items():
        value = getattr(part, name)
        if not limit.allow(value):
            raise InvalidSettingError(f"`{name}` must be {limit}, got {value!r}.")


def check_choice(name: str, value: Any, choices: Iterable[str | None]) -> Any:
    """Return `value` if it is one of the choices, else raise."""
    choices = list(choices)
    if value in choices:
        return value
    raise unknown_name(name, value, [str(choice) for choice in choices])


def check_records(part: object, records: Mapping[str, type[Any]]) -> None:
    """Raise for the first setting of `part` that is neither its record nor None."""
    for name, record in records.items():
        value = getattr(part, name)
        # A subclass would have settings that `part` does not read.
        if value is not None and type(value) is not record:
            raise InvalidSettingError(
                f"`{name}` must be a `{record.__name__}` or None, got {value!r}."
            )


def check_flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, else raise."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidSettingError(f"`{name}` must be True or False, got {value!r}.")
    return bool(value)


def check_labels(y: Any, *, are_all: bool = True) -> NDArray[Any]:
    """Return labels (n,), or raise if one is missing.

    With `are_all=False` the labels are those of a few more rows, in which most may be distinct;
    scikit-learn would take them for a regression target.
    """
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    labels = column_or_1d(y, warn=True)
    missing = _first_missing(labels)
    if missing is not None:
        raise InvalidInputError(f"Every row needs a label, row {missing} has none (NaN or None).")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        row = int(np.flatnonzero(np.isinf(labels))[0])
        raise InvalidInputError(f"Labels must be finite, row {row} has {labels[row]} (inf).")
    if are_all or labels.dtype.kind not in "iubf":
        check_classification_targets(labels)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.tolist()):
        labels = labels.astype(str)
    return labels


def _first_missing(labels: NDArray[Any]) -> int | None:
    if labels.dtype.kind not in "fO":
        return None
    places = (row for row, label in enumerate(labels.tolist()) if is_missing(label))
    return next(places, None)


def is_missing(label: Any) -> bool:
    """Whether `label` is None, NaN or a missing value of pandas."""
    if label is None or (isinstance(label, float) and math.isnan(label)):
        return True
    return type(label).__name__ in ("NAType", "NaTType")


def check_same_kind(label: Any, known: Any) -> None:
    """Raise unless both labels are strings, booleans or numbers."""
    for kind in (str, bool):
        if isinstance(label, kind) != isinstance(known, kind):
            raise InvalidInputError(f"Labels must have one type, {label!r} differs from {known!r}.")


def is_plain(X: Any, fitted: Any) -> bool:
    """Whether `X` needs no validation by scikit-learn, which takes as long as a search."""
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float32, np.float64)
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == fitted.n_features_in_
        and not hasattr(fitted, "feature_names_in_")
        and bool(np.isfinite(X).all())
    )
