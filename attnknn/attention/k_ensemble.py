"""Attention over several numbers of neighbors, whose votes are averaged or chosen per query.

An average of several votes over the same neighbors is one vote with averaged weights. So evidence
stays exact, and temperature, prior score, probability map and label noise are fitted after the
averaging.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from attnknn._stored import Arrays, Fields, fitted_fields
from attnknn._validation import check_at_least, check_choice
from attnknn.attention.base import Attention, NeighborBatch, ScalarFit, Scores
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.records import Floats, Integers
from attnknn.registry import register
from attnknn.training.threads import one_blas_thread_if
from attnknn.vote import vote

DIVISORS = (16, 4, 1)  # the default sizes are the largest K divided by these
N_THRESHOLDS = 64  # candidates for the entropy threshold
SHRINKAGE = 1.0  # pseudo-rows that pull mixtures toward equal weights
N_EM_STEPS = 200


class SeveralSizesAttention(Attention):
    """Distance attention over several neighborhood sizes, one head each, mixed per query.

    A neighbor beyond the size of a head gets no weight in it. A memory with fewer entries than a
    size gives that head all it has.
    """

    chooses_n_neighbors: ClassVar[bool] = False
    sizes: tuple[int, ...] | None
    sizes_: tuple[int, ...]

    @property
    def n_scoring_heads(self) -> int:  # type: ignore[override]
        """Number of sizes."""
        return len(self.sizes_)

    def prepare_fit(self, n_neighbors: int) -> None:
        if self.sizes is None:
            self.sizes_ = tuple(sorted({max(1, n_neighbors // part) for part in DIVISORS}))
            return
        sizes = tuple(check_at_least("sizes", size, 1) for size in self.sizes)
        if not sizes or list(sizes) != sorted(set(sizes)):
            raise InvalidSettingError(f"`sizes` must be increasing, got {self.sizes!r}.")
        if sizes[-1] > n_neighbors:
            raise InvalidSettingError(
                f"`sizes` must not exceed `n_neighbors`={n_neighbors}, got {sizes[-1]}."
            )
        self.sizes_ = sizes

    def scores(self, batch: NeighborBatch) -> Scores:
        squared = np.where(batch.neighbors.mask, batch.squared, 0.0)
        place = np.arange(squared.shape[1])
        is_beyond = place >= np.array(self.sizes_)[:, None]  # (H, K)
        scores = np.where(is_beyond, -np.inf, -squared[:, None, :])
        return Scores(scores, np.zeros(scores.shape[:2]), self._mixing(batch))

    @abstractmethod
    def _mixing(self, batch: NeighborBatch) -> Floats | None:
        """Weight (B, H) of each size for each query; None weighs them equally."""

    @abstractmethod
    def _fit_mixing(self, batch: NeighborBatch, likelihood: Floats) -> None:
        """Fit the mixing, given the vote share (B, H) of each row's own label by size."""

    def fit_parameters(self, problem: ScalarFit) -> None:
        problem.set_scalars()  # those of the equal average of the sizes
        shares = own_label_shares(self, problem.batch, problem.labels, problem.prior)
        self._fit_mixing(problem.batch, shares)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        fitted = {
            name: getattr(self, f"{name}_", None) for name in ("weights", "threshold", "model")
        }
        mixing = {name: np.asarray(v).tolist() for name, v in fitted.items() if v is not None}
        return {"sizes": [int(size) for size in self.sizes_], "mixing": mixing}, {}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:  # noqa: ARG002
        stored = fitted_fields(values)
        sizes = stored.anything("sizes")
        are_sizes = isinstance(sizes, list) and all(type(s) is int and s > 0 for s in sizes)
        if not are_sizes or not 0 < len(sizes) < 1000 or sizes != sorted(set(sizes)):
            raise ModelFolderError("The stored `sizes` must be increasing positive integers.")
        self.sizes_ = tuple(sizes)
        self._restore_mixing(stored.of("mixing"))

    @abstractmethod
    def _restore_mixing(self, stored: Fields) -> None:
        """Set what mixes the sizes."""


