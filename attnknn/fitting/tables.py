"""Training of a table encoder through the vote: other rows vote on the label of each row."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.encoders.learned_table import ROWS_AT_ONCE, LearnedTableEncoder, NetworkName
from attnknn.encoders.table_net import TableNet
from attnknn.fitting.joint import N_NEIGHBORS, JointVote, nearest
from attnknn.fitting.objective import (
    further_terms,
    log_losses,
    log_of,
    smoothed_loss,
    softmax_with_prior,
)
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Integers
from attnknn.training.config import LossTerms, TrainConfig, TrainResult, epochs_for
from attnknn.training.loop import train
from attnknn.training.losses import one_hot
from attnknn.training.optimizers import Group, parameter_groups
from attnknn.training.threads import one_thread_if
from attnknn.vote import class_prior, vote_in_torch

N_STEPS, EPOCHS = 1200, (12, 30)  # as many epochs as make so many steps, within bounds
SCALAR_LR_SCALE = 10.0  # temperature and prior score may move faster than weights
PRIOR_SCORE = -3.0
SHARPNESS = 4.0  # embeddings start at squared distances of about 2
MAX_ROWS_FOR_TRIALS = 20_000
FEW_CORES = 2  # a second thread gains little, and costs much when another program has its core
TRIAL, TRIAL_CANDIDATES = 0.2, 256  # share of the epochs of a trial, and candidates at most
MAX_VALIDATION_ROWS = 4_000
PAIRS_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class TrainingData:
    """Rows: the first `n_trained` are trained on, the others validate."""

    inputs: NDArray[np.float32]
    codes: Integers
    groups: Integers
    n_trained: int
    n_classes: int


def train_table(
    encoder: LearnedTableEncoder,
    inputs: NDArray[np.float32],
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    is_trained_on: Booleans,
    random_state: int,
    joint: JointVote | None = None,
    verbose: int = 0,
) -> TrainResult:
    """Train the network of `encoder` on the rows marked `is_trained_on`; the others validate it.

    Where several networks may be tried, the one with the lowest validation loss in short trials is
    trained for longer, and whichever of its two trainings has the lower validation loss is kept.

    `inputs`: rows as `encoder.inputs` returns them; `codes` (n,): label codes; `groups` (n,): rows
    of one group never vote for each other; -1 is no group; `joint`: learned attention that is
    trained with the network that was chosen.
    """
    trained, validation = np.flatnonzero(is_trained_on), np.flatnonzero(~is_trained_on)
    validation = np.random.default_rng(random_state).permutation(validation)[:MAX_VALIDATION_ROWS]
    rows = np.concatenate([trained, validation])
    data = TrainingData(inputs[rows], codes[rows], groups[rows], len(trained), n_classes)
    networks = encoder.networks()
    if len(networks) == 1 or data.n_trained > MAX_ROWS_FOR_TRIALS:
        encoder.build(random_state, networks[0])
        return _train_network(encoder, data, random_state, verbose, joint=joint)
    trials: dict[NetworkName, TrainResult] = {}
    modules: dict[NetworkName, TableNet] = {}
    for network in networks:
        encoder.build(random_state, network)
        trials[network] = _train_network(encoder, data, random_state, verbose, share=TRIAL)
        modules[network] = encoder.module_
        if trials[network].was_interrupted:
            return trials[network]
    best = min(trials, key=lambda network: min(trials[network].validation_losses))
    encoder.build(random_state, best)
    result = _train_network(encoder, data, random_state, verbose, joint=joint)
    # With few rows, the long schedule overfits before its learning rate has fallen.
    if joint is None and min(trials[best].validation_losses) < min(result.validation_losses):
        encoder.module_ = modules[best]
        return replace(trials[best], was_interrupted=result.was_interrupted)
    return result


def _train_network(
    encoder: LearnedTableEncoder,
    data: TrainingData,
    random_state: int,
    verbose: int,
    share: float = 1.0,
    joint: JointVote | None = None,
) -> TrainResult:
    """Train the network in place for a `share` of the epochs, with a schedule of that length."""
    generator = torch.Generator().manual_seed(random_state)
    config = encoder.train_config()
    epochs = config.epochs or epochs_for(data.n_trained, config.batch_size, N_STEPS, EPOCHS)
    epochs = max(1, round(share * epochs))
    config = replace(config, epochs=epochs, patience=config.patience or max(3, epochs // 5))
    objective = TableObjective(encoder, data, generator, joint)
    if share < 1.0:
        objective.n_candidates = min(objective.n_candidates, TRIAL_CANDIDATES)
    note = "" if share == 1.0 else ", a trial"
    with one_thread_if((os.cpu_count() or 1) <= FEW_CORES):
        result = train(
            objective,
            objective.loss,
            objective.validate,
            data.n_trained,
            config,
            _groups(objective, config),
            generator,
            title=f"Learning the embedding ({encoder.network_}{note})",
            verbose=verbose,
            before_epoch=objective.refresh,
        )
    encoder.module_.seeded_dropout.generator = None
    encoder.module_.eval()
    return result


def _groups(objective: TableObjective, config: TrainConfig) -> list[Group]:
    rate = config.learning_rate
    groups = parameter_groups(objective.net, learning_rate=rate, weight_decay=config.weight_decay)
    scalars = [objective.log_sharpness, objective.prior_score]
    if objective.joint is not None:
        scalars = [p for p in objective.joint.parameters() if p.ndim <= 1]
        matrices = [p for p in objective.joint.parameters() if p.ndim > 1]
        groups.append({"params": matrices, "lr": rate, "weight_decay": 0.0})
    return [*groups, {"params": scalars, "lr": rate * SCALAR_LR_SCALE, "weight_decay": 0.0}]


class TableObjective(nn.Module):
    """Log-loss of the vote over the embeddings, by a temperature and a prior score, or `joint`."""

    def __init__(
        self,
        encoder: LearnedTableEncoder,
        data: TrainingData,
        generator: torch.Generator,
        joint: JointVote | None = None,
    ) -> None:
        super().__init__()
        self.net, self.settings, self.generator = encoder.module_, encoder, generator
        self.net.seeded_dropout.generator = generator
        self.joint, self.terms = joint, [encoder.loss or LossTerms()]
        if joint is not None:
            joint.generator = generator
            self.terms.append(joint.terms)
        self.label_smoothing = encoder.train_config().label_smoothing
        self.log_sharpness = nn.Parameter(torch.tensor(SHARPNESS).log())
        self.prior_score = nn.Parameter(torch.tensor(PRIOR_SCORE))
        self.inputs = torch.from_numpy(data.inputs)
        self.codes, self.groups = torch.from_numpy(data.codes), torch.from_numpy(data.groups)
        self.has_groups = bool((data.groups != NO_GROUP).any())
        self.n_trained, self.n_classes = data.n_trained, data.n_classes
        self.counts = np.bincount(data.codes[: data.n_trained], minlength=data.n_classes)
        self.n_candidates = encoder.n_candidates
        self.nearest: Tensor | None = None

    def loss(self, rows: Tensor) -> Tensor:
        """Mean log-loss of the labels of these rows and further terms, with a gradient."""
        self.train()
        prior = torch.from_numpy(class_prior(self.counts, self.codes[rows].numpy())).float()
        voted = self._vote_of_sample if self.nearest is None else self._vote_of_nearest
        weights, shares = voted(rows, prior)
        logs, own = log_of(shares), self.codes[rows]
        losses = log_losses(logs, own)
        loss = smoothed_loss(losses, logs, self.label_smoothing)
        for terms in self.terms:
            loss = loss + sum(further_terms(terms, weights, shares, losses, own).values())
        return loss

    def validate(self) -> float:
        """Log-loss of the validation rows by the vote of all training rows."""
        self.eval()
        prior = torch.from_numpy(class_prior(self.counts)).float()
        everyone = torch.arange(self.n_trained)
        total = 0.0
        with torch.no_grad():
            entries = self._embed(everyone)
            rows = torch.arange(self.n_trained, len(self.codes))
            for part in self._split(rows):
                _, shares = self._vote(self._embed(part), part, entries, everyone, prior)
                total += log_losses(log_of(shares), self.codes[part]).sum().item()
        return total / max(1, len(rows))

    def refresh(self, epoch: int) -> None:
        """Search the nearest other rows of each training row again, where these vote."""
        if self.settings.candidates != "nearest" or epoch % self.settings.refresh:
            return
        self.eval()
        k = max(1, min(self.n_candidates, self.n_trained - 1))
        rows = torch.arange(self.n_trained)
        with torch.no_grad():
            entries = self._embed(rows)
            parts = [
                self._scores(entries[part], part, entries, rows).topk(k, dim=1).indices
                for part in self._split(rows)
            ]
        self.nearest = torch.cat(parts)

    def _vote_of_sample(self, rows: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and shares (B, C) by the vote of the batch and of rows drawn at random."""
        n_drawn = min(self.n_candidates, self.n_trained)
        drawn = torch.randint(self.n_trained, (n_drawn,), generator=self.generator)
        both = torch.cat([rows, drawn])
        embedded = self.net(self.inputs[both])
        return self._vote(embedded[: len(rows)], rows, embedded, both, prior)

    def _vote(
        self, queries: Tensor, rows: Tensor, entries: Tensor, others: Tensor, prior: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weights (B, K + 1) and shares (B, C) of queries by entries, which are the rows `others`.

        All entries vote, or by joint attention the nearest ones.
        """
        scores, codes = self._scores(queries, rows, entries, others), self.codes[others]
        if self.joint is None:
            weights = softmax_with_prior(scores, self.prior_score)
            labels = one_hot(codes, self.n_classes)
        else:
            places, mask = nearest(scores, N_NEIGHBORS)
            weights = self.joint.weigh(queries, entries, places, mask, codes)
            labels = codes[places]
        return weights, vote_in_torch(labels, weights[:, :-1], weights[:, -1], prior)

    def _vote_of_nearest(self, rows: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and shares (B, C) by the vote of the nearest other rows, encoded again."""
        assert self.nearest is not None
        places = self.nearest[rows]  # (B, K)
        used, where = torch.cat([rows[:, None], places], dim=1).unique(return_inverse=True)
        embedded = self.net(self.inputs[used])
        mask = self._may_vote(rows, places)
        if self.joint is None:
            queries, others = embedded[where[:, :1]], embedded[where[:, 1:]]  # (B, 1, D), (B, K, D)
            scores = -(queries - others).square().sum(-1) * self.log_sharpness.exp()
            weights = softmax_with_prior(scores.masked_fill(~mask, -torch.inf), self.prior_score)
        else:
            queries, own = embedded[where[:, 0]], self.codes[used]
            weights = self.joint.weigh(queries, embedded, where[:, 1:], mask, own)
        shares = vote_in_torch(self.codes[places], weights[:, :-1], weights[:, -1], prior)
        return weights, shares

    def _scores(self, queries: Tensor, rows: Tensor, entries: Tensor, others: Tensor) -> Tensor:
        """Scores (B, M) of entries by distance; −inf for the row itself and its group."""
        lengths = queries.square().sum(1)[:, None] + entries.square().sum(1)
        squared = torch.addmm(lengths, queries, entries.T, alpha=-2.0).clamp_min(0.0)
        scores = -squared * self.log_sharpness.exp()
        return scores.masked_fill(~self._may_vote(rows, others), -torch.inf)

    def _split(self, rows: Tensor) -> tuple[Tensor, ...]:
        return rows.split(max(1, PAIRS_AT_ONCE // self.n_trained))

    def _may_vote(self, rows: Tensor, others: Tensor) -> Tensor:
        """(B, M) whether another row is neither the row itself nor of its group."""
        may_vote = rows[:, None] != others  # others are (M,), or (B, M) for each row its own
        if self.has_groups:
            groups = self.groups[rows][:, None]
            may_vote &= (groups != self.groups[others]) | (groups == NO_GROUP)
        return may_vote

    def _embed(self, rows: Tensor) -> Tensor:
        return torch.cat([self.net(self.inputs[part]) for part in rows.split(ROWS_AT_ONCE)])
