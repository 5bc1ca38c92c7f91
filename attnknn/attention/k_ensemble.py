"""Attention over several numbers of neighbors, whose votes are averaged or chosen per query.

An average of several votes over the same neighbors is one vote with averaged weights. So evidence
stays exact, and temperature, prior score, probability map and label noise are fitted after the
averaging.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone

from attnknn._stored import Arrays, Fields, fitted_fields
from attnknn._validation import check_at_least, check_choice
from attnknn.attention.base import Attention, NeighborBatch, ScalarFit, Scores, softmax_weights
from attnknn.attention.distance import DistanceAttention
from attnknn.attention.learned import LearnedAttention
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.records import Floats, Integers
from attnknn.registry import register
from attnknn.training.threads import one_blas_thread_if
from attnknn.vote import vote

DIVISORS = (16, 4, 1)  # the default sizes are the largest K divided by these
N_THRESHOLDS = 64  # candidates for the threshold
MEASURES = ("vote_entropy", "attention_entropy", "confidence")
SHRINKAGE = 1.0  # pseudo-rows that pull mixtures toward equal weights
N_EM_STEPS = 200


class SeveralSizesAttention(Attention):
    """An attention by distance or learned, over several neighborhood sizes mixed per query.

    Each size has all heads of the inner attention. A neighbor beyond the size gets no weight in
    them. A memory with fewer entries than a size gives that size all it has.
    """

    chooses_n_neighbors: ClassVar[bool] = False
    sizes: tuple[int, ...] | None
    attention: str | LearnedAttention
    sizes_: tuple[int, ...]
    inner_: DistanceAttention | LearnedAttention

    @property
    def fitted_by(self) -> Literal["scalars", "training"]:  # type: ignore[override]
        """What the inner attention needs."""
        return "scalars" if self.attention == "distance" else "training"

    @property
    def scorer(self) -> Any:
        """What scores the neighbors: the setting, and from the beginning of a fit its copy."""
        return getattr(self, "inner_", self.attention)

    @property
    def n_scoring_heads(self) -> int:  # type: ignore[override]
        """Number of sizes, times the heads of the inner attention."""
        return len(self.sizes_) * self.inner_.n_scoring_heads

    @property
    def needs_trust(self) -> bool:  # type: ignore[override]
        """Whether the inner attention reads trust."""
        return self.inner_.needs_trust

    @property
    def first_look_(self) -> DistanceAttention:
        """What trust is computed by, if the inner attention is learned."""
        return self.inner_.first_look_

    def prepare_fit(self, n_neighbors: int) -> None:
        self.inner_ = self._unfitted()
        self.inner_.prepare_fit(n_neighbors)
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

    def _unfitted(self) -> DistanceAttention | LearnedAttention:
        if isinstance(self.attention, LearnedAttention):
            return clone(self.attention)
        if self.attention not in ("distance", "learned"):
            raise InvalidSettingError(
                "`attention` must be 'distance', 'learned' or a `LearnedAttention`, "
                f"got {self.attention!r}."
            )
        return DistanceAttention() if self.attention == "distance" else LearnedAttention()

    def scores(self, batch: NeighborBatch) -> Scores:
        scores = self._scores_by_size(batch)
        mixing = self._mixing(batch, scores)
        if mixing is not None:
            n_inner = scores.prior.shape[1] // len(self.sizes_)
            mixing = np.repeat(mixing / n_inner, n_inner, axis=1)
        return Scores(scores.neighbors, scores.prior, mixing)

    def _scores_by_size(self, batch: NeighborBatch) -> Scores:
        """Scores of the inner attention for every size in turn, with all of its heads."""
        inner, n_sizes = self.inner_.scores(batch), len(self.sizes_)
        place = np.arange(inner.neighbors.shape[2])
        is_beyond = place >= np.repeat(self.sizes_, inner.prior.shape[1])[:, None]  # (S · H, K)
        scores = np.where(is_beyond, -np.inf, np.tile(inner.neighbors, (1, n_sizes, 1)))
        return Scores(scores, np.tile(inner.prior, (1, n_sizes)))

    @abstractmethod
    def _mixing(self, batch: NeighborBatch, scores: Scores) -> Floats | None:
        """Weight (B, S) of each size for each query; None weighs them equally."""

    @abstractmethod
    def _fit_mixing(self, batch: NeighborBatch, scores: Scores, likelihood: Floats) -> None:
        """Fit the mixing, given the vote share (B, S) of each row's own label by size."""

    def fit_parameters(self, problem: ScalarFit) -> None:
        problem.set_scalars()  # those of the equal average of the sizes
        scores = self._scores_by_size(problem.batch)
        shares = own_label_shares(self, problem.batch, scores, problem.labels, problem.prior)
        self._fit_mixing(problem.batch, scores, shares)

    def copy(self) -> Self:
        copied = super().copy()
        copied.inner_ = self.inner_.copy()
        return copied

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        self.inner_.admit_class(embeddings)

    def reorder_classes(self, order: Integers) -> None:
        self.inner_.reorder_classes(order)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        names = ("weights", "threshold", "model", "choice_temperature")
        fitted = {name: getattr(self, f"{name}_", None) for name in names}
        mixing = {name: np.asarray(v).tolist() for name, v in fitted.items() if v is not None}
        inner, arrays = self.inner_.state()
        sizes = [int(size) for size in self.sizes_]
        return {"sizes": sizes, "mixing": mixing, "inner": inner}, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        stored = fitted_fields(values)
        self.inner_ = self._unfitted()
        self.inner_.restore(stored.of("inner").to_dict(), arrays, dim, n_classes)
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
    attention : {'distance', 'learned'} or LearnedAttention, default='distance'
        What scores the neighbors. Learned attention is trained with all `n_neighbors`; each size
        then votes with the scores of its nearest neighbors.

    Attributes
    ----------
    sizes_ : tuple of int
        The S sizes in use.
    weights_ : ndarray of shape (S,)
        Weight of each size.
    inner_ : DistanceAttention or LearnedAttention
        What scores the neighbors.

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

    def __init__(
        self,
        sizes: tuple[int, ...] | None = None,
        weighting: str = "equal",
        attention: str | LearnedAttention = "distance",
    ) -> None:
        self.sizes = sizes
        self.weighting = weighting
        self.attention = attention

    def prepare_fit(self, n_neighbors: int) -> None:
        check_choice("weighting", self.weighting, ["equal", "fitted"])
        super().prepare_fit(n_neighbors)
        self.weights_ = np.full(len(self.sizes_), 1.0 / len(self.sizes_))

    def _mixing(self, batch: NeighborBatch, scores: Scores) -> Floats:  # noqa: ARG002
        return np.tile(self.weights_, (len(batch.queries), 1))

    def _fit_mixing(self, batch: NeighborBatch, scores: Scores, likelihood: Floats) -> None:  # noqa: ARG002
        if self.weighting == "fitted":
            self.weights_ = mixture_weights(likelihood)

    def _restore_mixing(self, stored: Fields) -> None:
        self.weights_ = stored.array("weights", (len(self.sizes_),))
        if (self.weights_ < 0).any() or abs(self.weights_.sum() - 1) > 1e-6:
            raise ModelFolderError("The stored weights of the sizes must sum to one.")