@register("attention", "k-ensemble")
class KEnsembleAttention(SeveralSizesAttention):
    """Average the votes over several numbers of neighbors.

    Parameters
    ----------
    sizes : tuple of int, default=None
        Number of neighbors of each vote, increasing, at most `n_neighbors`. None uses a sixteenth,
        a quarter and all of `n_neighbors`.
    weighting : {'equal', 'fitted'}, default='equal'
        'fitted' weighs the sizes, equally for all queries, by their leave-one-out likelihood.

    Attributes
    ----------
    sizes_ : tuple of int
        The H sizes in use.
    weights_ : ndarray of shape (H,)
        Weight of each size.

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

    def prepare_fit(self, n_neighbors: int) -> None:
        check_choice("weighting", self.weighting, ["equal", "fitted"])
        super().prepare_fit(n_neighbors)
        self.weights_ = np.full(len(self.sizes_), 1.0 / len(self.sizes_))

    def _mixing(self, batch: NeighborBatch) -> Floats:
        return np.tile(self.weights_, (len(batch.queries), 1))

    def _fit_mixing(self, batch: NeighborBatch, likelihood: Floats) -> None:  # noqa: ARG002
        if self.weighting == "fitted":
            self.weights_ = mixture_weights(likelihood)

    def _restore_mixing(self, stored: Fields) -> None:
        self.weights_ = stored.array("weights", (len(self.sizes_),))
        if (self.weights_ < 0).any() or abs(self.weights_.sum() - 1) > 1e-6:
            raise ModelFolderError("The stored weights of the sizes must sum to one.")


@register("attention", "adaptive")
class AdaptiveAttention(SeveralSizesAttention):
    """Choose the number of neighbors per query: few where they agree, many where they do not.

    Parameters
    ----------
    sizes : tuple of int, default=None
        Numbers of neighbors to choose from; see `KEnsembleAttention`.
    rule : {'entropy', 'learned'}, default='entropy'
        'entropy' takes the smallest size whose plain vote has at most the entropy `threshold_`, or
        else the largest. 'learned' mixes the sizes by a softmax model of the entropies and of the
        increase of the distances.
    threshold : float, default=None
        Entropy in nats, for 'entropy'; larger values use fewer neighbors. None chooses it by
        leave-one-out log-loss.

    Attributes
    ----------
    threshold_ : float
        The threshold in use, with `rule='entropy'`.
    model_ : ndarray of shape (1 + 2 H, H)
        Intercepts and slopes of the softmax model, with `rule='learned'`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention=AdaptiveAttention(sizes=(4, 32), threshold=0.3))
    >>> evidence = clf.fit(X, y).explain(X[[0, 70]])  # a clear case, and one between two classes
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

    def prepare_fit(self, n_neighbors: int) -> None:
        check_choice("rule", self.rule, ["entropy", "learned"])
        if self.threshold is not None and not self.threshold >= 0:
            raise InvalidSettingError(f"`threshold` must be at least 0, got {self.threshold!r}.")
        super().prepare_fit(n_neighbors)
        self.__dict__.pop("threshold_", None)  # all sizes weigh the same until these are fitted
        self.__dict__.pop("model_", None)

    def _mixing(self, batch: NeighborBatch) -> Floats | None:
        if hasattr(self, "threshold_"):
            return chosen_by_entropy(vote_entropies(batch, self.sizes_), self.threshold_)
        if hasattr(self, "model_"):
            return softmax_mixture(neighborhood_features(batch, self.sizes_), self.model_)
        return None

    def _fit_mixing(self, batch: NeighborBatch, likelihood: Floats) -> None:
        if self.rule == "learned":
            self.model_ = fit_softmax_mixture(neighborhood_features(batch, self.sizes_), likelihood)
        elif self.threshold is None:
            self.threshold_ = best_threshold(vote_entropies(batch, self.sizes_), likelihood)
        else:
            self.threshold_ = float(self.threshold)

    def _restore_mixing(self, stored: Fields) -> None:
        n_sizes = len(self.sizes_)
        if "threshold" in stored:
            self.threshold_ = stored.number("threshold", least=0.0)
        if "model" in stored:
            self.model_ = stored.array("model", (1 + 2 * n_sizes, n_sizes))


def own_label_shares(
    attention: SeveralSizesAttention, batch: NeighborBatch, labels: Integers, prior: Floats
) -> Floats:
    """Share (B, H) of each row's own label in the vote over each size alone."""
    scores = attention.scores(batch)
    rows = np.arange(len(labels))
    shares = np.empty((len(labels), len(attention.sizes_)))
    for head in range(shares.shape[1]):
        alone = Scores(scores.neighbors[:, [head]], scores.prior[:, [head]])
        weights = attention.weights(alone, batch)
        shares[:, head] = vote(batch.neighbors.labels, weights, prior)[rows, labels]
    return np.maximum(shares, np.finfo(float).tiny)


