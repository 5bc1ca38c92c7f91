"""A user's own code as an encoder: any scikit-learn transformer, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone

from attnknn.encoders.base import Arrays, Settings, as_embeddings
from attnknn.errors import InvalidSettingError, NotFittedYetError


class WrappedEncoder(TransformerMixin, BaseEstimator):
    """A scikit-learn transformer or a function of rows, with its output checked.

    It cannot be stored in a model folder, which holds no code: `to_settings` says what to do.

    Parameters
    ----------
    inner : a transformer, fitted as a copy on the training rows and labels; or a function that
        turns rows into embeddings and learns nothing

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> WrappedEncoder(StandardScaler()).fit_transform([[1.0], [3.0]]).tolist()
    [[-1.0], [1.0]]
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The name of the wrapped class or function."""
        return getattr(self.inner, "__name__", type(self.inner).__name__)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a copy of the transformer; a function is taken as it is."""
        if hasattr(self.inner, "transform"):
            self.inner_ = clone(self.inner, safe=False).fit(X, y)
        else:
            self.inner_ = self.inner
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The embeddings (n, D) that the wrapped code gives."""
        if not hasattr(self, "inner_"):
            raise NotFittedYetError("Call `fit` before `transform`.")
        encode: Callable[[Any], Any] = getattr(self.inner_, "transform", self.inner_)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        return as_embeddings(encode(X), n_rows, f"`{self.name}`")

    def to_settings(self) -> tuple[Settings, Arrays]:
        """Always an error: a model folder holds no code."""
        raise InvalidSettingError(
            f"The encoder `{self.name}` is your own code, which a model folder cannot hold. "
            "Encode the rows yourself and fit with `encoder='identity'` to store the classifier."
        )
