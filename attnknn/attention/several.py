"""Attention over several numbers of neighbors: their votes are averaged, or one is chosen.

These are attentions rather than wrappers of a classifier, because the average of several votes over
the same neighbors is one vote with averaged weights: evidence stays exact, and temperature, prior's
score, map and noise are fitted after the averaging. How the votes are mixed is fitted in
`attnknn.ensembling`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from attnknn._validation import check_at_least, check_choice
from attnknn.attention.base import Attention, NeighborBatch, Scores
from attnknn.errors import InvalidSettingError
from attnknn.records import Floats, Integers

SHARES_OF_K = (16, 4, 1)  # the default sizes are the largest K divided by these


class SeveralSizesAttention(Attention):
    """Distance attention over the nearest few, more and all neighbors, mixed per query.

    A head per size; a neighbor beyond the size of a head has no say in it. A memory with fewer
    entries than a size gives that head all it has.
    """

    sizes: tuple[int, ...] | None
    sizes_: tuple[int, ...]

    def settle(self, n_neighbors: int) -> None:
        """Check the settings, and set `sizes_` where at most `n_neighbors` are searched."""
        if self.sizes is None:
            self.sizes_ = tuple(sorted({max(1, n_neighbors // part) for part in SHARES_OF_K}))
            return
        sizes = tuple(check_at_least("sizes", size, 1) for size in self.sizes)
        if not sizes or list(sizes) != sorted(set(sizes)):
            raise InvalidSettingError(f"`sizes` must rise from first to last, got {self.sizes!r}.")
        if sizes[-1] > n_neighbors:
            raise InvalidSettingError(
                f"`sizes` must not exceed `n_neighbors`={n_neighbors}, got {sizes[-1]}."
            )
        self.sizes_ = sizes

    def scores(self, batch: NeighborBatch) -> Scores:
        """Minus the squared distances, in each head those of its nearest few."""
        squared = np.where(batch.neighbors.mask, batch.squared, 0.0)
        place = np.arange(squared.shape[1])
        beyond = place >= np.array(self.sizes_)[:, None]  # (H, K)
        scores = np.where(beyond, -np.inf, -squared[:, None, :])
        return Scores(scores, np.zeros(scores.shape[:2]), self.mixing(batch))

    @abstractmethod
    def mixing(self, batch: NeighborBatch) -> Floats | None:
        """The say (B, H) of each size for each query; None: all alike."""


class KEnsembleAttention(SeveralSizesAttention):
    """The average of the votes over several numbers of neighbors.

    Parameters
    ----------
    sizes : how many neighbors each vote counts, rising, at most `n_neighbors`; None is a
        sixteenth, a quarter and all of `n_neighbors`
    weighting : 'equal' averages plainly; 'fitted' weighs the sizes, alike for all queries, by
        their leave-one-out likelihood

    Attributes
    ----------
    weights_ : (H,) the say of each of the sizes `sizes_`

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention=KEnsembleAttention(sizes=(2, 8, 32))).fit(X, y)
    >>> clf.predict(X[:2]).tolist(), clf.attention_.weights_.tolist()
    ([0, 0], [0.3333333333333333, 0.3333333333333333, 0.3333333333333333])
    """

    weights_: Floats

    def __init__(self, sizes: tuple[int, ...] | None = None, weighting: str = "equal") -> None:
        self.sizes = sizes
        self.weighting = weighting

    def settle(self, n_neighbors: int) -> None:
        """Check the settings and begin with equal weights."""
        check_choice("weighting", self.weighting, ["equal", "fitted"])
        super().settle(n_neighbors)
        self.weights_ = np.full(len(self.sizes_), 1.0 / len(self.sizes_))

    def mixing(self, batch: NeighborBatch) -> Floats:
        """The same weights for every query."""
        return np.tile(self.weights_, (len(batch.queries), 1))


class AdaptiveAttention(SeveralSizesAttention):
    """As many neighbors as each query asks for: few where they agree, many where they do not.

    Parameters
    ----------
    sizes : the numbers of neighbors to choose from; see `KEnsembleAttention`
    rule : 'entropy' takes the smallest size whose plain vote has at most the entropy `threshold_`,
        or else the largest; 'learned' mixes the sizes by a small softmax model of the entropies
        and of how much farther the last neighbor of each size is than the first
    threshold : in nats, for 'entropy'; higher is content with fewer neighbors. None chooses it by
        leave-one-out log-loss

    Attributes
    ----------
    threshold_ : the one in use, with 'entropy'
    model_ : (1 + 2 H, H) intercepts and slopes of the softmax model, with 'learned'

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention=AdaptiveAttention(sizes=(4, 32), threshold=0.3))
    >>> evidence = clf.fit(X, y).explain(X[[0, 70]])  # a clear iris, and one between two kinds
    >>> [int((e.weights > 0).sum()) for e in evidence]
    [4, 32]
    """

    threshold_: float
    model_: Floats

    def __init__(
        self,
        sizes: tuple[int, ...] | None = None,
        rule: str = "entropy",
        threshold: float | None = None,
    ) -> None:
        self.sizes = sizes
        self.rule = rule
        self.threshold = threshold

    def settle(self, n_neighbors: int) -> None:
        """Check the settings; until something is fitted all sizes are alike."""
        check_choice("rule", self.rule, ["entropy", "learned"])
        if self.threshold is not None and not self.threshold >= 0:
            raise InvalidSettingError(f"`threshold` must be at least 0, got {self.threshold!r}.")
        super().settle(n_neighbors)
        self.__dict__.pop("threshold_", None)
        self.__dict__.pop("model_", None)

    def mixing(self, batch: NeighborBatch) -> Floats | None:
        """One size for each query, or a mixture of them."""
        if hasattr(self, "threshold_"):
            return chosen_by_entropy(entropies(batch, self.sizes_), self.threshold_)
        if hasattr(self, "model_"):
            return mixed_by_model(neighborhood(batch, self.sizes_), self.model_)
        return None


def chosen_by_entropy(entropy: Floats, threshold: float) -> Floats:
    """One (B, H) for the first size with at most this entropy, or else for the last.

    >>> chosen_by_entropy(np.array([[0.0, 0.3], [0.6, 0.4], [0.7, 0.7]]), 0.5).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    is_content = entropy <= threshold
    is_content[:, -1] = True
    return np.eye(entropy.shape[1])[is_content.argmax(axis=1)]


