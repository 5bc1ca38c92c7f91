"""Training of encoders that learn from labels, on all rows but the held-out ones."""

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

MIN_ROWS = 4  # two to train on, two for validation
DEFAULT_HOLDOUT = 0.15


@dataclass(frozen=True)
class EncodedRows:
    """Embeddings of the rows, which of them were held out, and the losses of the training."""

    embeddings: NDArray[np.float32]
    held_out: Booleans
    result: TrainResult


def train_encoder(
    encoder: Encoder,
    X: Any,
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    random_state: int,
    verbose: int = 0,
) -> EncodedRows:
    """Fit `encoder` to the rows of `X`, train it on most of them, and embed all.

    `codes` (n,): label codes; `groups` (n,): rows of one group never vote for each other; -1 is no
    group.
    """
    rows = X if hasattr(X, "__len__") else list(X)
    encoder.fit(rows)
    if len(rows) != len(codes):
        raise InvalidInputError(f"`X` has {len(rows)} rows but `y` has {len(codes)} labels.")
    if len(codes) < MIN_ROWS:
        instead = " Use `encoder='tabular'`." if encoder.name == "learned-tabular" else ""
        raise InvalidInputError(
            f"A learned encoder needs at least {MIN_ROWS} rows, got {len(codes)} sample(s)."
            f"{instead}"
        )
    generator = np.random.default_rng(random_state)
    holdout = getattr(encoder, "holdout", DEFAULT_HOLDOUT)
    is_trained_on = trained_rows(codes, groups, holdout, sys.maxsize, generator)
    result = encoder.train(
        rows,
        codes,
        n_classes=n_classes,
        groups=groups,
        is_trained_on=is_trained_on,
        random_state=random_state,
        verbose=verbose,
    )
    if result is not None and result.was_interrupted:
        warnings.warn("Training was interrupted; the best state so far was kept.", stacklevel=2)
    return EncodedRows(encoder.transform(rows), ~is_trained_on, result)
