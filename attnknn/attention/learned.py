"""Learned attention: scores by a trained torch module, behind the interface of `Attention`."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnknn._stored import Arrays, check_arrays, fitted_fields, load_arrays, state_arrays
from attnknn._validation import Limits, check_limits, check_records
from attnknn.attention.base import Attention, NeighborBatch, Scores
from attnknn.attention.distance import DistanceAttention
from attnknn.errors import InvalidSettingError, ModelFolderError, NotFittedYetError
from attnknn.records import Floats, Integers
from attnknn.registry import register
from attnknn.training.config import LossTerms, TrainConfig
from attnknn.training.threads import SMALL, one_thread_if

if TYPE_CHECKING:
    from attnknn.attention.scores import Features, NeighborScores

BLOCK = 1 << 23  # numbers of projected neighbors held at once
WHAT = "learned attention"
# Typical squared distances at which float32 holds those of near and of far neighbors, too.
MIN_SQUARED, MAX_SQUARED = 1e-36, 1e34
FEW = 1 << 18  # below so many of them numpy is done before torch has begun

LIMITS = {
    "n_heads": Limits(least=1, is_whole=True),
    "head_dim": Limits(least=1, is_whole=True, may_be_none=True),
    "temperature": Limits(above=0, may_be_none=True),
    "dropout": Limits(least=0, below=1),
    "holdout": Limits(above=0, below=1),
    "max_rows": Limits(least=2, is_whole=True),
}
TERMS = (
    *("distance_bias", "support", "prototypes", "self_attention", "query_prior", "dot_product"),
)
TRAINING = TrainConfig(
    epochs=16, batch_size=512, learning_rate=6e-3, weight_decay=0.0, label_smoothing=0.0
)


@register("attention", "learned")
class LearnedAttention(Attention):
    """Learned attention: neighbor weights are trained so that the vote predicts left-out labels.

    Parameters
    ----------
    n_heads : int, default=1
        Number of heads; each has a projection of its own, and their weights are averaged.
    head_dim : int, optional
        Size of each projection; by default that of the embedding, at most 128.
    temperature : float, optional
        Initial temperature of the heads in units of the typical squared distance; by default that
        of the fitted distance attention.
    temperature_bounds : tuple of float, default=(0.01, 2.0)
        Range of the trained temperatures.
    terms : tuple of str, default=("support", "prototypes")
        What is added to the score of a neighbor beside its distance: "distance_bias", a learned
        monotone function of the distance; "support", the share of the other neighbors with the same
        label; "prototypes", the cosine of query and class prototype. "self_attention" moves each
        neighbor towards similar neighbors before scoring; "query_prior" lets the query change the
        prior score; "dot_product" gives queries and entries a projection each and scores by their
        product, as Transformers do, in place of the distance of one shared projection.
    trust : bool or "auto", default="auto"
        Whether to add the trust of an entry to its score: how well its own neighbors agree with its
        label. "auto" leaves it out above 200,000 entries, because it needs a search for each entry.
    dropout : float, default=0.3
        Share of the neighbors that each training step leaves out.
    loss : LossTerms, optional
        Terms that are added to the log-loss: entropy of the weights, calibration error, risk at a
        coverage. None adds none.
    holdout : float, default=0.15
        Share of the rows kept out of training: they validate and calibrate, and vote like all
        others afterward.
    max_rows : int, default=50_000
        Maximum number of rows to train on; all entries vote.
    joint : bool or "auto", default=False
        Whether an encoder that learns ("image", "learned-tabular") is trained through this
        attention: the gradient of the vote passes through all heads and terms into the encoder, and
        attention is then trained further on the final embeddings. False trains the encoder by the
        vote of its own distances first (staged). "auto" trains both ways and keeps the one with the
        lower log-loss of held-out rows.
    training : TrainConfig, optional
        Defaults: 16 epochs, batches of 512, a learning rate of 6e-3 and no weight decay.

    Attributes
    ----------
    module_ : NeighborScores
        The trained torch module.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.training import TrainConfig
    >>> X, y = load_iris(return_X_y=True)
    >>> attention = LearnedAttention(n_heads=2, training=TrainConfig(epochs=2))
    >>> AttnKNNClassifier(attention=attention, random_state=0).fit(X, y).predict(X[:3]).tolist()
    [0, 0, 0]
    """

    def __init__(
        self,
        n_heads: int = 1,
        head_dim: int | None = None,
        temperature: float | None = None,
        temperature_bounds: tuple[float, float] = (0.01, 2.0),
        terms: tuple[str, ...] = ("support", "prototypes"),
        trust: bool | str = "auto",
        dropout: float = 0.3,
        loss: LossTerms | None = None,
        holdout: float = 0.15,
        max_rows: int = 50_000,
        joint: bool | str = False,
        training: TrainConfig | None = None,
    ) -> None:
        self.n_heads = n_heads
        self.head_dim = head_dim
        self.temperature = temperature
        self.temperature_bounds = temperature_bounds
        self.terms = terms
        self.trust = trust
        self.dropout = dropout
        self.loss = loss
        self.holdout = holdout
        self.max_rows = max_rows
        self.joint = joint
        self.training = training

    fitted_by: ClassVar[Literal["nothing", "scalars", "training"]] = "training"
    module_: NeighborScores
    first_look_: DistanceAttention  # by distance alone; its weights tell the support of a label

    @property
    def needs_trust(self) -> bool:  # type: ignore[override]
        """Whether the fitted module reads trust."""
        return bool(self.module_.shape.trust)

    @property
    def n_scoring_heads(self) -> int:  # type: ignore[override]
        """Number of heads of the fitted module."""
        return self.module_.shape.n_heads

    def prepare_fit(self, n_neighbors: int) -> None:  # noqa: ARG002
        check_limits(self, LIMITS)
        for name in ("trust", "joint"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_) and value != "auto":
                raise InvalidSettingError(
                    f"`{name}` must be one of True, False, 'auto', got {value!r}."
                )
        if isinstance(self.terms, str) or not set(self.terms) <= set(TERMS):
            raise InvalidSettingError(
                f"`terms` must be a tuple of {', '.join(TERMS)}, got {self.terms!r}."
            )
        check_records(self, {"training": TrainConfig, "loss": LossTerms})
        bounds = tuple(np.ravel(self.temperature_bounds))
        if len(bounds) != 2 or not 0 < bounds[0] < bounds[1] < np.inf:
            raise InvalidSettingError(
                "`temperature_bounds` must be two positive numbers, the lower one first, "
                f"got {self.temperature_bounds!r}."
            )

    def scores(self, batch: NeighborBatch) -> Scores:
        import torch

        if not hasattr(self, "module_"):
            raise NotFittedYetError("Train `LearnedAttention` before `scores`: fit a classifier.")
        vectors, positions = batch.vectors.gather(batch.neighbors.positions)
        entries = self._projected(vectors)
        width = positions.shape[1] * entries[0].numel()
        shape = self.module_.shape
        if len(batch.queries) * width < FEW and not (shape.self_attention or shape.dot_product):
            from attnknn.attention.numpy_scorer import numpy_scorer

            support = first_support(batch, self.first_look_)
            return numpy_scorer(self.module_).scores(batch, support, entries.numpy(), positions)
        features = features_of(batch, self.first_look_)
        step = max(1, BLOCK // max(1, width))
        is_small = len(batch.queries) * width < SMALL
        with torch.inference_mode(), one_thread_if(is_small):
            parts = [
                self._score_block(features, entries, positions, start, step)
                for start in range(0, len(batch.queries), step)
            ]
        return Scores(*(np.concatenate(p).astype(np.float64) for p in zip(*parts, strict=True)))

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        import torch

        # The prototype of the new class is the direction of its first entries.
        mean = torch.from_numpy(embeddings.mean(axis=0, dtype=np.float64)).float()
        self.module_ = self.module_.with_class(mean)

    def reorder_classes(self, order: Integers) -> None:
        self.module_ = self.module_.reordered(order)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        scalars = {
            "temperature": float(self.first_look_.temperature_),
            "prior_score": float(self.first_look_.prior_score_),
        }
        shape = asdict(self.module_.shape)
        return {"first_look": scalars, "shape": shape}, state_arrays(self.module_)

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        from attnknn.attention.scores import NeighborScores, Shape

        stored = fitted_fields(values)
        scalars = stored.of("first_look")
        self.first_look_ = DistanceAttention()
        self.first_look_.temperature_ = scalars.number("temperature", least=1e-300)
        self.first_look_.prior_score_ = scalars.number("prior_score")
        shape = Shape.from_stored(stored.of("shape"))
        if (shape.dim, shape.n_classes) != (dim, n_classes):
            raise ModelFolderError("The stored attention must fit the embeddings and the classes.")
        check_arrays(arrays, shape.large_tensors(), WHAT)
        unit = float(arrays["unit"]) if "unit" in arrays and arrays["unit"].ndim == 0 else 0.0
        if not 0.9 * MIN_SQUARED <= unit <= 1.1 * MAX_SQUARED:  # it was rounded
            raise ModelFolderError(
                f"The stored array `unit` must be from {MIN_SQUARED:g} to {MAX_SQUARED:g}, "
                f"got {unit:g}."
            )
        self.module_ = load_arrays(NeighborScores(shape), arrays, WHAT)

    def _score_block(
        self, features: Features, entries: Any, positions: Integers, start: int, step: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        import torch

        from attnknn.attention.scores import learned_distances

        part = slice(start, start + step)
        block = slice_features(features, part)
        places = torch.from_numpy(positions[part])
        queries = self.module_.project_queries(block.queries)
        learned = learned_distances(self.module_, queries, entries, places, block.mask)
        neighbors, prior = self.module_(learned, block)
        return neighbors.numpy(), prior.numpy()

    def _projected(self, entries: NDArray[np.float32]) -> Any:
        """Entries (N, H, E) through the projection; for the same array it is computed once."""
        import torch

        known = self.__dict__.get("_projection")  # read once: another thread may replace it
        if known is None or known[0] is not entries:
            with torch.inference_mode():
                projected = self.module_.project(torch.from_numpy(entries)).contiguous()
            known = self._projection = (entries, projected)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_projection", None)
        return state


def typical_squared(batch: NeighborBatch) -> float:
    """The mean squared distance of the neighbors; 1 if all are at the same place."""
    found = batch.neighbors.mask
    typical = float(batch.squared[found].mean()) if found.any() else 1.0
    return typical if typical > 0 else 1.0


def reason_not_to_learn(batch: NeighborBatch) -> str:
    """Why distances of this size cannot be learned from in float32; "" if they can."""
    typical = typical_squared(batch)
    if MIN_SQUARED <= typical <= MAX_SQUARED:
        return ""
    low, high = (f"{bound**0.5:g}" for bound in (MIN_SQUARED, MAX_SQUARED))
    return (
        f"learned attention needs typical distances from {low} to {high}, "
        f"here they are {typical**0.5:.2g}"
    )


def train_config(attention: LearnedAttention) -> TrainConfig:
    """How the module is trained: the given settings, completed by the defaults."""
    return (attention.training or TrainConfig()).filled(TRAINING)


def support_of(labels: Integers, weights: Floats, n_classes: int) -> Floats:
    """Share (B, K) of the *other* neighbors, by weight, that carry each neighbor's label.

    >>> support_of(np.array([[0, 0, 1]]), np.array([[0.5, 0.25, 0.25]]), 2)
    array([[0.5       , 0.66666667, 0.        ]])
    """
    cells = labels + np.arange(len(labels))[:, None] * n_classes
    sums = np.bincount(cells.ravel(), weights.ravel(), len(labels) * n_classes)
    same = sums[cells] - weights
    others = weights.sum(axis=1, keepdims=True) - weights
    return np.divide(same, others, out=np.zeros_like(same), where=others > 1e-300)


def first_support(batch: NeighborBatch, first_look: Attention) -> Floats:
    """The support (B, K) of the neighbors by the weights of a first look by distance."""
    labels = batch.neighbors.labels
    weights = first_look.weigh(batch).neighbors
    return support_of(labels, weights, int(labels.max(initial=0)) + 1)


def features_of(batch: NeighborBatch, first_look: Attention) -> Features:
    """The batch as tensors, with the support computed by distance weights."""
    import torch

    from attnknn.attention.scores import Features

    neighbors = batch.neighbors
    support = first_support(batch, first_look)
    squared = np.where(neighbors.mask, batch.squared, 0.0)
    trust = np.zeros_like(squared) if batch.trust is None else batch.trust

    def tensor(array: Floats) -> Any:
        return torch.from_numpy(array.astype(np.float32))

    return Features(
        queries=torch.from_numpy(batch.queries),
        squared=tensor(squared),
        labels=torch.from_numpy(neighbors.labels),
        mask=torch.from_numpy(neighbors.mask),
        support=tensor(support),
        trust=tensor(trust),
    )


def slice_features(features: Features, part: Any) -> Features:
    """The features of some of the queries."""
    return type(features)(**{f.name: getattr(features, f.name)[part] for f in fields(features)})