@register("attention", "adaptive")
class AdaptiveAttention(SeveralSizesAttention):
    """Choose the number of neighbors per query: few where they are enough, many where not.

    Parameters
    ----------
    sizes : tuple of int, default=None
        Numbers of neighbors to choose from; see `KEnsembleAttention`.
    rule : {'threshold', 'learned'}, default='threshold'
        'threshold' takes the smallest size whose uncertainty is at most `threshold_`, or else the
        largest. 'learned' mixes the sizes by a softmax model of the uncertainties and of the
        increase of the distances.
    threshold : float, default=None
        Largest uncertainty that is accepted, for 'threshold'; larger values use fewer neighbors.
        None chooses it by leave-one-out log-loss.
    by : {'vote_entropy', 'attention_entropy', 'confidence'}, default='vote_entropy'
        The uncertainty of a size. 'vote_entropy' is the entropy, in nats, of the plain vote of its
        neighbors. 'attention_entropy' is the entropy of their weights, divided by its largest
        value, the log of the size: near 0 few neighbors stand out, at 1 none does. 'confidence' is
        one minus the largest share of a class in their weighted vote.
    attention : {'distance', 'learned'} or LearnedAttention, default='distance'
        What scores the neighbors; see `KEnsembleAttention`.

    Attributes
    ----------
    threshold_ : float
        The threshold in use, with `rule='threshold'`.
    model_ : ndarray of shape (1 + 2 S, S)
        Intercepts and slopes of the softmax model of S sizes, with `rule='learned'`.
    choice_temperature_ : float
        Temperature of the weights by which sizes are chosen. The temperature of the vote is fitted
        after the choice, which must not change with it.
    inner_ : DistanceAttention or LearnedAttention
        What scores the neighbors.

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
    choice_temperature_: float

    def __init__(
        self,
        sizes: tuple[int, ...] | None = None,
        rule: str = "threshold",
        threshold: float | None = None,
        by: str = "vote_entropy",
        attention: str | LearnedAttention = "distance",
    ) -> None:
        self.sizes = sizes
        self.rule = rule
        self.threshold = threshold
        self.by = by
        self.attention = attention

    def prepare_fit(self, n_neighbors: int) -> None:
        check_choice("rule", self.rule, ["threshold", "learned"])
        check_choice("by", self.by, MEASURES)
        if self.threshold is not None and not self.threshold >= 0:
            raise InvalidSettingError(f"`threshold` must be at least 0, got {self.threshold!r}.")
        super().prepare_fit(n_neighbors)
        for name in ("threshold_", "model_", "choice_temperature_"):
            self.__dict__.pop(name, None)  # all sizes weigh the same until these are fitted

    def _mixing(self, batch: NeighborBatch, scores: Scores) -> Floats | None:
        if hasattr(self, "threshold_"):
            return first_within(self._uncertainties(batch, scores), self.threshold_)
        if hasattr(self, "model_"):
            return softmax_mixture(self._features(batch, scores), self.model_)
        return None

    def _fit_mixing(self, batch: NeighborBatch, scores: Scores, likelihood: Floats) -> None:
        self.choice_temperature_ = float(self.temperature_)
        if self.rule == "learned":
            self.model_ = fit_softmax_mixture(self._features(batch, scores), likelihood)
        elif self.threshold is None:
            self.threshold_ = best_threshold(self._uncertainties(batch, scores), likelihood)
        else:
            self.threshold_ = float(self.threshold)

    def _features(self, batch: NeighborBatch, scores: Scores) -> Floats:
        """Inputs (B, 2 S) of the learned mixture: uncertainties and distance increases."""
        increases = distance_increases(batch, self.sizes_)
        return np.hstack([self._uncertainties(batch, scores), increases])

    def _uncertainties(self, batch: NeighborBatch, scores: Scores) -> Floats:
        """How uncertain (B, S) the vote over each size is, by the measure that was chosen."""
        if self.by == "vote_entropy":
            return vote_entropies(batch, self.sizes_)
        weights = weights_by_size(scores, batch, self.choice_temperature_, len(self.sizes_))
        if self.by == "attention_entropy":
            return attention_entropies(weights, self.sizes_)
        return 1.0 - confidences(batch.neighbors.labels, weights)

    def _restore_mixing(self, stored: Fields) -> None:
        n_sizes = len(self.sizes_)
        if "choice_temperature" in stored:
            self.choice_temperature_ = stored.number("choice_temperature", least=1e-300)
        elif "threshold" in stored or "model" in stored:
            raise ModelFolderError("The stored `choice_temperature` is missing.")
        if "threshold" in stored:
            self.threshold_ = stored.number("threshold", least=0.0)
        if "model" in stored:
            self.model_ = stored.array("model", (1 + 2 * n_sizes, n_sizes))


def own_label_shares(
    attention: SeveralSizesAttention,
    batch: NeighborBatch,
    scores: Scores,
    labels: Integers,
    prior: Floats,
) -> Floats:
    """Share (B, S) of each row's own label in the vote over each size alone."""
    rows, n_sizes = np.arange(len(labels)), len(attention.sizes_)
    shares = np.empty((len(labels), n_sizes))
    by_size = zip(
        np.split(scores.neighbors, n_sizes, axis=1),
        np.split(scores.prior, n_sizes, axis=1),
        strict=True,
    )
    for place, (of_neighbors, of_prior) in enumerate(by_size):
        weights = attention.weights(Scores(of_neighbors, of_prior), batch)
        shares[:, place] = vote(batch.neighbors.labels, weights, prior)[rows, labels]
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