def mixture_weights(likelihood: Floats) -> Floats:
    """Maximum-likelihood weights (H,) of a mixture of the columns of `likelihood` (B, H).

    >>> mixture_weights(np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.3]])).round(2).tolist()
    [0.84, 0.16]
    """
    weights = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(N_EM_STEPS):
        responsibility = weights * likelihood
        responsibility /= responsibility.sum(axis=1, keepdims=True)
        counts = responsibility.sum(axis=0) + SHRINKAGE / len(weights)
        weights = counts / counts.sum()
    return weights


def best_threshold(entropy: Floats, likelihood: Floats) -> float:
    """The threshold of `chosen_by_entropy` with the lowest log-loss, of `entropy` (B, H).

    >>> best_threshold(np.array([[0.0, 0.6], [0.5, 0.6]]), np.array([[0.9, 0.5], [0.2, 0.6]]))
    0.0
    """
    candidates = np.unique(np.quantile(entropy, np.linspace(0, 1, N_THRESHOLDS), method="lower"))
    losses = [
        -np.log((chosen_by_entropy(entropy, t) * likelihood).sum(axis=1)).mean() for t in candidates
    ]
    return float(candidates[int(np.argmin(losses))])


def fit_softmax_mixture(features: Floats, likelihood: Floats) -> Floats:
    """The model (1 + F, H) of `softmax_mixture` that maximizes the likelihood (B, H)."""
    from scipy.optimize import minimize

    shape = (1 + features.shape[1], likelihood.shape[1])
    inputs = np.hstack([np.ones((len(features), 1)), features])

    def loss_and_gradient(parameters: Floats) -> tuple[float, Floats]:
        model = parameters.reshape(shape)
        mixing = softmax_mixture(features, model)
        total = (mixing * likelihood).sum(axis=1, keepdims=True)
        gradient = inputs.T @ (mixing - mixing * likelihood / total) + SHRINKAGE * model
        loss = -np.log(total).sum() + SHRINKAGE / 2 * np.square(model).sum()
        return float(loss) / len(likelihood), gradient.ravel() / len(likelihood)

    with one_blas_thread_if(True):  # of few numbers
        found = minimize(loss_and_gradient, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B")
    return np.asarray(found.x.reshape(shape))


def chosen_by_entropy(entropy: Floats, threshold: float) -> Floats:
    """One-hot (B, H) for the first size with at most this entropy, or else for the last.

    >>> chosen_by_entropy(np.array([[0.0, 0.3], [0.6, 0.4], [0.7, 0.7]]), 0.5).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    is_enough = entropy <= threshold
    is_enough[:, -1] = True
    return np.eye(entropy.shape[1])[is_enough.argmax(axis=1)]


def softmax_mixture(features: Floats, model: Floats) -> Floats:
    """Softmax (B, H) of a linear model (1 + F, H) of the features (B, F)."""
    return np.asarray(softmax(model[0] + features @ model[1:], axis=1))


def neighborhood_features(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """Inputs (B, 2 H) of the learned mixture: vote entropies and distance increases."""
    return np.hstack([vote_entropies(batch, sizes), _distance_increases(batch, sizes)])


def vote_entropies(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """Entropy (B, H), in nats, of the uniform vote over each of the sizes."""
    neighbors = batch.neighbors
    weights = np.where(neighbors.mask, batch.sample_weight, 0.0)
    columns = [_vote_entropy(neighbors.labels[:, :size], weights[:, :size]) for size in sizes]
    return np.column_stack(columns) if len(weights) else np.zeros((0, len(sizes)))


def _vote_entropy(labels: Integers, weights: Floats) -> Floats:
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    n_classes = int(labels.max(initial=0)) + 1
    cells = labels + np.arange(len(labels))[:, None] * n_classes
    shares = np.bincount(cells.ravel(), weights.ravel(), len(labels) * n_classes)[cells]
    logs = np.log(np.where(weights > 0, shares, 1.0))
    return np.abs((weights * logs).sum(axis=1))


def _distance_increases(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """How much farther (B, H) the last neighbor of each size is than the first, from 0 to 1.

    Subtracting the squared distance of the first and dividing by the increase over all neighbors
    makes it independent of the unit of distance.
    """
    is_found = batch.neighbors.mask
    last_found = np.maximum(is_found.sum(axis=1) - 1, 0)
    lasts = np.minimum(np.array(sizes)[None, :] - 1, last_found[:, None])
    squared: Any = np.where(is_found, batch.squared, 0.0)
    increase = np.take_along_axis(squared, lasts, axis=1) - squared[:, :1]
    total = np.take_along_axis(squared, last_found[:, None], axis=1) - squared[:, :1]
    return np.divide(increase, total, out=np.ones_like(increase), where=total > 0)
