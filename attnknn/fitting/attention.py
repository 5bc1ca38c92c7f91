"""Trains learned attention leave-one-out: each row asks the others for its own label."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.attention.base import Attention
from attnknn.attention.learned import LearnedAttention, features_of, slice_features
from attnknn.attention.scores import NeighborScores, Shape, learned_distances
from attnknn.calibration import Calibration
from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.loop import train
from attnknn.training.optimizers import Group
from attnknn.training.threads import SMALL, one_thread_if
from attnknn.vote import class_prior, vote_in_torch

WIDEST_HEAD = 128
HEAD_NOISE = 0.02  # else several heads would start, and stay, the same
SCALAR_LR_SCALE = 5.0  # scalars may move faster than the entries of a projection


def teach(
    attention: LearnedAttention,
    lesson: LeaveOneOutBatch,
    *,
    first_look: Attention,
    noise: Calibration,
    is_trained_on: NDArray[np.bool_],
    random_state: int,
    verbose: int = 0,
) -> TrainResult:
    """Fit `attention` on the rows of the lesson marked `is_trained_on`; the others judge it.

    Parameters
    ----------
    first_look : fitted distance attention: the start, and what support is weighed by
    noise : exponent and label noise as distance attention found them; the start of training's own
    """
    generator = torch.Generator().manual_seed(random_state)
    attention.first_look_ = first_look
    attention.temperature_, attention.prior_score_ = 1.0, 0.0
    trained_rows = lesson.part(is_trained_on)
    attention.module_ = _new_module(attention, lesson, trained_rows, first_look, generator)
    classroom = _Classroom(attention, lesson, noise, generator)
    trained = torch.from_numpy(np.flatnonzero(is_trained_on))
    judges = torch.from_numpy(np.flatnonzero(~is_trained_on))
    with one_thread_if(_numbers_per_step(attention, lesson) < SMALL):
        return train(
            classroom,
            lambda rows: classroom.loss(trained[rows]),
            lambda: classroom.judge(judges),
            len(trained),
            _config(attention),
            _groups(attention, classroom),
            generator,
            title="Learning attention",
            verbose=verbose,
        )


def _numbers_per_step(attention: LearnedAttention, lesson: LeaveOneOutBatch) -> int:
    """How many numbers the projected neighbors of a batch are."""
    rows = min(attention.batch_size, len(lesson))
    n_neighbors = lesson.batch.squared.shape[1]
    return rows * n_neighbors * attention.module_.projection[:, :, 0].numel()


def _new_module(
    attention: LearnedAttention,
    lesson: LeaveOneOutBatch,
    trained: LeaveOneOutBatch,
    first_look: Attention,
    generator: torch.Generator,
) -> NeighborScores:
    """A module at its start; it sees the labels of the `trained` rows only."""
    entries = lesson.batch.entries
    module = NeighborScores(_shape(attention, lesson))
    found = lesson.batch.neighbors.mask
    typical = float(lesson.batch.squared[found].mean()) if found.any() else 1.0
    unit = typical if typical > 0 else 1.0
    start = attention.temperature or first_look.temperature_ / unit
    with torch.no_grad():
        module.unit.fill_(unit)
        module.start_at(start, first_look.prior_score_)
        axes = _main_axes(entries, module.shape.head_dim)
        jitter = torch.randn(module.projection.shape, generator=generator)
        module.projection.copy_(axes + HEAD_NOISE * jitter)
        if module.shape.prototypes:
            module.prototypes.copy_(_class_means(trained))
    return module


def _shape(attention: LearnedAttention, lesson: LeaveOneOutBatch) -> Shape:
    dim = lesson.batch.entries.shape[1]
    low, high = attention.temperature_bounds
    return Shape(
        dim=dim,
        n_classes=len(lesson.counts),
        n_heads=attention.n_heads,
        head_dim=min(dim, attention.head_dim or WIDEST_HEAD),
        temperature_bounds=(float(low), float(high)),
        distance_bias=attention.distance_bias,
        support=attention.support,
        trust=lesson.batch.trust is not None,
        prototypes=attention.prototypes,
        self_attention=attention.self_attention,
        query_prior=attention.query_prior,
    )


def _main_axes(entries: NDArray[np.float32], n_axes: int) -> Tensor:
    """The identity, or the `n_axes` directions in which the entries differ most."""
    dim = entries.shape[1]
    if n_axes >= dim:
        return torch.eye(dim)
    step = max(1, len(entries) // 50_000)
    sample = entries[::step].astype(np.float64)
    _, directions = np.linalg.eigh(np.cov(sample, rowvar=False))
    return torch.from_numpy(directions[:, ::-1][:, :n_axes].T.astype(np.float32))


def _class_means(lesson: LeaveOneOutBatch) -> Tensor:
    """Unit vectors from the middle of all rows to the middle of each class."""
    rows = lesson.batch.queries.astype(np.float64)
    sums = np.zeros((len(lesson.counts), rows.shape[1]))
    np.add.at(sums, lesson.own, rows)
    counts = np.bincount(lesson.own, minlength=len(lesson.counts))[:, None]
    means = sums / np.maximum(counts, 1) - rows.mean(axis=0)
    return nn.functional.normalize(torch.from_numpy(means.astype(np.float32)), dim=1)


def _config(attention: LearnedAttention) -> TrainConfig:
    return TrainConfig(epochs=attention.epochs, batch_size=attention.batch_size)


def _groups(attention: LearnedAttention, classroom: _Classroom) -> list[Group]:
    matrices = [p for p in classroom.parameters() if p.ndim > 1]
    scalars = [p for p in classroom.parameters() if p.ndim <= 1]
    rate = attention.learning_rate
    return [
        {"params": matrices, "lr": rate, "weight_decay": attention.weight_decay},
        {"params": scalars, "lr": rate * SCALAR_LR_SCALE},
    ]


class _Classroom(nn.Module):
    """The module of scores with the map and the noise that are trained beside it."""

    def __init__(
        self,
        attention: LearnedAttention,
        lesson: LeaveOneOutBatch,
        noise: Calibration,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.scores = attention.module_
        self.dropout, self.entropy_weight = attention.dropout, attention.entropy_weight
        self.generator = generator
        self.features = features_of(lesson.batch, attention.first_look_)
        self.entries = torch.from_numpy(lesson.batch.entries)
        self.positions = torch.from_numpy(lesson.batch.neighbors.positions)
        self.log_sample_weight = torch.from_numpy(np.log(lesson.batch.sample_weight)).float()
        self.own, self.counts = lesson.own, lesson.counts
        self.log_exponent = nn.Parameter(torch.tensor(math.log(noise.exponent)))
        self.has_noise = noise.label_noise > 0
        if self.has_noise and noise.transition is None:
            odds = noise.label_noise / (1 - noise.label_noise)
            self.noise_odds = nn.Parameter(torch.tensor(math.log(odds)))
        self.transition = (
            None if noise.transition is None else torch.from_numpy(noise.transition).float()
        )

    def loss(self, rows: Tensor) -> Tensor:
        """Mean log-loss of the observed labels of these rows, with a gradient."""
        weights = self._weights(rows, self._project(rows), self.dropout)
        loss = self._losses(weights, rows).mean()
        if self.entropy_weight:
            entropy = -(weights * weights.clamp_min(1e-12).log()).sum(dim=1).mean()
            loss = loss - self.entropy_weight * entropy
        return loss

    def judge(self, rows: Tensor) -> float:
        """The same without dropout and gradient, on rows that are not trained on."""
        with torch.no_grad():
            everything = self.scores.project(self.entries)
            total = sum(
                self._losses(self._weights(part, (everything, None), 0.0), part).sum().item()
                for part in rows.split(1024)
            )
        return total / max(1, len(rows))

    def _project(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Projected entries, all or those needed, and then where the neighbors are in them."""
        needed = self.positions[rows]
        if needed.numel() * 2 > len(self.entries):
            return self.scores.project(self.entries), None
        used, places = needed.unique(return_inverse=True)
        return self.scores.project(self.entries[used]), places

    def _weights(
        self, rows: Tensor, projected: tuple[Tensor, Tensor | None], dropout: float
    ) -> Tensor:
        """Weights (B, K + 1) of the neighbors and, last, the prior."""
        entries, places = projected
        places = self.positions[rows] if places is None else places
        features = slice_features(self.features, rows)
        queries = self.scores.project(features.queries)
        learned = learned_distances(self.scores, queries, entries, places, features.mask)
        neighbors, prior = self.scores(learned, features)
        is_out = ~features.mask
        if dropout:
            is_out = is_out | (torch.rand(is_out.shape, generator=self.generator) < dropout)
        neighbors = neighbors + self.log_sample_weight[rows][:, None]
        neighbors = neighbors.masked_fill(is_out[:, None], -torch.inf)
        return torch.softmax(torch.cat([neighbors, prior[..., None]], dim=2), dim=2).mean(dim=1)

    def _losses(self, weights: Tensor, rows: Tensor) -> Tensor:
        own = self.own[rows.numpy()]
        prior = torch.from_numpy(class_prior(self.counts, own).astype(np.float32))
        shares = vote_in_torch(self.features.labels[rows], weights[:, :-1], weights[:, -1], prior)
        shares = shares.clamp_min(torch.finfo(shares.dtype).tiny)  # the log of an underflow is NaN
        log_likely = torch.log_softmax(self.log_exponent.exp() * shares.log(), dim=1)
        index = torch.from_numpy(own)
        if self.transition is not None:
            return -(log_likely.exp() * self.transition.T[index]).sum(dim=1).log()
        mine = log_likely.gather(1, index[:, None])[:, 0]
        if not self.has_noise:
            return -mine
        noise, likely = torch.sigmoid(self.noise_odds), mine.exp()
        n_others = max(len(self.counts) - 1, 1)
        return -((1 - noise) * likely + noise * (1 - likely) / n_others).log()
