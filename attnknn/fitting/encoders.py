"""The choice of an encoder, and the training of those that learn from labels."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from attnknn.encoders import Encoder, IdentityEncoder, NumericEncoder, ScaledEncoder
from attnknn.encoders.identity import mean_and_deviation
from attnknn.encoders.string_kinds import string_kind
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.fitting.holdout import trained_rows
from attnknn.memory import make_entries, make_memory
from attnknn.records import Booleans, Integers

if TYPE_CHECKING:
    from attnknn.attention import LearnedAttention
    from attnknn.attention.scores import NeighborScores
    from attnknn.model import FittedModel
    from attnknn.training.config import TrainResult

MIN_ROWS = 4  # two to train on, two for validation
DEFAULT_HOLDOUT = 0.15
TEXT_ENCODER = "ngrams"
STAGED, JOINT = "in stages", "jointly"  # ways to train an encoder and its attention
MIN_ROWS_TO_COMPARE, MAX_ROWS_TO_COMPARE = 20, 5_000
MAX_NEIGHBORS_TO_COMPARE = 64


@dataclass(frozen=True)
class FittedEncoder:
    """A fitted encoder, embeddings of the rows, and what its training left, if it was trained."""

    encoder: Encoder
    embeddings: NDArray[Any]
    held_out: Booleans | None = None  # (n,)
    training: TrainResult | None = None
    scores: NeighborScores | None = None  # of learned attention that was trained with the encoder


def train_encoder(
    encoder: Encoder,
    X: Any,
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    random_state: int,
    joint: LearnedAttention | None = None,
    verbose: int = 0,
) -> FittedEncoder:
    """Fit `encoder` to the rows of `X`, train it on most of them, and embed all.

    `codes` (n,): label codes; `groups` (n,): rows of one group never vote for each other; -1 is no
    group; `joint`: attention that is trained with the encoder.
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
    further: dict[str, Any] = {}
    if joint is not None:
        from attnknn.fitting.joint import JointVote

        joint.prepare_fit(1)  # checks its settings
        vote = further["joint"] = JointVote(joint, encoder.width_, n_classes, random_state)
    result = encoder.train(
        rows,
        codes,
        n_classes=n_classes,
        groups=groups,
        is_trained_on=is_trained_on,
        random_state=random_state,
        verbose=verbose,
        **further,
    )
    if result is not None and result.was_interrupted:
        warnings.warn("Training was interrupted; the best state so far was kept.", stacklevel=2)
    scores = None if joint is None else vote.scores.eval()
    return FittedEncoder(encoder, encoder.transform(rows), ~is_trained_on, result, scores)


def ways_to_train(attention: Any, encoder: Encoder) -> dict[str, LearnedAttention | None]:
    """How encoder and attention are trained: for each way, the attention that joins the encoder."""
    attention = getattr(attention, "scorer", attention)
    joint = getattr(attention, "joint", False)
    if joint is True and not encoder.is_trained_jointly:
        raise InvalidSettingError(
            "`joint=True` needs an encoder that is trained through the vote, 'image' or "
            f"'learned-tabular', got {encoder.name!r}."
        )
    if not joint or not encoder.is_trained_jointly:
        return {STAGED: None}
    return {JOINT: attention} if joint is True else {STAGED: None, JOINT: attention}


def better_way(models: dict[str, FittedModel]) -> tuple[str, FittedModel]:
    """The way with the lowest log-loss of held-out rows, and its model, which says so."""
    if len(models) == 1:
        return next(iter(models.items()))
    losses = {way: model.report.log_loss for way, model in models.items()}
    best = min(losses, key=losses.__getitem__)
    told = " and ".join(f"{loss:.4f} {way}" for way, loss in losses.items())
    report = models[best].report
    reason = f"{report.reason}; trained {best}: log-loss of held-out rows is {told}"
    return best, replace(models[best], report=replace(report, reason=reason))


