"""Encoders of numeric rows: as they are, or scaled."""

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
from attnknn.records import Floats
from attnknn.registry import register

TEXT_ENCODERS = (
    "Use `encoder='tfidf'` for sentences, or `encoder='text'` for a sentence-transformers model."
)


class NumericEncoder(OneToOneFeatureMixin, Encoder):
    """Base class of encoders whose embeddings have one column for each numeric column of the rows.

    Missing values and columns of texts, categories or dates raise an error that names the column.
    Sparse rows become dense.

    Examples
    --------
    >>> issubclass(ScaledEncoder, NumericEncoder)
    True
    """

    accepts: ClassVar[frozenset[str]] = frozenset({"table", "vectors", "sparse"})

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        rows = self.validated(X, self, reset=True)
        return self.fit_rows(rows, getattr(self, "feature_names_in_", None))

    def transform(self, X: Any) -> NDArray[Any]:
        self.check_fitted()
        return self.encode_rows(self.validated(X, self, reset=False))

    def fit_rows(self, rows: NDArray[Any], names: Any = None) -> Self:
        """Fit to rows that are validated.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Finite numbers.
        names : sequence of str, default=None
            Names of the columns.

        Returns
        -------
        NumericEncoder
            The encoder itself.
        """
        self.n_features_in_ = rows.shape[1]
        self._set_names(names)
        return self

    def encode_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Encode rows that are validated.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Finite numbers.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            By default the rows.
        """
        return rows

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
        _refuse_text(X, self.name)
        if hasattr(X, "toarray"):
            return
        is_table = isinstance(X, pd.DataFrame)
        missing = np.asarray(pd.isna(X if is_table else np.asarray(X)))
        if missing.ndim == 2 and missing.any():  # scikit-learn's checks refuse other shapes
            row, position = np.argwhere(missing)[0].tolist()
            column = repr(X.columns[position]) if is_table else str(position)
            raise InvalidInputError(
                f"Column {column} must have no gaps for `encoder={self.name!r}`, row {row} is NaN. "
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
        if not reset:
            X = _known_columns(X, getattr(estimator, "feature_names_in_", None))
        self.refuse_unusable(X)
        rows = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        if not issparse(rows):
            return rows
        n_bytes = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
        check_fits("`X` as dense rows", n_bytes, "Give fewer rows, or use `encoder='svd'`.")
        return rows.toarray()


@register("encoder", "identity")
class IdentityEncoder(NumericEncoder):
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


@register("encoder", "scaled")
class ScaledEncoder(NumericEncoder):
    """Scale numeric columns to mean 0 and variance 1, so that all weigh alike in distances.

    Columns in which all values are equal become 0. Missing values, texts and categories raise an
    error that names the column; use `TableEncoder` for them. Sparse rows become dense.

    Attributes
    ----------
    center_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation of the columns; a scale of 1 where all values are equal.

    Examples
    --------
    >>> ScaledEncoder().fit_transform([[1, 200], [3, 400]])
    array([[-1., -1.],
           [ 1.,  1.]])
    """

    center_: Floats
    scale_: Floats

    def fit_rows(self, rows: NDArray[Any], names: Any = None) -> Self:
        self.center_, scale = mean_and_deviation(rows)
        is_constant = (rows == rows[:1]).all(axis=0)
        self.scale_ = np.where(is_constant | (scale == 0), 1.0, scale)
        return super().fit_rows(rows, names)

    def encode_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((rows - self.center_) / self.scale_)

    def to_settings(self) -> tuple[Settings, Arrays]:
        settings, _ = super().to_settings()
        return settings, {"center": self.center_, "scale": self.scale_}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        encoder = super().from_settings(settings, arrays)
        encoder.center_, encoder.scale_ = arrays["center"], arrays["scale"]
        shape = (encoder.n_features_in_,)
        is_right = encoder.center_.shape == encoder.scale_.shape == shape
        are_finite = np.isfinite(encoder.center_).all() and np.isfinite(encoder.scale_).all()
        if not is_right or not are_finite or not (encoder.scale_ > 0).all():
            raise ValueError("center and scale must be finite numbers, one for each column")
        return encoder


def mean_and_deviation(rows: NDArray[Any]) -> tuple[Floats, Floats]:
    """Mean and standard deviation (D,) of the columns, of large and small numbers, too."""
    rows = rows.astype(np.float64)
    # Dividing first keeps the squares of the variance from overflow and underflow.
    peak = np.abs(rows).max(axis=0, initial=0.0)
    peak = np.where(peak > 0, peak, 1.0)
    return (rows / peak).mean(axis=0) * peak, (rows / peak).std(axis=0) * peak


def _known_columns(X: Any, names: Any) -> Any:
    """The columns of `fit` if a table has others beside them."""
    if names is None or not isinstance(X, pd.DataFrame) or X.shape[1] <= len(names):
        return X
    return X[list(names)] if set(names) <= set(X.columns) else X


def _refuse_text(X: Any, encoder: str) -> None:
    if isinstance(X, pd.DataFrame):
        for position, column in enumerate(X.columns):
            values = X.iloc[:, position]
            if not _is_numeric(values):
                raise _text_error(encoder, repr(column), values, is_alone=X.shape[1] == 1)
    elif not hasattr(X, "toarray") and np.asarray(X).dtype.kind in "OUSmM":
        array = np.asarray(X)
        if array.ndim == 1 and (texts := [v for v in array.tolist() if isinstance(v, str)]):
            raise InvalidInputError(
                f"`X` must be numeric for `encoder={encoder!r}`, but it is a column of texts "
                f"({texts[0][:40]!r}). {TEXT_ENCODERS}"
            )
        for position in range(array.shape[1] if array.ndim == 2 else 0):
            values = pd.Series(array[:, position])
            if array.dtype.kind in "mM" or any(isinstance(value, str) for value in values):
                raise _text_error(encoder, str(position), values, is_alone=array.shape[1] == 1)


def _is_numeric(values: pd.Series[Any]) -> bool:
    if values.dtype == object:  # numbers stored as objects are numbers
        return not any(isinstance(value, str) for value in values)
    return pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)


def _text_error(
    encoder: str, column: str, values: pd.Series[Any], *, is_alone: bool
) -> InvalidInputError:
    shown = next(iter(values.dropna()), None)
    instead = f" {TEXT_ENCODERS}" if is_alone and isinstance(shown, str) else ""
    return InvalidInputError(
        f"Column {column} must be numeric for `encoder={encoder!r}`, it holds {shown!r}. "
        f"Use `encoder='tabular'` for columns of text, categories or dates.{instead}"
    )
