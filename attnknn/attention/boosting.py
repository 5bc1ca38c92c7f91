"""Boosting attention: neighbors in the space of gradient-boosted scores vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from attnknn._stored import fitted_fields
from attnknn._validation import Limits, check_limits
from attnknn.attention.direct import DirectFit
from attnknn.attention.distance import DistanceAttention
from attnknn.attention.space import SpaceAttention, Vectors, folds_of
from attnknn.attention.trees import LEAF, Trees, arranged, siblings_together
from attnknn.errors import ModelFolderError
from attnknn.memory.entries import Entries
from attnknn.records import Booleans, Floats, Integers
from attnknn.registry import register
from attnknn.training.threads import SMALL_TABLE, one_openmp_thread_if

if TYPE_CHECKING:
    from attnknn._stored import Arrays

LIMITS = {
    "n_folds": Limits(least=2, is_whole=True),
    "max_iterations": Limits(least=1, is_whole=True),
    "learning_rate": Limits(least=1e-3),
    "max_leaf_nodes": Limits(least=2, is_whole=True),
    "min_samples_leaf": Limits(least=1, is_whole=True),
    "max_features": Limits(above=0, most=1),
    "prior_score": Limits(may_be_none=True),
}
LOWER = 3.0  # by how much the score of a class without rows is below the lowest
STEP = 25  # iterations after which the rows left out are asked whether to go on


@dataclass(frozen=True, eq=False)
class BoostedMaps:
    """Scores by the trees of F folds, of I iterations each, with S scores."""

    trees: Trees  # F · I · S, by fold, then iteration, then score
    values: NDArray[np.float32]  # of each leaf
    offset: NDArray[np.float32]  # (F, S) scores before the first tree

    def of_queries(self, queries: Vectors) -> Vectors:
        """Scores (B, S) by the mean of all folds."""
        found = self._sums(self.trees, queries, len(self.offset)) + self.offset
        return centered(found.mean(axis=1))

    def of_entries(self, entries: Entries) -> Vectors:
        """Scores (N, S), each by the trees that were grown without the entry's fold."""
        folds = folds_of(entries, len(self.offset))
        scores = np.zeros((len(entries), self.offset.shape[1]), dtype=np.float32)
        size = len(self.trees) // len(self.offset)
        for fold, offset in enumerate(self.offset):
            rows = folds == fold
            trees = self.trees.part(fold * size, (fold + 1) * size)
            scores[rows] = self._sums(trees, entries.embeddings[rows], 1)[:, 0] + offset
        return centered(scores)

    def _sums(self, trees: Trees, X: Vectors, n_folds: int) -> Vectors:
        """Sums (B, F, S) of the values of the leaves that rows reach."""
        n_scores = self.offset.shape[1]
        sums = np.empty((len(X), n_folds, n_scores), dtype=np.float32)
        for rows, leaf in trees.blocks_of_leaves(X):
            found = self.values[leaf].reshape(len(leaf), n_folds, -1, n_scores)
            sums[rows] = found.sum(axis=2, dtype=np.float64)
        return sums


def centered(scores: Vectors) -> Vectors:
    """Scores (B, S) whose mean is 0 in each row: only differences matter. One score stays."""
    return scores if scores.shape[1] == 1 else scores - scores.mean(axis=1, keepdims=True)


