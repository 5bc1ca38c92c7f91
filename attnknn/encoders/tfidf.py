"""Embeddings of texts by TF-IDF of words and character n-grams, reduced by a truncated SVD."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import check_at_least
from attnknn.encoders.base import Arrays, Settings
from attnknn.encoders.svd import MAX_WIDTH, main_axes
from attnknn.encoders.text import TextRows, unit_length
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Floats
from attnknn.registry import register

N_BUCKETS = 4096  # hashed features of words, and as many of characters


@register("encoder", "tfidf")
class TfidfEncoder(TextRows):
    """Embed texts by TF-IDF and a truncated SVD (latent semantic analysis).

    Words, word bigrams and character n-grams (2 to 4) are hashed into features and weighted by
    (1 + log count) · idf. Their projection on the main axes of the training texts has unit
    length. Texts are near if they share words or parts of words: typing errors hardly matter,
    synonyms are not recognized (`TextEncoder` recognizes them). No model is downloaded, and no
    word is stored.

    Parameters
    ----------
    dim : int, default=256
        Number of main axes, 1 to 4,096; at most the number of training texts.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Inverse document frequency of each hashed feature.
    axes_ : ndarray of shape (width_, n_features)
        Main axes.

    Examples
    --------
    >>> texts = ["my card is lost", "I lost a card", "what is the fee", "fees for a transfer"]
    >>> encoder = TfidfEncoder().fit(texts)
    >>> similarity = encoder.transform(["card lost!"]) @ encoder.transform(texts).T
    >>> similarity.argsort()[0, -2:].tolist()
    [0, 1]
    """

    def __init__(self, dim: int = 256) -> None:
        self.dim = dim

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self._check_settings()
        texts = self._training_texts(X)
        counts = _counts(texts)
        n_with = np.bincount(counts.indices, minlength=counts.shape[1])
        self.idf_: Floats = 1 + np.log((1 + len(texts)) / (1 + n_with))
        n_axes = min(self.dim, len(texts))
        self.axes_: Floats = main_axes(self._weighted(counts), n_axes)
        self.width_ = len(self.axes_)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        texts = self._rows(X)
        if not texts:
            return np.zeros((0, self.width_))
        return unit_length(self._weighted(_counts(texts)) @ self.axes_.T)

    def to_settings(self) -> tuple[Settings, Arrays]:
        settings = {"encoder": self.name, "dim": self.dim, **self._column_settings()}
        return settings, {"idf": self.idf_, "axes": self.axes_.ravel()}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        encoder = cls(settings["dim"])
        encoder._check_settings()
        encoder._restore_column(settings, MAX_WIDTH)
        encoder.idf_ = arrays["idf"].reshape(2 * N_BUCKETS)
        encoder.axes_ = arrays["axes"].reshape(encoder.width_, 2 * N_BUCKETS)
        if not all(np.isfinite(array).all() for array in (encoder.idf_, encoder.axes_)):
            raise InvalidInputError("its numbers must be finite")
        return encoder

    def _weighted(self, counts: Any) -> Any:
        """Rows of unit length, so that long texts do not outweigh short ones."""
        from sklearn.preprocessing import normalize

        weighted = counts.copy()
        weighted.data = (1 + np.log(counts.data)) * self.idf_[counts.indices]
        return normalize(weighted)

    def _check_settings(self) -> None:
        if check_at_least("dim", self.dim, 1) > MAX_WIDTH:
            raise InvalidSettingError(f"`dim` must be at most {MAX_WIDTH}, got {self.dim}.")


def _counts(texts: list[str]) -> Any:
    """Sparse counts (n, 2 · N_BUCKETS) of words and of character n-grams."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    shared = {"n_features": N_BUCKETS, "alternate_sign": False, "norm": None}
    words = HashingVectorizer(ngram_range=(1, 2), **shared)
    characters = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), **shared)
    return hstack([words.transform(texts), characters.transform(texts)]).tocsr()