def best_threshold(uncertainty: Floats, likelihood: Floats) -> float:
    """The threshold of `first_within` with the lowest log-loss, of `uncertainty` (B, S).

    >>> best_threshold(np.array([[0.0, 0.6], [0.5, 0.6]]), np.array([[0.9, 0.5], [0.2, 0.6]]))
    0.0
    """
    shares = np.linspace(0, 1, N_THRESHOLDS)
    candidates = np.unique(np.quantile(uncertainty, shares, method="lower"))
    losses = [
        -np.log((first_within(uncertainty, t) * likelihood).sum(axis=1)).mean() for t in candidates
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


def first_within(uncertainty: Floats, threshold: float) -> Floats:
    """One-hot (B, S) for the first size with at most this uncertainty, or else for the last.

    >>> first_within(np.array([[0.0, 0.3], [0.6, 0.4], [0.7, 0.7]]), 0.5).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    is_enough = uncertainty <= threshold
    is_enough[:, -1] = True
    return np.eye(uncertainty.shape[1])[is_enough.argmax(axis=1)]


def softmax_mixture(features: Floats, model: Floats) -> Floats:
    """Softmax (B, H) of a linear model (1 + F, H) of the features (B, F)."""
    return np.asarray(softmax(model[0] + features @ model[1:], axis=1))


def weights_by_size(
    scores: Scores, batch: NeighborBatch, temperature: float, n_sizes: int
) -> Floats:
    """Weights (B, S, K) of the neighbors within each size, without the prior."""
    neighbors = scores.neighbors / temperature + np.log(batch.sample_weight)[:, None, :]
    neighbors = np.where(batch.neighbors.mask[:, None, :], neighbors, -np.inf)
    weights, _ = softmax_weights(neighbors, np.full(scores.prior.shape, -np.inf))
    return np.asarray(weights.reshape(len(weights), n_sizes, -1, weights.shape[2]).mean(axis=2))


def attention_entropies(weights: Floats, sizes: tuple[int, ...]) -> Floats:
    """Entropy (B, S) of weights (B, S, K), divided by its largest value; 1 for a size of 1.

    >>> weights = np.array([[[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]])
    >>> attention_entropies(weights, (2, 4)).tolist()
    [[1.0, 0.5]]
    """
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=2)
    largest = np.log(sizes)
    return np.divide(entropy, largest, out=np.ones_like(entropy), where=largest > 0)


def confidences(labels: Integers, weights: Floats) -> Floats:
    """Largest share (B, S) of a class in the vote of neighbors (B, K) by weights (B, S, K).

    >>> confidences(np.array([[0, 1, 0]]), np.array([[[0.3, 0.6, 0.1], [1.0, 0.0, 0.0]]])).tolist()
    [[0.6, 1.0]]
    """
    columns = [
        _shares(labels, weights[:, size]).max(axis=1, initial=0.0)
        for size in range(weights.shape[1])
    ]
    return np.minimum(np.column_stack(columns), 1.0)


def vote_entropies(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """Entropy (B, S), in nats, of the uniform vote over each of the sizes."""
    neighbors = batch.neighbors
    weights = np.where(neighbors.mask, batch.sample_weight, 0.0)
    columns = [_vote_entropy(neighbors.labels[:, :size], weights[:, :size]) for size in sizes]
    return np.column_stack(columns) if len(weights) else np.zeros((0, len(sizes)))


def _vote_entropy(labels: Integers, weights: Floats) -> Floats:
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    logs = np.log(np.where(weights > 0, _shares(labels, weights), 1.0))
    return np.abs((weights * logs).sum(axis=1))


def _shares(labels: Integers, weights: Floats) -> Floats:
    """Share (B, K) of the label of each neighbor in the vote."""
    n_classes = int(labels.max(initial=0)) + 1
    cells = labels + np.arange(len(labels))[:, None] * n_classes
    return np.bincount(cells.ravel(), weights.ravel(), len(labels) * n_classes)[cells]


def distance_increases(batch: NeighborBatch, sizes: tuple[int, ...]) -> Floats:
    """How much farther (B, S) the last neighbor of each size is than the first, from 0 to 1.

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