@register("attention", "boosting")
class BoostingAttention(SpaceAttention):
    """Distance attention in the space of the scores of gradient-boosted trees.

    Rows are mapped to the class scores of gradient boosting, and the entries that are nearest
    there vote. The scores are cross-fitted: the rows are split into folds, an entry is mapped by
    the trees that were grown without its fold, and a query by the mean of all folds. So every
    entry is held out. It helps on tables with many rows, and takes longer to fit than a forest.

    Parameters
    ----------
    n_folds : int, default=5
        Number of folds.
    max_iterations : int, default=300
        Maximum number of boosting iterations; the log-loss of the folds left out chooses how many
        are used.
    learning_rate : float, default=0.1
        Shrinkage of each iteration. Smaller values need more iterations.
    max_leaf_nodes : int, default=31
        Maximum number of leaves of a tree.
    min_samples_leaf : int, default=20
        Smallest number of training rows in a leaf.
    max_features : float, default=1.0
        Share of the columns that are candidates for a split.
    prior_score : float, default=None
        Logit of the weight of the prior, in addition to its weight in the vote. None fits it by
        leave-one-out log-loss.

    Attributes
    ----------
    map_ : BoostedMaps
        The trees of all folds.
    n_iterations_ : int
        Number of iterations in use.
    inner_ : DistanceAttention
        The attention in the space of scores.
    n_neighbors_ : int
        Number of neighbors that vote.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="boosting", random_state=0).fit(X, y)
    >>> clf.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]
    """

    map_: BoostedMaps
    n_iterations_: int
    inner_: DistanceAttention

    def __init__(
        self,
        n_folds: int = 5,
        max_iterations: int = 300,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 31,
        min_samples_leaf: int = 20,
        max_features: float = 1.0,
        prior_score: float | None = None,
    ) -> None:
        self.n_folds = n_folds
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.prior_score = prior_score

    def fit_entries(self, problem: DirectFit) -> None:
        check_limits(self, LIMITS)
        entries = problem.memory.read()
        settings = {
            "learning_rate": self.learning_rate,
            "max_leaf_nodes": self.max_leaf_nodes,
            "min_samples_leaf": self.min_samples_leaf,
            "max_features": float(self.max_features),  # scikit-learn refuses the integer 1
            "random_state": problem.random_state % 2**31,
        }
        self.map_, self.n_iterations_ = cross_fit(
            entries, folds_of(entries, self.n_folds), self.n_folds, self.max_iterations, settings
        )
        self.inner_ = DistanceAttention()
        memory = self.mapped(problem.memory)
        self.n_neighbors_ = problem.fit_head(self.inner_, memory, are_scores=True)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        fitted = {"n_iterations": self.n_iterations_, **self._inner_scalars()}
        arrays = {
            **self.map_.trees.arrays(),
            "values": self.map_.values,
            "offset": self.map_.offset,
        }
        return fitted, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        fields = fitted_fields(values)
        trees = Trees.from_arrays(arrays, dim)
        of_leaves, offset = arrays["values"], arrays["offset"]
        self.n_iterations_ = fields.integer("n_iterations", least=1)
        n_scores = offset.shape[-1] if offset.ndim == 2 else 0
        if (
            not of_leaves.dtype == offset.dtype == np.float32
            or of_leaves.shape != (trees.n_leaves,)
            or offset.shape != (self.n_folds, n_scores)
            or not 1 <= n_scores <= n_classes
            or len(trees) != self.n_folds * self.n_iterations_ * n_scores
            or not (np.isfinite(of_leaves).all() and np.isfinite(offset).all())
        ):
            raise ModelFolderError("The stored boosted trees must be finite and fit the folds.")
        self.map_, self.inner_ = BoostedMaps(trees, of_leaves, offset), DistanceAttention()
        self._restore_inner_scalars(fields)


def cross_fit(
    entries: Entries, folds: Integers, n_folds: int, max_iterations: int, settings: dict[str, Any]
) -> tuple[BoostedMaps, int]:
    """Boosted trees of each fold, grown without it, and their number of iterations.

    All folds grow together, and stop when the log-loss of the rows left out no longer falls.
    """
    classes, codes = np.unique(entries.labels, return_inverse=True)
    grown = [
        _Fold(entries, codes, len(classes), folds == fold, settings) for fold in range(n_folds)
    ]
    best, losses = 0, [np.inf]
    with one_openmp_thread_if(entries.embeddings.size < SMALL_TABLE):
        while len(losses) <= max_iterations and len(losses) - best <= 2 * STEP:
            n_iterations = min(max_iterations, len(losses) - 1 + STEP)
            of_folds = [fold.grow(n_iterations) for fold in grown]
            losses = [*losses, *np.sum(of_folds, axis=0).tolist()]
            best = int(np.argmin(losses))
    nodes = [tree for fold in grown for tree in fold.trees(best)]
    values = np.concatenate([tree.values for tree in nodes]).astype(np.float32)
    offset = np.stack([fold.offset for fold in grown]).astype(np.float32)
    return BoostedMaps(Trees.of_nodes([tree.nodes for tree in nodes]), values, offset), best


@dataclass(frozen=True)
class _Tree:
    """One boosted tree: its nodes, and the values of its leaves."""

    nodes: Any
    values: Floats

    @classmethod
    def of(cls, predictor: Any, sign: float = 1.0) -> _Tree:
        """From a tree of scikit-learn's histogram gradient boosting."""
        nodes = predictor.nodes
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        left, right = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
        place = siblings_together(inner, left, right)
        parts = arranged(inner, place, nodes["feature_idx"], nodes["num_threshold"], left)
        values = np.empty(len(nodes))
        values[place] = nodes["value"] * sign
        return cls(parts, values[parts[0] == LEAF])


