"""Embeddings of texts by the class scores of a cross-fitted linear classifier of n-grams."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import check_at_least
from attnknn.encoders.base import Arrays, Settings
from attnknn.encoders.softmax_regression import fit_softmax_regression, log_loss
from attnknn.encoders.text import TextRows
from attnknn.errors import InvalidInputError
from attnknn.records import Integers
from attnknn.registry import register

N_BUCKETS = 1 << 20  # hashed n-grams of words, and as many of characters
MAX_NGRAMS = 1 << 16  # of either kind that are kept, the most frequent ones
MAX_NUMBERS = 1 << 23  # of a classifier: of many classes, fewer n-grams are kept
MAX_WIDTH = 1 << 16  # classes
WORD = r"(?u)\w+|[^\w\s]"  # punctuation counts: it distinguishes questions
STRENGTHS = (
    1e-3,
    3e-4,
    1e-4,
    3e-5,
    1e-5,
    3e-6,
    1e-6,
    3e-7,
)  # of the regularization, strongest first
NO_GROUP = -1

Counts = tuple[Any, Any]  # of words and of characters, sparse


@register("encoder", "ngrams")
class NgramEncoder(TextRows):
    """Embed texts by the class scores of a linear classifier of words and character n-grams.

    Words, word bigrams and character n-grams (2 to 5) are hashed into features and weighted by
    (1 + log count) · idf. A multinomial logistic regression of these features is cross-fitted: the
    training texts are split into folds, the embedding of a training text is its class scores by
    the classifier that was not trained on its fold, and that of a query is the mean of the scores
    by all classifiers. So every training text is held out. Texts are near if their words speak for
    the same classes. No model is downloaded, and no word is stored.

    `fit(X, y).transform(X)` differs from `fit_transform(X, y)`, which returns the held-out
    embeddings of the training texts, as with scikit-learn's `TargetEncoder`. The classifier uses
    the latter.

    Parameters
    ----------
    n_folds : int, default=5
        Number of folds.

    Attributes
    ----------
    words_, characters_ : ndarray of int
        Sorted hashes of the word and character n-grams that are used.
    idf_ : ndarray of shape (n_ngrams,)
        Inverse document frequency of each n-gram, those of words first.
    map_ : ndarray of shape (n_ngrams + 1, width_)
        Weights of the mean classifier; the last row holds the intercepts.
    strength_ : float
        Strength of the regularization, chosen by the log-loss of the folds left out.

    See Also
    --------
    TfidfEncoder : Embeds texts without labels.
    TextEncoder : Embeds texts by a pretrained model, which recognizes synonyms.

    Examples
    --------
    >>> texts = ["my card is lost", "I lost a card", "what is the fee", "fees for a transfer"]
    >>> encoder = NgramEncoder(n_folds=2).fit(texts, ["card", "card", "fee", "fee"])
    >>> encoder.transform(["card lost!", "which fee?"]).argmax(axis=1).tolist()
    [0, 1]
    """

    is_cross_fitted: ClassVar[bool] = True

    def __init__(self, n_folds: int = 5) -> None:
        self.n_folds = n_folds

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        self.fit_transform(X, y, groups)
        return self

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> NDArray[Any]:
        """Fit the encoder and embed the training texts, each by a classifier without its fold.

        Parameters
        ----------
        X : list, array or DataFrame
            Training texts.
        y : array-like of shape (n_rows,)
            Labels.
        groups : array-like of int of shape (n_rows,), default=None
            Rows of one group share a fold; -1 is no group.

        Returns
        -------
        ndarray of shape (n_rows, width_)
            Held-out embeddings of the training texts.
        """
        check_at_least("n_folds", self.n_folds, 2)
        texts = self._training_texts(X)
        classes, codes = np.unique(_checked_labels(y, len(texts)), return_inverse=True)
        counts = _counts(texts)
        most = min(MAX_NGRAMS, max(1, MAX_NUMBERS // (2 * len(classes))))
        frequencies = [np.bincount(block.indices, minlength=N_BUCKETS) for block in counts]
        self.words_, self.characters_ = (_most_frequent(found, most) for found in frequencies)
        n_with = np.concatenate([frequencies[0][self.words_], frequencies[1][self.characters_]])
        self.idf_ = (1 + np.log((1 + len(texts)) / (1 + n_with))).astype(np.float32)
        folds = fold_numbers(codes, groups, self.n_folds)
        scores, self.map_, self.strength_ = _cross_fit(self._weighted(counts), codes, folds)
        self.width_ = len(classes)
        return scores

    def transform(self, X: Any) -> NDArray[Any]:
        texts = self._rows(X)
        if not texts:
            return np.zeros((0, self.width_), dtype=np.float32)
        return np.asarray(self._weighted(_counts(texts)) @ self.map_)

    def to_settings(self) -> tuple[Settings, Arrays]:
        settings = {
            "encoder": self.name,
            "n_folds": self.n_folds,
            "strength": self.strength_,
            **self._column_settings(),
        }
        arrays: Arrays = {"words": self.words_, "characters": self.characters_}
        arrays |= {"idf": self.idf_, "map": self.map_.ravel()}
        return settings, {name: array.astype(np.float64) for name, array in arrays.items()}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        encoder = cls(check_at_least("n_folds", settings["n_folds"], 2))
        encoder._restore_column(settings, MAX_WIDTH)
        encoder.strength_ = float(settings["strength"])
        encoder.words_, encoder.characters_ = (
            _checked_hashes(arrays[name]) for name in ("words", "characters")
        )
        n_ngrams = len(encoder.words_) + len(encoder.characters_)
        encoder.idf_ = _checked_numbers(arrays["idf"], (n_ngrams,))
        encoder.map_ = _checked_numbers(arrays["map"], (n_ngrams + 1, encoder.width_))
        return encoder

    def _weighted(self, counts: Counts) -> Any:
        """Sparse rows (n, n_ngrams + 1): two blocks of equal length, then a constant."""
        from scipy.sparse import csr_array, hstack

        blocks, start = [], 0
        for block, kept in zip(counts, (self.words_, self.characters_), strict=True):
            weighted = _only(block, kept)
            idf = self.idf_[start : start + len(kept)]
            weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
            lengths = np.sqrt(2 * weighted.power(2).sum(axis=1))
            weighted.data /= np.repeat(lengths, np.diff(weighted.indptr))
            blocks.append(weighted)
            start += len(kept)
        constant = csr_array(np.ones((counts[0].shape[0], 1), dtype=np.float32))
        return hstack([*blocks, constant], format="csr", dtype=np.float32)


def _checked_labels(y: Any, n_rows: int) -> NDArray[Any]:
    if y is None:
        raise InvalidInputError("`y` must hold the label of each text: the encoder learns them.")
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise InvalidInputError(
            f"`y` must have one label for each of {n_rows} texts, got the shape {labels.shape}."
        )
    return labels


def _counts(texts: list[str]) -> Counts:
    """Sparse counts (n, N_BUCKETS) of words and word pairs, and of character n-grams."""
    from sklearn.feature_extraction.text import HashingVectorizer

    shared = {
        "n_features": N_BUCKETS,
        "alternate_sign": False,
        "norm": None,
        "dtype": np.float32,
    }
    words = HashingVectorizer(ngram_range=(1, 2), token_pattern=WORD, **shared)
    characters = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 5), **shared)
    return words.transform(texts), characters.transform(texts)


def _most_frequent(frequencies: Integers, most: int) -> Integers:
    """The sorted hashes of the n-grams that are in most texts.

    An n-gram of a single training text is left out: to the other texts it is unknown.
    """
    found = np.flatnonzero(frequencies > 1)
    order = np.argsort(-frequencies[found], kind="stable")
    return np.sort(found[order[:most]])


def _only(rows: Any, kept: Integers) -> Any:
    """The columns `kept` of sparse rows."""
    from scipy.sparse import csr_array

    column_of = np.full(N_BUCKETS, -1, dtype=np.int32)
    column_of[kept] = np.arange(len(kept))
    columns = column_of[rows.indices]
    is_kept = columns >= 0
    starts = np.concatenate([[0], np.cumsum(is_kept)])[rows.indptr]
    shape = rows.shape[0], len(kept)
    return csr_array((rows.data[is_kept], columns[is_kept], starts), shape=shape)


def fold_numbers(codes: Integers, groups: Any, n_folds: int) -> Integers:
    """The fold (n,) of each row: stratified by class; rows of one group share it.

    >>> fold_numbers(np.array([0, 0, 1, 1]), None, 2).reshape(2, 2).sum(axis=1).tolist()
    [1, 1]
    >>> len(set(fold_numbers(np.array([0, 0, 1, 1]), [7, 7, 7, -1], 2)[:3].tolist()))
    1
    """
    keys = -1 - np.arange(len(codes))
    if groups is not None:
        keys = np.where(np.asarray(groups) == NO_GROUP, keys, groups)
    _, firsts, clusters = np.unique(keys, return_index=True, return_inverse=True)
    if len(firsts) == 1 and len(codes) > 1:
        raise InvalidInputError(
            "All rows belong to one group, so no row can be held out. Pass smaller groups, or "
            "choose an encoder that does not learn from labels."
        )
    shuffled = np.random.default_rng(0).permutation(len(firsts))
    order = shuffled[np.argsort(codes[firsts[shuffled]], kind="stable")]
    folds = np.empty(len(firsts), dtype=np.int64)
    folds[order] = np.arange(len(firsts)) % n_folds
    return folds[clusters]


def _cross_fit(
    rows: Any, codes: Integers, folds: Integers
) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Held-out scores (n, C) of the rows, the mean map (F, C), and the strength.

    The strength is chosen by the log-loss of held-out scores; going on from a stronger one takes
    few steps.
    """
    counts = np.bincount(codes)
    # The same for all folds: frequencies without a fold would tell which classes are in it.
    offset = np.log((counts + 1) / (len(codes) + len(counts))).astype(np.float32)
    parts = [folds != fold for fold in np.unique(folds)] if len(codes) > 1 else []
    maps = np.zeros((max(1, len(parts)), rows.shape[1], len(counts)), dtype=np.float32)
    best_loss, best_strength, best_scores, best_map = np.inf, STRENGTHS[0], offset, maps[0]
    for strength in STRENGTHS:
        scores = np.tile(offset, (len(codes), 1))
        for place, kept in enumerate(parts):
            maps[place] = fit_softmax_regression(
                rows[kept], codes[kept], offset, strength, maps[place]
            )
            scores[~kept] += rows[~kept] @ maps[place]
        loss = log_loss(scores, codes)
        if loss >= best_loss:
            break  # weaker regularization is worse still
        best_loss, best_strength, best_scores, best_map = loss, strength, scores, maps.mean(axis=0)
    best_map[-1] += offset  # the last column is constant
    return _centered(best_scores), _centered(best_map), best_strength


def _centered(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores that sum to zero: a constant added to all classes means nothing."""
    return scores - scores.mean(axis=1, keepdims=True)


def _checked_hashes(numbers: NDArray[Any]) -> Integers:
    if numbers.ndim != 1 or len(numbers) > MAX_NGRAMS or not np.isfinite(numbers).all():
        raise ValueError(f"there must be at most {MAX_NGRAMS} hashes of n-grams")
    hashes = numbers.astype(np.int64)
    is_sorted = np.array_equal(hashes, numbers) and bool((np.diff(hashes) > 0).all())
    if not is_sorted or (len(hashes) and not 0 <= hashes[0] <= hashes[-1] < N_BUCKETS):
        raise ValueError(f"the hashes of n-grams must increase from 0 to {N_BUCKETS - 1}")
    return hashes


def _checked_numbers(numbers: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():  # false for NaN
        raise ValueError("its numbers must be finite in 32 bits")
    return numbers.astype(np.float32).reshape(shape)
