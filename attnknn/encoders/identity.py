"""The identity encoder: numeric rows are their own embeddings."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import validate_data

from attnknn.encoders.base import Arrays, Encoder, Settings
from attnknn.errors import InvalidInputError
from attnknn.registry import register


@register("encoder", "identity")
class IdentityEncoder(OneToOneFeatureMixin, Encoder):
    """Use numeric rows unchanged as embeddings; float32 stays float32, the rest becomes float64.

    Texts, missing values, and DataFrame columns of categories or dates raise an error that names
    the column; use `TableEncoder` for them.

    Examples
    --------
    >>> IdentityEncoder().fit_transform([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self._validated(X, reset=True)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        self.check_fitted()
        return self._validated(X, reset=False)

    def to_settings(self) -> tuple[Settings, Arrays]:
        return {
            "encoder": self.name,
            "n_features_in": self.n_features_in_,
            "feature_names_in": self._names(),
        }, {}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:  # noqa: ARG003
        encoder = cls()
        encoder.n_features_in_ = int(settings["n_features_in"])
        encoder._set_names(settings["feature_names_in"])
        return encoder

    def refuse_unusable(self, X: Any) -> None:
        """Raise for the first column with text, categories, dates or missing values.

        Parameters
        ----------
        X : array-like or DataFrame
            Rows to check.
        """
        _refuse_text(X)
        if hasattr(X, "toarray"):
            return
        is_table = isinstance(X, pd.DataFrame)
        missing = np.asarray(pd.isna(X if is_table else np.asarray(X)))
        if missing.ndim == 2 and missing.any():  # scikit-learn's checks refuse other shapes
            row, position = np.argwhere(missing)[0].tolist()
            column = repr(X.columns[position]) if is_table else str(position)
            raise InvalidInputError(
                f"Column {column} must have no gaps for `encoder='identity'`, row {row} is NaN. "
                "Use `encoder='tabular'`, which takes missing values."
            )

    def _validated(self, X: Any, *, reset: bool) -> NDArray[Any]:
        self.refuse_unusable(X)
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])


def _refuse_text(X: Any) -> None:
    if isinstance(X, pd.DataFrame):
        for position, column in enumerate(X.columns):
            values = X.iloc[:, position]
            if not _is_numeric(values):
                raise _text_error(repr(column), values)
    elif not hasattr(X, "toarray") and np.asarray(X).dtype.kind in "OUSmM":
        array = np.asarray(X)
        for position in range(array.shape[1] if array.ndim == 2 else 0):
            values = pd.Series(array[:, position])
            if array.dtype.kind in "mM" or any(isinstance(value, str) for value in values):
                raise _text_error(str(position), values)


def _is_numeric(values: pd.Series[Any]) -> bool:
    if values.dtype == object:  # numbers stored as objects are numbers
        return not any(isinstance(value, str) for value in values)
    return pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)


def _text_error(column: str, values: pd.Series[Any]) -> InvalidInputError:
    shown = next(iter(values.dropna()), None)
    return InvalidInputError(
        f"Column {column} must be numeric for `encoder='identity'`, it holds {shown!r}. "
        "Use `encoder='tabular'` for columns of text, categories or dates."
    )
