"""Active learning: which unlabeled rows to label next, by the expected gain of their labels."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from attnknn._validation import check_at_least, check_choice
from attnknn.conformal.decisions import novelty_p_values
from attnknn.errors import InvalidInputError
from attnknn.insight.pool import Pool
from attnknn.insight.suggestions import Suggestions
from attnknn.leave_one_out import leave_one_out_batch
from attnknn.model import FittedModel, require_model
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

MAX_KNOWN = 2000  # entries whose distances to the others say what is novel
TINY = np.finfo(float).tiny


def suggest(
    clf: AttnKNNClassifier,
    pool: Any,
    n: int = 20,
    *,
    strategy: str = "default",
    skip: ArrayLike | None = None,
    random_state: int = 0,
) -> Suggestions:
    """Choose the rows of an unlabeled pool that should be labeled next.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier, with at least one labeled row.
    pool : Pool or array-like of shape (n_rows, n_features)
        The unlabeled rows. A `Pool` keeps what can be kept from call to call.
    n : int, default=20
        Number of rows to suggest; all that are left if there are fewer.
    strategy : str, default='default'
        How rows are chosen. All but 'default' rank each row by itself:

        - 'default': how uncertain a row is, times the uncertainty that its label removes from
          itself and from similar unlabeled rows. Each suggestion leaves less to remove for later
          ones of the batch, so that a batch does not hold the same question twice.
        - 'margin': one minus the difference of the two largest probabilities.
        - 'entropy': entropy of the probabilities, in nats.
        - 'least_confident': one minus the largest probability.
        - 'novelty': distance to the nearest entry.
        - 'density': similarity to other unlabeled rows, whatever their probabilities.
        - 'random': at random, for comparison.
    skip : array-like of int, default=None
        Positions of rows that are not suggested, such as rows labeled since the pool was read.
    random_state : int, default=0
        Seed of 'random', and of the sample of a large pool that is not a `Pool`.

    Returns
    -------
    Suggestions
        Rows, scores, reasons and predictions, in the order of labeling.

    Raises
    ------
    InvalidInputError
        If no row is left.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="distance").fit(X[::25], y[::25])
    >>> found = suggest(clf, X, 3)
    >>> len(found), set(y[found.rows].tolist()) <= {1, 2}  # setosa is easy to tell
    (3, True)
    """
    check_at_least("n", n, 1)
    check_choice("strategy", strategy, STRATEGIES)
    clf = copy(clf)  # keeps its model if another thread edits
    model = require_model(clf, "suggest")
    pool = pool if isinstance(pool, Pool) else Pool(pool, random_state=random_state)
    is_open = pool.is_open(skip)
    if not is_open.any():
        raise InvalidInputError("No row of `pool` is left to suggest: all are in `skip`.")
    seen = PoolView(clf, model, pool, is_open, pool.probabilities(clf), random_state)
    places, scores = STRATEGIES[strategy](seen, min(n, int(is_open.sum())))
    return _suggestions(seen, places, scores, strategy)


@dataclass(frozen=True, eq=False)
class PoolView:
    """What strategies see: the considered rows of a pool for one state of a model."""

    clf: AttnKNNClassifier
    model: FittedModel
    pool: Pool
    is_open: Booleans
    probabilities: Floats
    random_state: int

    @property
    def margin_lost(self) -> Floats:
        """One minus the difference of the two largest probabilities: 1 for a tie."""
        if self.probabilities.shape[1] < 2:
            return 1.0 - self.probabilities[:, 0]
        best = -np.partition(-self.probabilities, 1, axis=1)[:, :2]
        return 1.0 - (best[:, 0] - best[:, 1])

    @property
    def similar(self) -> sparse.csr_array:
        """What a label of one row (column) says about another (row)."""
        return self.pool.similarities(self.clf)

    def nearest_entries(self, places: Integers) -> Floats:
        """Distances (n,) of some rows to their nearest entries."""
        queries = self.pool.embeddings(self.clf)[places]
        return self.model.memory.search_prepared(queries, 1).distances[:, 0]


Ranked = tuple[Integers, Floats]  # places among the considered rows, and their scores
Strategy = Callable[[PoolView, int], Ranked]


def _by(score: Callable[[PoolView], Floats]) -> Strategy:
    """The strategy that ranks each open row by a score, ties by position."""

    def strategy(seen: PoolView, n: int) -> Ranked:
        scores = score(seen)
        order = np.argsort(np.where(seen.is_open, -scores, np.inf), kind="stable")[:n]
        return order, scores[order]

    return strategy


def _greedy(seen: PoolView, n: int) -> Ranked:
    """One row after another: the uncertainty of a row times what its label removes.

    A label removes the uncertainty of the row itself, and that of similar rows by their similarity;
    later rows of the batch count only what the earlier ones left.
    """
    links = sparse.csr_array(seen.similar + sparse.eye_array(len(seen.pool)))
    removes = links.tocsc()  # column v: the rows about which the label of v says something
    own = np.where(seen.is_open, seen.margin_lost, 0.0)
    left, removed = own.copy(), removes.T @ own
    allowed, chosen, scores = seen.is_open.copy(), [], []
    for _ in range(n):
        best = int(np.where(allowed, own * removed, -np.inf).argmax())
        chosen.append(best)
        scores.append(float(own[best] * removed[best]))
        allowed[best] = False
        part = slice(removes.indptr[best], removes.indptr[best + 1])
        rows, shares = removes.indices[part], np.minimum(removes.data[part], 1.0)
        lost = left[rows] * shares
        left[rows] -= lost
        removed = np.maximum(removed - links[rows].T @ lost, 0.0)
    return np.array(chosen, dtype=np.int64), np.array(scores)


def _entropy(seen: PoolView) -> Floats:
    found = seen.probabilities
    return np.asarray(-(found * np.log(np.maximum(found, TINY))).sum(axis=1))


def _novelty(seen: PoolView) -> Floats:
    distances = np.zeros(len(seen.pool))
    places = np.flatnonzero(seen.is_open)
    distances[places] = seen.nearest_entries(places)
    return distances


def _random(seen: PoolView) -> Floats:
    return np.random.default_rng(seen.random_state).random(len(seen.pool))


STRATEGIES: dict[str | None, Strategy] = {
    "default": _greedy,
    "margin": _by(lambda seen: seen.margin_lost),
    "entropy": _by(_entropy),
    "least_confident": _by(lambda seen: 1.0 - seen.probabilities.max(axis=1)),
    "novelty": _by(_novelty),
    "density": _by(lambda seen: np.asarray(seen.similar.sum(axis=0))),
    "random": _by(_random),
}


def _suggestions(seen: PoolView, places: Integers, scores: Floats, strategy: str) -> Suggestions:
    chosen = seen.probabilities[places]
    order = np.argsort(-chosen, axis=1, kind="stable")
    second = order[:, min(1, chosen.shape[1] - 1)]
    is_rest = seen.is_open.copy()
    is_rest[places] = False
    return Suggestions(
        rows=seen.pool.rows[places],
        scores=scores,
        predicted=seen.model.classes[order[:, 0]],
        confidence=chosen.max(axis=1),
        runner_up=seen.model.classes[second],
        runner_up_confidence=np.take_along_axis(chosen, second[:, None], axis=1)[:, 0],
        novelty_p_values=novelty_p_values(seen.nearest_entries(places), _known_distances(seen)),
        n_similar=_n_similar(seen, places),
        strategy=strategy,
        n_left=int(seen.is_open.sum()),
        expected_accuracy=seen.pool.expected_accuracy(seen.clf, is_rest),
    )


def _known_distances(seen: PoolView) -> Floats:
    """Distance of entries to their nearest other entry, of at most `MAX_KNOWN` entries."""
    model = seen.model

    def compute() -> Floats:
        memory = model.memory
        if len(memory) < 2:
            return np.zeros(0)
        graph = model.existing_graph()
        n_chosen = min(len(memory), MAX_KNOWN)
        rows = np.random.default_rng(0).choice(len(memory), n_chosen, replace=False)
        found = leave_one_out_batch(memory, model.counts, 1, np.sort(rows), graph)
        return found.batch.neighbors.distances[:, 0]

    return model.cached("suggest: distances", compute)


def _n_similar(seen: PoolView, places: Integers) -> Integers:
    """How many other unlabeled rows are similar to some rows: the sum of the similarities."""
    total = seen.similar[:, places].T @ seen.is_open.astype(float)
    return np.rint(total).astype(np.int64)
