"""Checks of labels and probabilities, shared by all metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import InvalidInputError
from attnknn.records import Floats, Integers


def check_inputs(
    y_true: ArrayLike, probabilities: ArrayLike, classes: Sequence[Any] | None
) -> tuple[Integers, Floats]:
    """Codes (n,) and probabilities (n, C) in float64, or an error."""
    table = check_probabilities(probabilities)
    return check_labels(y_true, table.shape, classes), table


def check_labels(
    y_true: ArrayLike, shape: tuple[int, ...], classes: Sequence[Any] | None
) -> Integers:
    """The codes (n,) of labels for a table of (n, C), or an error."""
    labels = np.asarray(y_true)
    n_rows, n_classes = shape
    if labels.ndim != 1 or len(labels) != n_rows:
        raise InvalidInputError(
            f"`y_true` must have one label per row of `probabilities`, got shape {labels.shape} "
            f"for {n_rows} rows."
        )
    codes = labels if classes is None else _codes(labels, classes, n_classes)
    if codes.dtype.kind not in "iub":
        raise InvalidInputError(
            f"`y_true` must hold codes from 0 to {n_classes - 1}, got {labels[0]!r}. "
            "For other labels give `classes`, the label of each column."
        )
    codes = codes.astype(np.int64)
    outside = (codes < 0) | (codes >= n_classes)
    if outside.any():
        raise InvalidInputError(
            f"`y_true` must hold codes from 0 to {n_classes - 1}, "
            f"got {codes[outside][0]}. For other labels give `classes`, the label of each column."
        )
    return codes


def check_probabilities(probabilities: ArrayLike) -> Floats:
    """Probabilities (n, C) in float64, or an error."""
    table = np.asarray(probabilities, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise InvalidInputError(
            "`probabilities` must have shape (rows, classes) with at least one of each, "
            f"got {table.shape}."
        )
    wrong = ~np.isfinite(table) | (table < -1e-6) | (table > 1 + 1e-6)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidInputError(
            f"`probabilities` must lie between 0 and 1, got {table[row, column]} in row {row}."
        )
    sums = table.sum(axis=1)
    row = int(np.abs(sums - 1).argmax())
    if abs(sums[row] - 1) > 1e-3:
        raise InvalidInputError(
            f"Each row of `probabilities` must sum to 1, row {row} sums to {sums[row]:.6g}."
        )
    return np.clip(table, 0.0, 1.0)


def _codes(labels: Any, classes: Sequence[Any], n_columns: int) -> Integers:
    if len(classes) != n_columns:
        raise InvalidInputError(
            f"`classes` must name each of the {n_columns} columns of `probabilities`, "
            f"got {len(classes)} names."
        )
    code_of = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    unknown = [label for label in labels.tolist() if label not in code_of]
    if unknown:
        raise InvalidInputError(f"`y_true` must hold labels of `classes`, got {unknown[0]!r}.")
    return np.array([code_of[label] for label in labels.tolist()], dtype=np.int64)