_NOTHING = _Tree(
    (np.full(1, LEAF, np.int32), np.zeros(1, np.float32), np.zeros(1, np.int32)), np.zeros(1)
)


class _Fold:
    """Gradient boosting on all rows but those of one fold, whose log-loss is watched."""

    def __init__(
        self,
        entries: Entries,
        codes: Integers,
        n_classes: int,
        is_left_out: Booleans,
        settings: dict[str, Any],
    ) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        kept = ~is_left_out
        self._X, self._codes = entries.embeddings[kept], codes[kept]
        weights = entries.effective_weight[kept]
        # Binning is much slower with sample weights.
        self._weights = None if (weights == weights[:1]).all() else weights
        self._out, self._own = entries.embeddings[is_left_out], codes[is_left_out]
        self._out_weights = entries.effective_weight[is_left_out]
        self._present = np.unique(self._codes)
        self._model = HistGradientBoostingClassifier(
            early_stopping=False, warm_start=True, **settings
        )
        self._trees: list[_Tree] = []
        self._n_scores = 1 if n_classes <= 2 else n_classes
        self.offset: Floats = np.zeros(self._n_scores)
        self._scores = np.zeros((len(self._out), self._n_scores))

    def grow(self, n_iterations: int) -> Floats:
        """Total log-loss of the rows left out after each further iteration, up to this many."""
        start = len(self._trees) // self._n_scores
        self._trees += self._grown(start, n_iterations)
        if not start:
            self.offset = self._first_scores()
            self._scores = self._scores + self.offset
        losses = []
        for iteration in range(start, n_iterations):
            first = iteration * self._n_scores
            trees = self._trees[first : first + self._n_scores]
            self._scores = self._scores + self._sums(trees, self._out)
            losses.append(self._loss())
        return np.array(losses)

    def trees(self, n_iterations: int) -> list[_Tree]:
        """The trees of the first iterations, by iteration and then by score."""
        return self._trees[: n_iterations * self._n_scores]

    def _grown(self, start: int, stop: int) -> list[_Tree]:
        """The trees of further iterations; a class without rows has trees of value 0."""
        if len(self._present) < 2:
            return [_NOTHING] * ((stop - start) * self._n_scores)
        self._model.set_params(max_iter=stop).fit(self._X, self._codes, self._weights)
        trees: list[_Tree] = []
        for predictors in self._model._predictors[start:stop]:
            if self._n_scores == 1:
                trees.append(_Tree.of(predictors[0]))
                continue
            of_class = dict.fromkeys(range(self._n_scores), _NOTHING)
            if len(self._present) == 2:  # one score: half of it for either class
                one, other = self._present.tolist()
                of_class[one] = _Tree.of(predictors[0], -0.5)
                of_class[other] = _Tree.of(predictors[0], 0.5)
            else:
                found = zip(self._present.tolist(), predictors, strict=True)
                of_class.update({code: _Tree.of(tree) for code, tree in found})
            trees += of_class.values()
        return trees

    def _first_scores(self) -> Floats:
        """Scores (S,) before the first tree; a class without rows has the lowest."""
        if len(self._present) < 2:
            return np.zeros(self._n_scores)
        with_trees = self._model.decision_function(self._X[:1]).ravel()
        if self._n_scores > 1 and len(with_trees) == 1:
            with_trees = np.array([-with_trees[0], with_trees[0]]) / 2
        by_trees = self._sums(self._trees, self._X[:1])[0]
        if self._n_scores == 1:
            return np.asarray(with_trees - by_trees)
        found = with_trees - by_trees[self._present]
        scores = np.full(self._n_scores, found.min() - LOWER)
        scores[self._present] = found
        return scores

    def _sums(self, trees: list[_Tree], X: Vectors) -> Floats:
        """Sums (B, S) of the values of the leaves that rows reach."""
        values = np.concatenate([tree.values for tree in trees])
        leaves = Trees.of_nodes([tree.nodes for tree in trees]).leaves(X)
        shape = len(X), len(trees) // self._n_scores, self._n_scores  # X may have no rows
        return np.asarray(values[leaves].reshape(shape).sum(axis=1))

    def _loss(self) -> float:
        scores = self._scores
        if self._n_scores == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        losses = logsumexp(scores, axis=1) - scores[np.arange(len(scores)), self._own]
        return float(losses @ self._out_weights)
