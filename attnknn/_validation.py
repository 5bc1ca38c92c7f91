"""Checks of what users hand in: settings, rows and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name


def check_at_least(name: str, value: Any, least: int) -> int:
    """The integer `value`, or an error that names the setting.

    >>> check_at_least("n_neighbors", 3, 1)
    3
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InvalidSettingError(
            f"`{name}` must be an integer of at least {least}, got {value!r}."
        )
    return int(value)


def check_choice(name: str, value: Any, choices: Iterable[str | None]) -> Any:
    """`value` if it is one of the choices."""
    choices = list(choices)
    if value in choices:
        return value
    raise unknown_name(name, value, [str(choice) for choice in choices])


def check_labels(y: Any) -> NDArray[Any]:
    """Labels (n,) with none missing."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    labels = column_or_1d(y, warn=True)
    missing = _first_missing(labels)
    if missing is not None:
        raise InvalidInputError(f"Every row needs a label, row {missing} has none (NaN or None).")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        row = int(np.flatnonzero(np.isinf(labels))[0])
        raise InvalidInputError(f"Labels must be finite, row {row} has {labels[row]} (inf).")
    check_classification_targets(labels)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.tolist()):
        labels = labels.astype(str)
    return labels


def _first_missing(labels: NDArray[Any]) -> int | None:
    if labels.dtype.kind not in "fO":
        return None
    is_missing = np.array([_is_missing(label) for label in labels.tolist()], dtype=bool)
    return int(np.flatnonzero(is_missing)[0]) if is_missing.any() else None


def _is_missing(label: Any) -> bool:
    if label is None or (isinstance(label, float) and math.isnan(label)):
        return True
    return type(label).__name__ in ("NAType", "NaTType")
