"""The contract of encoders."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from attnknn.encoders import encoder_from_settings, make_encoder
from attnknn.encoders.base import Encoder
from attnknn.errors import InvalidSettingError
from attnknn.memory.entries import NO_GROUP
from attnknn.registry import registered


def check_encoder(encoder: Any, X: Any, y: Any = None) -> None:
    """Check that an encoder keeps the contract of `attnknn.encoders.Encoder`.

    Parameters
    ----------
    encoder : str, Encoder, transformer or callable
        Anything that `make_encoder` takes; it stays unfitted.
    X : array-like or DataFrame
        At least three training rows that the encoder accepts.
    y : array-like of shape (n_rows,), default=None
        Labels, for encoders that use them.

    Raises
    ------
    AssertionError
        With a sentence that says what is wrong.

    Examples
    --------
    >>> check_encoder("identity", [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    """
    rows = X if hasattr(X, "shape") else np.asarray(X)
    before = copy.deepcopy(rows)
    fitted = _check_fit(make_encoder(encoder), rows, y)
    embeddings = np.asarray(fitted.transform(rows))
    _check_embeddings(embeddings, len(rows))
    again = np.asarray(make_encoder(encoder).fit(rows, y).transform(rows))
    _must(_close(again, embeddings), "two fits on the same rows must have the same embeddings")
    _check_rows_are_independent(fitted, rows, embeddings)
    _check_settings(fitted, rows, embeddings)
    if fitted.is_cross_fitted:
        _check_cross_fitting(make_encoder(encoder), rows, y, embeddings)
    _must(_same(before, rows), "`fit` and `transform` must not change the rows they are given")


def _check_fit(encoder: Encoder, rows: Any, y: Any) -> Encoder:
    _must(
        isinstance(encoder.name, str) and bool(encoder.name),
        "`name` must be a string that is not empty",
    )
    try:
        encoder.transform(rows)
    except NotFittedError:
        pass
    else:
        raise AssertionError("`transform` before `fit` must raise a NotFittedError")
    _must(encoder.fit(rows, y) is encoder, "`fit` must return the encoder itself")
    return encoder


def _check_embeddings(embeddings: NDArray[Any], n_rows: int) -> None:
    _must(
        embeddings.ndim == 2 and len(embeddings) == n_rows and embeddings.shape[1] > 0,
        f"`transform` must return ({n_rows}, D), got {embeddings.shape}",
    )
    _must(embeddings.dtype.kind == "f", f"embeddings must be floats, got {embeddings.dtype}")
    _must(bool(np.isfinite(embeddings).all()), "embeddings must be finite")


def _check_rows_are_independent(fitted: Encoder, rows: Any, embeddings: NDArray[Any]) -> None:
    """A row's embedding must not depend on the other rows or on their order."""
    backward = np.arange(len(rows))[::-1]
    _must(
        _close(fitted.transform(_take(rows, backward)), embeddings[backward]),
        "the order of the rows must not change their embeddings",
    )
    for row in range(min(3, len(rows))):
        alone = fitted.transform(_take(rows, np.array([row])))
        _must(
            _close(alone, embeddings[[row]]),
            "a row must have the same embedding alone and in a batch",
        )


def _check_cross_fitting(encoder: Encoder, rows: Any, y: Any, embeddings: NDArray[Any]) -> None:
    """Training rows have held-out embeddings; queries have those of `transform`."""
    held_out = np.asarray(encoder.fit_transform(rows, y, groups=np.full(len(rows), NO_GROUP)))
    _check_embeddings(held_out, len(rows))
    _must(held_out.shape[1] == encoder.width_, "`fit_transform` must return (n, `width_`)")
    _must(
        _close(encoder.transform(rows), embeddings),
        "`transform` after `fit_transform` must return the same embeddings as after `fit`",
    )
    _must(
        not _close(held_out, embeddings),
        "`fit_transform` of a cross-fitted encoder must not use the labels of the rows themselves",
    )


def _check_settings(fitted: Encoder, rows: Any, embeddings: NDArray[Any]) -> None:
    try:
        settings, arrays = fitted.to_settings()
    except InvalidSettingError:
        return  # it cannot be stored
    restored = json.loads(json.dumps(settings, allow_nan=False))
    _must(all(a.dtype != object for a in arrays.values()), "stored arrays must hold no objects")
    if settings["encoder"] not in registered("encoder"):
        loaded = type(fitted).from_settings(restored, arrays)
    else:
        loaded = encoder_from_settings(restored, arrays)
    same = np.array_equal(np.asarray(loaded.transform(rows)), embeddings)
    _must(same, "an encoder restored from settings must have the same embeddings to the last bit")


def _must(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(f"Encoder contract: {rule}.")


def _close(left: Any, right: Any) -> bool:
    # Matrix products of another size may be rounded differently.
    return bool(np.allclose(np.asarray(left), np.asarray(right), rtol=1e-5, atol=1e-6))


def _take(rows: Any, chosen: NDArray[np.int64]) -> Any:
    return rows.iloc[chosen] if isinstance(rows, pd.DataFrame) else rows[chosen]


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, pd.DataFrame):
        return left.equals(right)
    return bool(pd.DataFrame(np.asarray(left)).equals(pd.DataFrame(np.asarray(right))))
