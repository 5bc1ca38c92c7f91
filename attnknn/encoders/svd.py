"""Embeddings of wide, sparse rows by a truncated SVD."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from attnknn._limits import check_fits
from attnknn._validation import check_at_least
from attnknn.encoders.base import Arrays, Encoder, Settings
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.registry import register

MAX_WIDTH = 4096
N_ITERATIONS = 2  # of the randomized SVD; more did not help on held-out rows of banking77
OVERSAMPLES = 10  # axes that the randomized SVD computes besides those asked for


def main_axes(rows: Any, n_axes: int) -> NDArray[Any]:
    """The main axes (n_axes, n_columns) of rows, sparse or dense, which are not centered."""
    from sklearn.utils.extmath import randomized_svd

    n_numbers = 2 * (n_axes + OVERSAMPLES) * sum(rows.shape)  # both sides, and a copy of each
    check_fits("The main axes of `X`", 8 * n_numbers, "Reduce `dim`, or leave columns out.")
    axes = randomized_svd(
        rows, n_axes, n_oversamples=OVERSAMPLES, n_iter=N_ITERATIONS, random_state=0
    )[2]
    return np.asarray(axes)


@register("encoder", "svd")
class SvdEncoder(Encoder):
    """Reduce wide rows, sparse or dense, by a truncated SVD that keeps their lengths.

    Rows are projected on the main axes of the training rows and rescaled to their original length,
    so rows of unit length, such as those of scikit-learn's `TfidfVectorizer`, keep it. If there are
    as many axes as the rank of the training rows, their distances do not change.

    Parameters
    ----------
    dim : int, default=256
        Number of main axes, 1 to 4,096; at most the number of training rows and of columns.

    Attributes
    ----------
    axes_ : ndarray of shape (width_, n_features_in_)
        Main axes.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> texts = ["my card is lost", "I lost a card", "what is the fee", "fees for a transfer"]
    >>> rows = TfidfVectorizer().fit_transform(texts)
    >>> rows.shape, SvdEncoder(dim=3).fit_transform(rows).shape
    ((4, 10), (4, 3))
    """

    accepts: ClassVar[frozenset[str]] = frozenset({"vectors", "sparse"})

    def __init__(self, dim: int = 256) -> None:
        self.dim = dim

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self._check_settings()
        rows = self._validated(X, reset=True)
        self.axes_: NDArray[Any] = main_axes(rows, min(self.dim, *rows.shape))
        self.width_ = len(self.axes_)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        self.check_fitted()
        rows = self._validated(X, reset=False)
        lengths = _lengths(rows)
        embeddings = np.asarray(rows @ self.axes_.T)
        shortened = _lengths(embeddings)
        return embeddings * np.divide(
            lengths, shortened, out=np.ones_like(lengths), where=shortened > 0
        )

    def to_settings(self) -> tuple[Settings, Arrays]:
        return {
            "encoder": self.name,
            "dim": self.dim,
            "width": self.width_,
            "n_features_in": self.n_features_in_,
            "feature_names_in": self._names(),
        }, {"axes": self.axes_.ravel()}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        encoder = cls(settings["dim"])
        encoder._check_settings()
        encoder.width_ = check_at_least("width", settings["width"], 1)
        encoder.n_features_in_ = check_at_least("n_features_in", settings["n_features_in"], 1)
        encoder._set_names(settings["feature_names_in"])
        encoder.axes_ = arrays["axes"].reshape(encoder.width_, encoder.n_features_in_)
        if not np.isfinite(encoder.axes_).all():
            raise InvalidInputError("its numbers must be finite")
        return encoder

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32]
        )

    def _check_settings(self) -> None:
        if check_at_least("dim", self.dim, 1) > MAX_WIDTH:
            raise InvalidSettingError(f"`dim` must be at most {MAX_WIDTH}, got {self.dim}.")


def _lengths(rows: Any) -> NDArray[Any]:
    """Lengths (n, 1) of rows, sparse or dense."""
    from sklearn.utils.extmath import row_norms

    return np.asarray(row_norms(rows)).reshape(-1, 1)
