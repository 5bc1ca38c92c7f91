"""Unlabeled rows, with what stays the same while rows of them are labeled."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from attnknn._validation import check_at_least
from attnknn.attention.base import squared_distances
from attnknn.errors import InvalidInputError
from attnknn.insight.pool_accuracy import expected_accuracy, exponent_for_rows
from attnknn.memory.base import Memory
from attnknn.memory.entries import make_entries
from attnknn.model import FittedModel, Queries, require_model
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

N_SIMILAR, N_SCALE = 16, 8  # similar rows of each row, and which of them sets the scale
N_AFFECTED, MAX_AFFECTED = 128, 1024  # rows predicted again: nearest to a changed entry, and in all
MAX_CHANGED = 64  # changed entries after which all rows are predicted again
MAX_GROWTH = 0.02  # of the entries, before the expected accuracy is corrected again
SAME = 1e-4  # of the median distance to the nearest entry, within which two rows are equal
WIDE = 20_000  # rows that are considered by default


class Pool:
    """Unlabeled rows, encoded once and linked with similar ones, for many calls of `suggest`.

    Embeddings and similar rows are computed at the first call for a model and kept until another
    encoder is fitted. Predictions are kept from call to call: after an edit of at most 64 entries,
    only those for the rows nearest to the changed entries are computed again (128 of each entry, of
    many entries fewer), the others after the next `refit` or larger edit. Methods may be called
    from several threads.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features), or whatever the encoder takes
        The rows.
    max_rows : int, default=20000
        Largest number of rows that are considered; of more, a random sample.
    random_state : int, default=0
        Seed of the sample.

    Attributes
    ----------
    rows : ndarray of shape (n_considered,)
        Positions in `X` of the rows that are considered.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.insight import Pool, suggest
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="distance").fit(X[::10], y[::10])
    >>> pool, labeled = Pool(X), list(range(0, 150, 10))
    >>> for _ in range(3):  # labels come one by one
    ...     row = suggest(clf, pool, 1, skip=labeled).rows
    ...     clf = clf.add(X[row], y[row])
    ...     labeled += row.tolist()
    >>> len(clf.memory_)
    18
    """

    def __init__(self, X: Any, *, max_rows: int = WIDE, random_state: int = 0) -> None:
        check_at_least("max_rows", max_rows, 1)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if not n_rows:
            raise InvalidInputError("`pool` must have at least one row, it has none.")
        self.X, self.n_rows = X, int(n_rows)
        self.rows: Integers = np.arange(self.n_rows)
        if self.n_rows > max_rows:
            drawn = np.random.default_rng(random_state).choice(self.n_rows, max_rows, replace=False)
            self.rows = np.sort(drawn)
        self._lock = threading.RLock()
        self._space: tuple[Any, ...] = ()  # encoder, metric and center of the embeddings
        self._queries: Queries = np.zeros((0, 0), dtype=np.float32)
        self._similar: sparse.csr_array | None = None
        self._model: FittedModel | None = None  # of the predictions
        self._probabilities: Floats = np.zeros((0, 0))
        self._exponent: tuple[Any, int, float] = (None, 0, 1.0)  # fit, number of entries, power

    def __len__(self) -> int:
        return len(self.rows)

    def is_open(self, skip: ArrayLike | None) -> Booleans:
        """Which of the considered rows may be suggested.

        Parameters
        ----------
        skip : array-like of int, default=None
            Positions in `X` of rows that may not, as they are labeled already.

        Returns
        -------
        ndarray of shape (n_considered,)
            True for rows that may be suggested.
        """
        named = np.zeros(0, dtype=np.int64) if skip is None else np.atleast_1d(np.asarray(skip))
        if named.size and named.dtype.kind not in "iu":
            raise InvalidInputError(
                f"`skip` must hold positions of rows (integers), got {named.ravel().tolist()[0]!r}."
            )
        wrong = named[(named < 0) | (named >= self.n_rows)]
        if wrong.size:
            raise InvalidInputError(
                f"`skip` must hold positions from 0 to {self.n_rows - 1:,}, got {wrong[0]}."
            )
        return ~np.isin(self.rows, named)

    def known(self, clf: AttnKNNClassifier) -> Integers:
        """Find the considered rows that equal an entry, up to rounding.

        Parameters
        ----------
        clf : AttnKNNClassifier
            A fitted classifier.

        Returns
        -------
        ndarray of shape (n_known,)
            Positions in `X`, as `skip` of `suggest` takes them.
        """
        memory = require_model(clf, "known").memory
        distances = memory.search_prepared(self.embeddings(clf), 1).distances[:, 0]
        positive = distances[distances > 0]
        typical = float(np.median(positive)) if len(positive) else 0.0
        return self.rows[distances <= SAME * typical]

    def embeddings(self, clf: AttnKNNClassifier) -> NDArray[np.float32]:
        """Embeddings of the considered rows, prepared by the memory of a classifier.

        Parameters
        ----------
        clf : AttnKNNClassifier
            A fitted classifier.

        Returns
        -------
        ndarray of shape (n_considered, n_dimensions)
            Of the first view, if the encoder has several.
        """
        with self._lock:
            queries = self._encoded(clf, require_model(clf, "suggest"))
        return queries if isinstance(queries, np.ndarray) else queries[0]

    def probabilities(self, clf: AttnKNNClassifier) -> Floats:
        """Class probabilities of the considered rows.

        Parameters
        ----------
        clf : AttnKNNClassifier
            A fitted classifier.

        Returns
        -------
        ndarray of shape (n_considered, n_classes)
            After a small edit, rows far from the changed entries keep their earlier probabilities.
        """
        model = require_model(clf, "suggest")
        with self._lock:
            queries = self._encoded(clf, model)
            if self._model is not model:
                stale = self._stale(model)
                if stale is None:
                    self._probabilities = model.predict_proba(queries)
                elif len(stale):
                    some = _rows_of(queries, stale)
                    self._probabilities = self._probabilities.copy()  # readers keep theirs
                    self._probabilities[stale] = model.predict_proba(some)
                self._model = model
            return self._probabilities

    def similarities(self, clf: AttnKNNClassifier) -> sparse.csr_array:
        """How much the label of one considered row says about another one.

        Parameters
        ----------
        clf : AttnKNNClassifier
            A fitted classifier.

        Returns
        -------
        sparse array of shape (n_considered, n_considered)
            In row u and column v from 0 to 1 for the 16 rows v that are nearest to u, relative to
            the distance of the eighth one.
        """
        with self._lock:
            model = require_model(clf, "suggest")
            embeddings = self.embeddings(clf)
            if self._similar is None:
                self._similar = _similarities(model.memory, embeddings)
            return self._similar

    def expected_accuracy(self, clf: AttnKNNClassifier, is_rest: Booleans) -> float:
        """Estimate the accuracy on some of the considered rows.

        Parameters
        ----------
        clf : AttnKNNClassifier
            A fitted classifier.
        is_rest : ndarray of shape (n_considered,)
            True for the rows to estimate it on.

        Returns
        -------
        float
            Mean probability of the predicted labels, corrected for entries that were chosen and not
            drawn; NaN without rows. The correction is computed again after a fit, and when the
            number of entries has changed by more than two percent.
        """
        with self._lock:
            probabilities, model = self.probabilities(clf), require_model(clf, "suggest")
            n_entries = len(model.memory)
            last, n_then, _ = self._exponent
            is_old = last is not model.report or abs(n_entries - n_then) > MAX_GROWTH * n_then
            if is_old and is_rest.any():
                exponent = exponent_for_rows(model, self.embeddings(clf)[is_rest])
                self._exponent = (model.report, n_entries, exponent)
            return expected_accuracy(probabilities[is_rest], self._exponent[2])

    def _encoded(self, clf: AttnKNNClassifier, model: FittedModel) -> Queries:
        memory = model.memory
        space = (model.encoder, memory.metric_, memory.center_)
        if len(self._space) and _is_same(self._space, space):
            return self._queries
        X = self.X if len(self.rows) == self.n_rows else _safe_indexing(self.X, self.rows)
        if model.encoder.has_views:
            self._queries = model.queries(X)
        else:
            self._queries = memory.prepare(clf.embed(X))
        self._space, self._similar, self._model = space, None, None
        return self._queries

    def _stale(self, model: FittedModel) -> Integers | None:
        """Rows whose predictions an edit may have changed most; None if all must be made."""
        last = self._model
        if (
            last is None
            or last.report is not model.report
            or len(last.classes) != len(model.classes)
        ):
            return None
        changed = _changed_entries(last, model)
        if len(changed) > MAX_CHANGED:
            return None
        queries = self._queries if isinstance(self._queries, np.ndarray) else self._queries[0]
        n_affected = min(N_AFFECTED, MAX_AFFECTED // max(1, len(changed)), len(queries))
        near = [
            np.argpartition(((queries - one) ** 2).sum(axis=1), n_affected - 1)[:n_affected]
            for one in changed
        ]
        return np.unique(np.concatenate(near)) if near else np.zeros(0, dtype=np.int64)


def _is_same(space: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    has_same_center = other[2] is None if space[2] is None else np.array_equal(space[2], other[2])
    return bool(space[0] is other[0] and space[1] == other[1] and has_same_center)


def _rows_of(queries: Queries, rows: Integers) -> Queries:
    if isinstance(queries, np.ndarray):
        return queries[rows]
    return [view[rows] for view in queries]


def _changed_entries(last: FittedModel, model: FittedModel) -> NDArray[np.float32]:
    """Embeddings of the entries that were added, forgotten or relabeled from one model to another.

    At most one more than `MAX_CHANGED`.
    """
    before, after = last.memory.entries, model.memory.entries
    is_new, is_gone = ~np.isin(after.ids, before.ids), ~np.isin(before.ids, after.ids)
    kept = last.memory.positions_of(after.ids[~is_new])
    old, new = last.classes[before.labels[kept]], model.classes[after.labels[~is_new]]
    is_relabeled = np.flatnonzero(~is_new)[old != new]
    parts = (
        model.memory.vectors[is_new],
        model.memory.vectors[is_relabeled],
        last.memory.vectors[is_gone],
    )
    return np.concatenate(parts)[: MAX_CHANGED + 1]


def _similarities(memory: Memory, embeddings: NDArray[np.float32]) -> sparse.csr_array:
    n = len(embeddings)
    if n < 2:
        return sparse.csr_array((n, n))
    plain = make_entries(embeddings, np.zeros(n, dtype=np.int64))
    others = clone(memory).restore(plain, memory.metric_, memory.center_)
    width = min(N_SIMILAR, n - 1)
    found = others.search_prepared(embeddings, width, exclude=np.arange(n))
    squared = squared_distances(found.distances, memory.metric_)
    squared = squared - np.minimum(squared.min(axis=1, keepdims=True), 0.0)
    scale = np.maximum(squared[:, min(N_SCALE, width) - 1], np.finfo(np.float32).tiny)
    weights = np.where(found.mask, np.exp(-squared / scale[:, None]), 0.0)
    row = np.repeat(np.arange(n), width)
    return sparse.csr_array((weights.ravel(), (row, found.positions.ravel())), shape=(n, n))
