"""Training of learned attention: the other rows vote on the label of each row."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.attention.base import Attention
from attnknn.attention.learned import (
    TERMS,
    LearnedAttention,
    features_of,
    slice_features,
    train_config,
    typical_squared,
)
from attnknn.attention.scores import NeighborScores, Shape, learned_distances
from attnknn.calibration import Calibration
from attnknn.fitting.objective import (
    further_terms,
    log_losses,
    log_of,
    observed_probabilities,
    smoothed_loss,
    softmax_with_prior,
)
from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.memory.vectors import EntryVectors
from attnknn.training.config import LossTerms, TrainConfig, TrainResult
from attnknn.training.loop import train
from attnknn.training.optimizers import Group
from attnknn.training.threads import SMALL, one_thread_if
from attnknn.vote import class_prior, vote_in_torch

MAX_HEAD_DIM = 128
HEAD_NOISE = 0.02  # else several heads would start, and stay, the same
SCALAR_LR_SCALE = 5.0  # scalars may move faster than the entries of a projection
ROWS_AT_ONCE = 1024


def train_attention(
    attention: LearnedAttention,
    left_out: LeaveOneOutBatch,
    *,
    first_look: Attention,
    noise: Calibration,
    is_trained_on: NDArray[np.bool_],
    random_state: int,
    start: NeighborScores | None = None,
    verbose: int = 0,
) -> TrainResult:
    """Train `attention` on the rows marked `is_trained_on`; the others validate it.

    `first_look`: fitted distance attention: the starting point, and what support is weighted by;
    `noise`: exponent and label noise under distance attention: where training starts; `start`: a
    module that was trained with the encoder, to go on from.
    """
    generator = torch.Generator().manual_seed(random_state)
    attention.first_look_ = first_look
    attention.temperature_, attention.prior_score_ = 1.0, 0.0
    labeled = left_out.part(is_trained_on)
    attention.module_ = _new_module(attention, left_out, labeled, first_look, generator)
    has_trust = attention.module_.shape.trust
    if start is not None and replace(start.shape, trust=has_trust) == attention.module_.shape:
        attention.module_.load_state_dict(start.state_dict(), strict=False)
    config = train_config(attention)
    objective = AttentionObjective(attention, left_out, noise, generator)
    trained = torch.from_numpy(np.flatnonzero(is_trained_on))
    validation = torch.from_numpy(np.flatnonzero(~is_trained_on))
    projected = attention.module_.projection[:, :, 0].numel() * left_out.batch.squared.shape[1]
    is_small = min(config.batch_size, len(left_out)) * projected < SMALL
    with one_thread_if(is_small):
        return train(
            objective,
            lambda rows: objective.loss(trained[rows]),
            lambda: objective.validate(validation),
            len(trained),
            config,
            _groups(objective, config),
            generator,
            title="Learning attention",
            verbose=verbose,
        )


def _groups(objective: AttentionObjective, config: TrainConfig) -> list[Group]:
    matrices = [p for p in objective.parameters() if p.ndim > 1]
    scalars = [p for p in objective.parameters() if p.ndim <= 1]
    rate = config.learning_rate
    return [
        {"params": matrices, "lr": rate, "weight_decay": config.weight_decay},
        {"params": scalars, "lr": rate * SCALAR_LR_SCALE},
    ]


def _new_module(
    attention: LearnedAttention,
    left_out: LeaveOneOutBatch,
    labeled: LeaveOneOutBatch,
    first_look: Attention,
    generator: torch.Generator,
) -> NeighborScores:
    """An initialized module; it sees the labels of the `labeled` rows only."""
    vectors = left_out.batch.vectors
    has_trust = left_out.batch.trust is not None
    shape = shape_of(attention, vectors.width, len(left_out.counts), has_trust=has_trust)
    module = NeighborScores(shape)
    unit = typical_squared(left_out.batch)
    start = attention.temperature or first_look.temperature_ / unit
    with torch.no_grad():
        module.unit.fill_(unit)
        module.start_at(start, first_look.prior_score_)
        axes = main_axes(vectors, module.shape.head_dim)
        jitter = torch.randn(module.projection.shape, generator=generator)
        module.projection.copy_(axes + HEAD_NOISE * jitter)
        if module.shape.dot_product:
            module.query_projection.copy_(module.projection)
        if module.shape.prototypes:
            module.prototypes.copy_(_class_directions(labeled))
    return module


def shape_of(attention: LearnedAttention, dim: int, n_classes: int, *, has_trust: bool) -> Shape:
    """What the module of `attention` is built of, for embeddings of size `dim`."""
    low, high = attention.temperature_bounds
    return Shape(
        dim=dim,
        n_classes=n_classes,
        n_heads=attention.n_heads,
        head_dim=min(dim, attention.head_dim or MAX_HEAD_DIM),
        temperature_bounds=(float(low), float(high)),
        trust=has_trust,
        **{term: term in attention.terms for term in TERMS},
    )


def main_axes(vectors: EntryVectors, n_axes: int) -> Tensor:
    """The identity, or the first `n_axes` principal axes of the entries."""
    dim = vectors.width
    if n_axes >= dim:
        return torch.eye(dim)
    step = max(1, len(vectors) // 50_000)
    sample = vectors[::step].astype(np.float64)
    if n_axes < len(sample) < dim:  # the covariance (D, D) of few rows has a low rank
        axes = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)[2][:n_axes]
    else:
        axes = np.linalg.eigh(np.cov(sample, rowvar=False))[1][:, ::-1][:, :n_axes].T
    return torch.from_numpy(axes.astype(np.float32))


def _class_directions(labeled: LeaveOneOutBatch) -> Tensor:
    """Unit vectors (C, D) from the mean of all rows to the mean of each class."""
    rows = labeled.batch.queries.astype(np.float64)
    sums = np.zeros((len(labeled.counts), rows.shape[1]))
    np.add.at(sums, labeled.own, rows)
    counts = np.bincount(labeled.own, minlength=len(labeled.counts))[:, None]
    means = sums / np.maximum(counts, 1) - rows.mean(axis=0)
    return nn.functional.normalize(torch.from_numpy(means.astype(np.float32)), dim=1)


class AttentionObjective(nn.Module):
    """Leave-one-out log-loss of the scores, with the exponent and the noise trained beside them."""

    def __init__(
        self,
        attention: LearnedAttention,
        left_out: LeaveOneOutBatch,
        noise: Calibration,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.scores, self.generator = attention.module_, generator
        self.dropout, self.terms = attention.dropout, attention.loss or LossTerms()
        self.label_smoothing = train_config(attention).label_smoothing
        self.features = features_of(left_out.batch, attention.first_look_)
        entries, positions = left_out.batch.vectors.gather(left_out.batch.neighbors.positions)
        self.entries, self.positions = torch.from_numpy(entries), torch.from_numpy(positions)
        self.log_sample_weight = torch.from_numpy(np.log(left_out.batch.sample_weight)).float()
        self.own, self.counts = torch.from_numpy(left_out.own), left_out.counts
        self.log_exponent = nn.Parameter(torch.tensor(math.log(noise.exponent)))
        self.has_noise = noise.label_noise > 0
        if self.has_noise and noise.transition is None:
            odds = noise.label_noise / (1 - noise.label_noise)
            self.noise_odds = nn.Parameter(torch.tensor(math.log(odds)))
        self.transition = (
            None if noise.transition is None else torch.from_numpy(noise.transition).float()
        )

    def loss(self, rows: Tensor) -> Tensor:
        """Mean log-loss of the observed labels of these rows and further terms, with a gradient."""
        weights = self._weights(rows, self._project(rows), self.dropout)
        logs, own, noise = self._log_probabilities(weights, rows), self.own[rows], self._noise()
        losses = log_losses(logs, own, noise)
        loss = smoothed_loss(losses, logs, self.label_smoothing)
        observed = observed_probabilities(logs, noise)
        return loss + sum(further_terms(self.terms, weights, observed, losses, own).values())

    def validate(self, rows: Tensor) -> float:
        """Mean log-loss of held-out rows, without dropout and gradient."""
        total = 0.0
        with torch.no_grad():
            everything = self.scores.project(self.entries)
            for part in rows.split(ROWS_AT_ONCE):
                logs = self._log_probabilities(self._weights(part, (everything, None), 0.0), part)
                total += log_losses(logs, self.own[part], self._noise()).sum().item()
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
        queries = self.scores.project_queries(features.queries)
        learned = learned_distances(self.scores, queries, entries, places, features.mask)
        neighbors, prior = self.scores(learned, features)
        is_out = ~features.mask
        if dropout:
            is_out = is_out | (torch.rand(is_out.shape, generator=self.generator) < dropout)
        neighbors = neighbors + self.log_sample_weight[rows][:, None]
        neighbors = neighbors.masked_fill(is_out[:, None], -torch.inf)
        return softmax_with_prior(neighbors, prior).mean(dim=1)

    def _log_probabilities(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Log-probabilities (B, C) of the true labels: the shares under the exponent."""
        prior = torch.from_numpy(class_prior(self.counts, self.own[rows].numpy())).float()
        shares = vote_in_torch(self.features.labels[rows], weights[:, :-1], weights[:, -1], prior)
        return torch.log_softmax(self.log_exponent.exp() * log_of(shares), dim=1)

    def _noise(self) -> Tensor | None:
        if self.transition is not None:
            return self.transition
        return torch.sigmoid(self.noise_odds) if self.has_noise else None
