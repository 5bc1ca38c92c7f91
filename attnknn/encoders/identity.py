"""The identity encoder: numeric rows are their own embeddings."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import validate_data

from attnknn._limits import check_fits
from attnknn.encoders.base import Arrays, Encoder, Settings
from attnknn.errors import InvalidInputError
from attnknn.registry import register

TEXT_ENCODERS = (
    "Use `encoder='tfidf'` for sentences, or `encoder='text'` for a sentence-transformers model."
)


@register("encoder", "identity")
class IdentityEncoder(OneToOneFeatureMixin, Encoder):
    """Use numeric rows unchanged as embeddings; float32 stays float32, the rest becomes float64.

    Missing values and columns of texts, categories or dates raise an error that names the column;
    use `TableEncoder` for them. A list or Series of texts needs `TfidfEncoder` or `TextEncoder`.
    Sparse rows become dense.

    Examples
    --------
    >>> IdentityEncoder().fit_transform([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """

    accepts: ClassVar[frozenset[str]] = frozenset({"table", "vectors", "sparse"})

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

    def validated(self, X: Any, estimator: Any, *, reset: bool) -> NDArray[Any]:
        """Dense numeric rows; `estimator` gets or checks their width and column names.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            Rows to check.
        estimator : estimator
            The encoder itself, or the classifier that uses it.
        reset : bool
            Whether width and names are learned, and not checked.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            The rows.
        """
        self.refuse_unusable(X)
        rows = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        if not issparse(rows):
            return rows
        n_bytes = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
        check_fits("`X` as dense rows", n_bytes, "Give fewer rows, or use `encoder='svd'`.")
        return rows.toarray()

    def _validated(self, X: Any, *, reset: bool) -> NDArray[Any]:
        return self.validated(X, self, reset=reset)


def _refuse_text(X: Any) -> None:
    if isinstance(X, pd.DataFrame):
        for position, column in enumerate(X.columns):
            values = X.iloc[:, position]
            if not _is_numeric(values):
                raise _text_error(repr(column), values, is_alone=X.shape[1] == 1)
    elif not hasattr(X, "toarray") and np.asarray(X).dtype.kind in "OUSmM":
        array = np.asarray(X)
        if array.ndim == 1 and (texts := [v for v in array.tolist() if isinstance(v, str)]):
            raise InvalidInputError(
                f"`X` must be numeric for `encoder='identity'`, but it is a column of texts "
                f"({texts[0][:40]!r}). {TEXT_ENCODERS}"
            )
        for position in range(array.shape[1] if array.ndim == 2 else 0):
            values = pd.Series(array[:, position])
            if array.dtype.kind in "mM" or any(isinstance(value, str) for value in values):
                raise _text_error(str(position), values, is_alone=array.shape[1] == 1)


def _is_numeric(values: pd.Series[Any]) -> bool:
    if values.dtype == object:  # numbers stored as objects are numbers
        return not any(isinstance(value, str) for value in values)
    return pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)


def _text_error(column: str, values: pd.Series[Any], *, is_alone: bool) -> InvalidInputError:
    shown = next(iter(values.dropna()), None)
    instead = f" {TEXT_ENCODERS}" if is_alone and isinstance(shown, str) else ""
    return InvalidInputError(
        f"Column {column} must be numeric for `encoder='identity'`, it holds {shown!r}. "
        f"Use `encoder='tabular'` for columns of text, categories or dates.{instead}"
    )
