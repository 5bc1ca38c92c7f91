"""Learned attention: what a trained module of scores says, behind the protocol of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import Limits, check_limits
from attnknn.attention.base import Attention, NeighborBatch, Scores
from attnknn.errors import InvalidSettingError, NotFittedYetError
from attnknn.records import Floats, Integers
from attnknn.training.threads import SMALL, one_thread_if

if TYPE_CHECKING:
    from attnknn.attention.scores import Features, NeighborScores

BLOCK = 1 << 23  # numbers of projected neighbors held at once
FEW = 1 << 18  # below so many of them numpy is done before torch has begun

LIMITS = {
    "n_heads": Limits(least=1, is_whole=True),
    "head_dim": Limits(least=1, is_whole=True, may_be_none=True),
    "temperature": Limits(above=0, may_be_none=True),
    "dropout": Limits(least=0, below=1),
    "entropy_weight": Limits(),
    "epochs": Limits(least=1, is_whole=True),
    "batch_size": Limits(least=1, is_whole=True),
    "learning_rate": Limits(above=0),
    "weight_decay": Limits(least=0),
    "holdout": Limits(above=0, below=1),
    "max_rows": Limits(least=2, is_whole=True),
}
CHOICES: dict[str, tuple[bool | str, ...]] = {
    **dict.fromkeys(
        ("distance_bias", "support", "prototypes", "self_attention", "query_prior"), (True, False)
    ),
    "trust": (True, False, "auto"),
}


class LearnedAttention(Attention):
    """Weights trained leave-one-out so that the vote predicts the labels.

    Parameters
    ----------
    n_heads : projections whose weights are averaged
    head_dim : size of each projection; None is the embedding's, at most 128
    temperature : start of the heads' temperatures in units of the typical squared distance; None
        starts from the fitted distance attention
    temperature_bounds : what training may make of it
    distance_bias : adds a learned monotone function of the distance
    support : adds a learned multiple of the share of the other neighbors with the same label
    trust : adds a learned multiple of how far an entry's own surroundings agree with its label;
        'auto' leaves it out above 200,000 entries, because every entry must be searched for it
    prototypes : adds a learned multiple of the cosine of query and class prototype
    self_attention : moves each neighbor towards its company among the neighbors before scoring
    query_prior : lets the query move the prior's score
    dropout : share of the scores left out in each step of training
    entropy_weight : rewards spread weights in training (negative: peaked ones)
    epochs, batch_size, learning_rate, weight_decay : of the training
    holdout : share of the rows kept out of training: they stop it, judge it and calibrate it, and
        vote like all others afterward
    max_rows : at most so many rows are trained on; all entries vote
    """

    def __init__(
        self,
        n_heads: int = 1,
        head_dim: int | None = None,
        temperature: float | None = None,
        temperature_bounds: tuple[float, float] = (0.01, 2.0),
        distance_bias: bool = False,
        support: bool = True,
        trust: bool | str = "auto",
        prototypes: bool = True,
        self_attention: bool = False,
        query_prior: bool = False,
        dropout: float = 0.3,
        entropy_weight: float = 0.0,
        epochs: int = 16,
        batch_size: int = 512,
        learning_rate: float = 6e-3,
        weight_decay: float = 0.0,
        holdout: float = 0.15,
        max_rows: int = 50_000,
    ) -> None:
        self.n_heads = n_heads
        self.head_dim = head_dim
        self.temperature = temperature
        self.temperature_bounds = temperature_bounds
        self.distance_bias = distance_bias
        self.support = support
        self.trust = trust
        self.prototypes = prototypes
        self.self_attention = self_attention
        self.query_prior = query_prior
        self.dropout = dropout
        self.entropy_weight = entropy_weight
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.holdout = holdout
        self.max_rows = max_rows

    module_: NeighborScores
    first_look_: Attention

    @property
    def needs_trust(self) -> bool:  # type: ignore[override]
        """Whether the fitted module reads trust."""
        return bool(self.module_.shape.trust)

    def check_settings(self) -> None:
        """An error for the first setting that training cannot use."""
        check_limits(self, LIMITS)
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if not any(value is choice or value == choice == "auto" for choice in choices):
                known = ", ".join(map(repr, choices))
                raise InvalidSettingError(f"`{name}` must be one of {known}, got {value!r}.")
        bounds = tuple(np.ravel(self.temperature_bounds))
        if len(bounds) != 2 or not 0 < bounds[0] < bounds[1] < np.inf:
            raise InvalidSettingError(
                "`temperature_bounds` must be two positive numbers, the lower one first, "
                f"got {self.temperature_bounds!r}."
            )

    def scores(self, batch: NeighborBatch) -> Scores:
        """What the trained module says, heads apart."""
        import torch

        if not hasattr(self, "module_"):
            raise NotFittedYetError("Train `LearnedAttention` before `scores`: fit a classifier.")
        entries = self._projected(batch.entries)
        width = batch.neighbors.positions.shape[1] * entries[0].numel()
        if len(batch.queries) * width < FEW and not self.module_.shape.self_attention:
            return self._scores_of_few(batch, entries)
        features = features_of(batch, self.first_look_)
        step = max(1, BLOCK // max(1, width))
        is_small = len(batch.queries) * width < SMALL
        with torch.inference_mode(), one_thread_if(is_small):
            parts = [
                self._score_block(features, entries, batch.neighbors.positions, start, step)
                for start in range(0, len(batch.queries), step)
            ]
        return Scores(*(np.concatenate(p).astype(np.float64) for p in zip(*parts, strict=True)))

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        """Give the new class a prototype: the direction of its first entries."""
        import torch

        mean = torch.from_numpy(embeddings.mean(axis=0, dtype=np.float64)).float()
        self.module_ = self.module_.with_class(mean)

    def forget_copies(self, embeddings: NDArray[np.float32]) -> None:
        """A prototype that is the only entry a class has had becomes no direction at all."""
        self.module_ = self.module_.without_prototypes(embeddings)

    def reorder_classes(self, order: Integers) -> None:
        """Class `order[i]` becomes class i; prototypes move along."""
        self.module_ = self.module_.reordered(order)

    def _scores_of_few(self, batch: NeighborBatch, entries: Any) -> Scores:
        from attnknn.attention.numpy_scorer import settled

        support = first_support(batch, self.first_look_)
        return settled(self.module_).scores(batch, support, entries.numpy())

    def _score_block(
        self, features: Features, entries: Any, positions: Integers, start: int, step: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        import torch

        from attnknn.attention.scores import learned_distances

        part = slice(start, start + step)
        block = slice_features(features, part)
        places = torch.from_numpy(positions[part])
        queries = self.module_.project(block.queries)
        learned = learned_distances(self.module_, queries, entries, places, block.mask)
        neighbors, prior = self.module_(learned, block)
        return neighbors.numpy(), prior.numpy()

    def _projected(self, entries: NDArray[np.float32]) -> Any:
        """All entries (N, H, E) through the projection, once per state of the memory."""
        import torch

        if self.__dict__.get("_projected_from") is not entries:
            with torch.inference_mode():
                self._projection = self.module_.project(torch.from_numpy(entries)).contiguous()
            self._projected_from = entries
        return self._projection

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_projection", "_projected_from")}


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
    """The situation as tensors, with the support that a first look by distance gives."""
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
    from dataclasses import fields

    return type(features)(**{f.name: getattr(features, f.name)[part] for f in fields(features)})
