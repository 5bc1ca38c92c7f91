"""The plain encoder: numeric rows are their own embeddings."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import validate_data

from attnknn.encoders.base import Arrays, BaseEncoder, Settings, damaged
from attnknn.errors import InvalidInputError, NotFittedYetError
from attnknn.registry import register


@register("encoder", "identity")
class IdentityEncoder(OneToOneFeatureMixin, BaseEncoder):
    """Numeric rows as they are; float32 stays float32, everything else becomes float64.

    Text, categories and dates are refused with the name of their column: they have no distance
    until somebody says which, and `encoder="tabular"` does. So are missing values.

    >>> IdentityEncoder().fit_transform([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Note the width and the column names of `X`."""
        self._checked(X, reset=True)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The rows of `X` as a float array (n, D)."""
        if not hasattr(self, "n_features_in_"):
            raise NotFittedYetError("Call `fit` before `transform`: the width is not known yet.")
        return self._checked(X, reset=False)

    def to_settings(self) -> tuple[Settings, Arrays]:
        """What `from_settings` needs."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "encoder": self.name,
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else list(names),
        }, {}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:  # noqa: ARG003
        """The fitted encoder that `to_settings` described."""
        encoder = cls()
        try:
            encoder.n_features_in_ = int(settings["n_features_in"])
            if settings["feature_names_in"] is not None:
                encoder.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(cls.registered_name, error) from error
        return encoder

    def refuse_unusable(self, X: Any) -> None:
        """Raise for the first column that holds text, categories, dates or gaps."""
        _refuse_text(X)
        _refuse_gaps(X)

    def _checked(self, X: Any, *, reset: bool) -> NDArray[Any]:
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
            if any(isinstance(value, str) for value in values):
                raise _text_error(str(position), values)


def _refuse_gaps(X: Any) -> None:
    is_table = isinstance(X, pd.DataFrame)
    if hasattr(X, "toarray"):
        return
    gaps = np.asarray(pd.isna(X if is_table else np.asarray(X)))
    if gaps.ndim == 2 and gaps.any():  # other shapes are for scikit-learn's checks to judge
        row, position = np.argwhere(gaps)[0].tolist()
        column = repr(X.columns[position]) if is_table else str(position)
        raise InvalidInputError(
            f"Column {column} must have no gaps for `encoder='identity'`, row {row} is NaN. "
            "Use `encoder='tabular'`, which takes missing values."
        )


def _is_numeric(values: pd.Series[Any]) -> bool:
    if values.dtype == object:  # numbers kept as objects are numbers
        return not any(isinstance(value, str) for value in values)
    return pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)


def _text_error(column: str, values: pd.Series[Any]) -> InvalidInputError:
    shown = next(iter(values.dropna()), None)
    return InvalidInputError(
        f"Column {column} must be numeric for `encoder='identity'`, it holds {shown!r}. "
        "Use `encoder='tabular'` for columns of text, categories or dates."
    )