def default_encoder(X: Any) -> tuple[str, str]:
    """The encoder that takes these rows if the user names none, and the reason.

    >>> default_encoder([[1.0, 2.0]])
    ('identity', 'rows are numeric')
    >>> default_encoder(["good", "bad"])
    ('ngrams', 'rows are texts')
    """
    import pandas as pd

    numeric, table = ("identity", "rows are numeric"), ("tabular", "a table of several types")
    if issparse(X):
        return numeric
    if isinstance(X, pd.DataFrame):
        if X.shape[1] == 1 and string_kind(X.iloc[:, 0]) == "text":
            return TEXT_ENCODER, "rows are texts"
        is_numeric = all(pd.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes)
        return numeric if is_numeric and not X.isna().to_numpy().any() else table
    array = np.asarray(X)
    if array.ndim == 1 and any(isinstance(value, str) for value in array[:100].tolist()):
        return TEXT_ENCODER, "rows are texts"
    if array.ndim in (3, 4) and array.dtype.kind in "uif":
        return "image", "rows are images; the embedding is trained on the labels"
    if array.ndim != 2 or not _has_texts_or_gaps(array):
        return numeric  # it says what is wrong with other shapes
    return table


def _has_texts_or_gaps(array: NDArray[Any]) -> bool:
    """Whether a table holds texts or missing values among its numbers."""
    import pandas as pd

    if array.dtype.kind == "f":
        return bool(np.isnan(array).any())
    if array.dtype != object:
        return array.dtype.kind in "US"
    is_text = any(isinstance(value, str) for value in array.ravel().tolist())
    return is_text or bool(np.asarray(pd.isna(array)).any())


def choose_scale(
    rows: NDArray[Any], codes: Integers, groups: Integers, random_state: int
) -> tuple[NumericEncoder, str]:
    """Numeric columns as they are or scaled, by the leave-one-out log-loss of distance attention.

    Parameters
    ----------
    rows : ndarray of shape (n, n_features)
        Finite numbers.
    codes, groups : ndarray of shape (n,)
        Label codes and groups of the rows; -1 is no group.
    random_state : int
        Seed of the sample of rows.

    Returns
    -------
    encoder : NumericEncoder
        The unfitted encoder.
    words : str
        The reason.
    """
    n_rows, scales = len(rows), mean_and_deviation(rows)[1]
    if n_rows < MIN_ROWS_TO_COMPARE or len(np.unique(codes)) < 2:
        return IdentityEncoder(), "too few rows or classes to compare scales"
    if rows.shape[1] == 1 or scales.max() <= 1.01 * scales.min():
        return IdentityEncoder(), "all columns have the same scale"
    chosen = np.arange(n_rows)
    if n_rows > MAX_ROWS_TO_COMPARE:
        generator = np.random.default_rng(random_state)
        chosen = np.sort(generator.choice(n_rows, MAX_ROWS_TO_COMPARE, replace=False))
    losses = {}
    for encoder in (ScaledEncoder(), IdentityEncoder()):
        embeddings = encoder.fit_rows(rows).encode_rows(rows[chosen])
        losses[encoder] = _distance_loss(embeddings, codes[chosen], groups[chosen], random_state)
    scaled, raw = losses.values()
    words = f"log-loss by distance is {scaled:.4f} of scaled columns and {raw:.4f} of raw ones"
    return (ScaledEncoder() if scaled <= raw else IdentityEncoder()), words


def _distance_loss(
    embeddings: NDArray[Any], codes: Integers, groups: Integers, random_state: int
) -> float:
    """Leave-one-out log-loss of distance attention; infinite if float32 cannot hold distances."""
    from attnknn.attention import DistanceAttention
    from attnknn.fitting.fitting import FitSettings, Fitting

    settings = FitSettings(MAX_NEIGHBORS_TO_COMPARE, "auto", None, random_state)
    memory = make_memory("auto")
    try:
        memory.remember(make_entries(embeddings, codes, groups=groups))
        classes = np.arange(codes.max() + 1)
        fitting = Fitting(IdentityEncoder(), memory, classes, settings, None)
        return fitting.by_scalars(DistanceAttention(), "").report.log_loss
    except InvalidInputError:
        return np.inf
