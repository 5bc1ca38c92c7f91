"""A column of texts, from whatever holds one, with every text checked."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.encoders.base import BaseEncoder, Settings
from attnknn.errors import InvalidInputError, NotFittedYetError


class TextRows(BaseEncoder):
    """What encoders of texts share: one column of texts in, `width_` numbers per row out."""

    accepts: ClassVar[frozenset[str]] = frozenset({"texts"})
    width_: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """A name per number: the encoder's name and a place."""
        self._check_fitted()
        return np.array([f"{self.name}{place}" for place in range(self.width_)], dtype=object)

    def _learn_rows(self, X: Any) -> list[str]:
        """The texts of training rows; notes the name of their column."""
        texts = texts_of(X)
        if not texts:
            raise InvalidInputError("`X` must have at least one text to learn from, got none.")
        self._note_column(X.columns[0] if isinstance(X, pd.DataFrame) else None)
        return texts

    def _rows(self, X: Any) -> list[str]:
        """The texts of rows to encode; a table may have other columns beside the one of `fit`."""
        self._check_fitted()
        names = getattr(self, "feature_names_in_", None)
        if isinstance(X, pd.DataFrame) and names is not None:
            if names[0] not in X.columns:
                raise InvalidInputError(
                    f"`X` must have the column {names[0]!r}, as in `fit`. "
                    f"Got: {', '.join(map(str, X.columns))}."
                )
            X = X[[names[0]]]
        return texts_of(X)

    def _note_column(self, name: Any) -> None:
        self.n_features_in_ = 1
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(name, str):
            self.feature_names_in_ = np.array([name], dtype=object)

    def _column_settings(self) -> Settings:
        self._check_fitted()
        names = getattr(self, "feature_names_in_", None)
        return {"column": None if names is None else names[0], "width": self.width_}

    def _restore_column(self, settings: Settings, most: int) -> None:
        """Take what `_column_settings` gave, which may by now hold anything."""
        column, width = settings["column"], settings["width"]
        if not (column is None or isinstance(column, str)):
            raise ValueError(f"`column` cannot be {str(column)[:40]!r}")
        if type(width) is not int or not 1 <= width <= most:
            raise ValueError(f"`width` must be from 1 to {most}, got {str(width)[:40]}")
        self._note_column(column)
        self.width_ = width

    def _check_fitted(self) -> None:
        if not hasattr(self, "width_"):
            raise NotFittedYetError("Call `fit` before `transform`: the width is not known yet.")


def texts_of(X: Any) -> list[str]:
    """The texts in a list, an array, a Series or a table of one column.

    A text that is missing or blank, or a value that is no text, is an error that names its row.

    >>> texts_of(pd.DataFrame({"question": ["how?", "why?"]}))
    ['how?', 'why?']
    >>> texts_of(["how?", " "])
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Every row must hold a text, row 1 is empty: ' '. Fill it or
    leave the row out.
    """
    values = _column_of(X)
    for row, value in enumerate(values):
        problem = _problem(value)
        if problem:
            raise InvalidInputError(
                f"Every row must hold a text, row {row} {problem}. Fill it or leave the row out."
            )
    return [str(value) for value in values]


def _column_of(X: Any) -> list[Any]:
    if isinstance(X, str | bytes):
        raise InvalidInputError("`X` must be a column of texts, got one text. Write `[text]`.")
    if hasattr(X, "toarray"):
        raise InvalidInputError("`X` must be a column of texts, got a sparse matrix.")
    array = np.asarray(X, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        names = f" ({', '.join(map(str, X.columns))})" if isinstance(X, pd.DataFrame) else ""
        raise InvalidInputError(
            f"`X` must be one column of texts, got the shape {array.shape}{names}. "
            "Choose the column to read."
        )
    return array.tolist()


def _problem(value: Any) -> str:
    """What is wrong with a value that should be a text."""
    if not isinstance(value, str):
        is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
        is_missing = is_nan or value is None or value is pd.NA or value is pd.NaT
        return "is missing" if is_missing else f"holds {str(value)[:40]} ({type(value).__name__})"
    if not value.strip():
        return f"is empty: {value[:40]!r}"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return f"is no valid Unicode: {value[:40]!r}"
    return ""