def mixed_by_model(features: Floats, model: Floats) -> Floats:
    """Softmax (B, H) of a linear model (1 + F, H) of the features (B, F)."""
    scores = model[0] + features @ model[1:]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def neighborhood(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """What the mixture looks at (B, 2 H): entropies, and how the distances rise."""
    return np.hstack([entropies(batch, sizes), _rises(batch, sizes)])


def entropies(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """Entropy (B, H), in nats, of the plain vote of the nearest few, for each of the sizes."""
    neighbors = batch.neighbors
    say = np.where(neighbors.mask, batch.sample_weight, 0.0)
    columns = [_entropy(neighbors.labels[:, :size], say[:, :size]) for size in sizes]
    return np.column_stack(columns) if len(say) else np.zeros((0, len(sizes)))


def _entropy(labels: Integers, say: Floats) -> Floats:
    weights = say / np.maximum(say.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    n_classes = int(labels.max(initial=0)) + 1
    cells = labels + np.arange(len(labels))[:, None] * n_classes
    shares = np.bincount(cells.ravel(), weights.ravel(), len(labels) * n_classes)[cells]
    logs = np.log(np.where(weights > 0, shares, 1.0))
    return np.abs((weights * logs).sum(axis=1))


def _rises(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """How much farther (B, H) the last neighbor of each size is than the first, from 0 to 1.

    The squared distance of the first, taken off, and the rise over all neighbors, divided by, make
    it the same for any unit of distance.
    """
    found = batch.neighbors.mask
    last_found = np.maximum(found.sum(axis=1) - 1, 0)
    lasts = np.minimum(np.array(sizes)[None, :] - 1, last_found[:, None])
    squared: Any = np.where(found, batch.squared, 0.0)
    rise = np.take_along_axis(squared, lasts, axis=1) - squared[:, :1]
    whole = np.take_along_axis(squared, last_found[:, None], axis=1) - squared[:, :1]
    return np.divide(rise, whole, out=np.ones_like(rise), where=whole > 0)
