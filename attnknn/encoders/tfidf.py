"""Texts become embeddings by the words and letters they share: TF-IDF and its main axes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import check_at_least
from attnknn.encoders.base import Arrays, Settings, damaged
from attnknn.encoders.text import TextRows, unit_length
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Floats
from attnknn.registry import register

N_BUCKETS = 4096  # for words, and as many for letters
LARGEST_WIDTH = 4096
N_PASSES = (
    2  # of the randomized decomposition; more gained nothing on banking77's training rows, left out
)


@register("encoder", "tfidf")
class TfidfEncoder(TextRows):
    """A column of texts as embeddings of unit length, with no model to download.

    Words, pairs of words and runs of two to four letters are hashed into places, counted
    (1 + log), weighed by how rare they are in the training texts, and projected on the main axes of
    those. Texts are near when they share words or parts of words: typing errors are forgiven,
    synonyms are not known; `TextEncoder` knows them. No word is stored, only weights of places.

    Parameters
    ----------
    dim : main axes, 1 to 4,096; few training texts have fewer

    Attributes
    ----------
    rarity_ : (n_places,) weight of each place
    axes_ : (width_, n_places)

    Examples
    --------
    >>> texts = ["my card is lost", "I lost a card", "what is the fee", "fees for a transfer"]
    >>> encoder = TfidfEncoder().fit(texts)
    >>> nearness = encoder.transform(["card lost!"]) @ encoder.transform(texts).T
    >>> nearness.argsort()[0, -2:].tolist()
    [0, 1]
    """

    def __init__(self, dim: int = 256) -> None:
        self.dim = dim

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Learn how rare each place is, and the main axes, from the texts of `X`."""
        from sklearn.utils.extmath import randomized_svd

        self._check_settings()
        texts = self._learn_rows(X)
        counts = _counts(texts)
        n_with = np.bincount(counts.indices, minlength=counts.shape[1])
        self.rarity_: Floats = 1 + np.log((1 + len(texts)) / (1 + n_with))
        n_axes = min(self.dim, len(texts))
        weighed = self._weighed(counts)
        _, _, axes = randomized_svd(weighed, n_axes, n_iter=N_PASSES, random_state=0)
        self.axes_: Floats = axes
        self.width_ = len(self.axes_)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The embeddings (n, D) of the texts of `X`; zeros for a text that shares nothing."""
        texts = self._rows(X)
        if not texts:
            return np.zeros((0, self.width_))
        return unit_length(self._weighed(_counts(texts)) @ self.axes_.T)

    def to_settings(self) -> tuple[Settings, Arrays]:
        """What `from_settings` needs."""
        settings = {"encoder": self.name, "dim": self.dim, **self._column_settings()}
        return settings, {"rarity": self.rarity_, "axes": self.axes_.ravel()}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        """The fitted encoder that `to_settings` described."""
        try:
            encoder = cls(settings["dim"])
            encoder._check_settings()
            encoder._restore_column(settings, LARGEST_WIDTH)
            encoder.rarity_ = arrays["rarity"].reshape(2 * N_BUCKETS)
            encoder.axes_ = arrays["axes"].reshape(encoder.width_, 2 * N_BUCKETS)
            if not all(np.isfinite(array).all() for array in (encoder.rarity_, encoder.axes_)):
                raise InvalidInputError("its numbers must be finite")
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(cls.registered_name, error) from error
        return encoder

    def _weighed(self, counts: Any) -> Any:
        """Rows of unit length, so that long texts do not outweigh short ones."""
        from sklearn.preprocessing import normalize

        weighed = counts.copy()
        weighed.data = (1 + np.log(counts.data)) * self.rarity_[counts.indices]
        return normalize(weighed)

    def _check_settings(self) -> None:
        if check_at_least("dim", self.dim, 1) > LARGEST_WIDTH:
            raise InvalidSettingError(f"`dim` must be at most {LARGEST_WIDTH}, got {self.dim}.")


def _counts(texts: list[str]) -> Any:
    """(n, 2 · N_BUCKETS) sparse counts of words and of letters."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    shared = {"n_features": N_BUCKETS, "alternate_sign": False, "norm": None}
    words = HashingVectorizer(ngram_range=(1, 2), **shared)
    letters = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), **shared)
    return hstack([words.transform(texts), letters.transform(texts)]).tocsr()
