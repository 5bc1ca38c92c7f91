"""Teaches encoders that learn from labels, and says which rows they did not see."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.encoders import Encoder
from attnknn.errors import InvalidInputError
from attnknn.fitting.holdout import trained_rows
from attnknn.records import Booleans, Integers

if TYPE_CHECKING:
    from attnknn.training.config import TrainResult

FEWEST_ROWS = 4  # two to ask each other, two to judge
DEFAULT_HOLDOUT = 0.15


@dataclass(frozen=True)
class Taught:
    """The embeddings of the rows, which of them are fresh, and how the training went."""

    embeddings: NDArray[np.float32]
    held_out: Booleans
    outcome: TrainResult


def teach_encoder(
    encoder: Encoder,
    X: Any,
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    random_state: int,
    verbose: int = 0,
) -> Taught:
    """Fit `encoder` to the rows of `X` and train it on most of them.

    Parameters
    ----------
    codes : (n,) label codes
    groups : (n,) rows of one group never vote for each other; -1 is no group
    """
    rows = X if hasattr(X, "__len__") else list(X)
    encoder.fit(rows)
    _check_lengths(encoder.name, len(rows), len(codes))
    generator = np.random.default_rng(random_state)
    holdout = getattr(encoder, "holdout", DEFAULT_HOLDOUT)
    is_trained_on = trained_rows(codes, groups, holdout, sys.maxsize, generator)
    outcome = encoder.train(
        rows,
        codes,
        n_classes=n_classes,
        groups=groups,
        is_trained_on=is_trained_on,
        random_state=random_state,
        verbose=verbose,
    )
    if outcome is not None and outcome.was_interrupted:
        warnings.warn("Training was stopped by hand; the best so far was kept.", stacklevel=2)
    return Taught(encoder.transform(rows), ~is_trained_on, outcome)


def _check_lengths(name: str, n_rows: int, n_labels: int) -> None:
    if n_rows != n_labels:
        raise InvalidInputError(f"`X` has {n_rows} rows but `y` has {n_labels} labels.")
    if n_labels < FEWEST_ROWS:
        instead = " Use `encoder='tabular'`." if name == "learned-tabular" else ""
        raise InvalidInputError(
            f"A learned encoder needs at least {FEWEST_ROWS} rows, got {n_labels} sample(s)."
            f"{instead}"
        )
