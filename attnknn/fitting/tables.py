"""Trains a table encoder through the vote: each row asks other rows for its own label."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.encoders.learned_table import ROWS_AT_ONCE, LearnedTableEncoder, NetworkName
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Integers
from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.loop import train
from attnknn.training.optimizers import Group, parameter_groups
from attnknn.training.threads import one_thread_if
from attnknn.vote import class_prior, vote_in_torch, vote_of_candidates

N_STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1200, 12, 60
SCALAR_LR_SCALE = 10.0  # temperature and prior's score may move faster than weights
PRIOR_SCORE = -3.0
SHARPNESS = 4.0  # embeddings start at squared distances of about 2
MOST_ROWS_FOR_TRIALS = 20_000
FEW_CORES = 2  # a second thread gives little, and costs much when another program has its core
TRIAL = 0.25  # share of the epochs that a trial takes
MOST_JUDGES = 4_000  # held-out rows that decide when to stop
PAIRS_AT_ONCE = 1 << 23


def teach_table(
    encoder: LearnedTableEncoder,
    inputs: NDArray[np.float32],
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    is_trained_on: Booleans,
    random_state: int,
    verbose: int = 0,
) -> TrainResult:
    """Train the network of `encoder` on the rows marked `is_trained_on`; the others judge it.

    Where several networks may be tried, the one is trained that the others judge best in trials.

    Parameters
    ----------
    inputs : rows as `encoder.inputs` gives them
    codes : (n,) label codes
    groups : (n,) rows of one group never vote for each other; -1 is no group
    """
    trained, judges = np.flatnonzero(is_trained_on), np.flatnonzero(~is_trained_on)
    judges = np.random.default_rng(random_state).permutation(judges)[:MOST_JUDGES]
    rows = np.concatenate([trained, judges])
    lesson = _Lesson(inputs[rows], codes[rows], groups[rows], len(trained), n_classes)
    losses = {}
    for network in _tried_networks(encoder, lesson):
        encoder.build(random_state, network)
        outcome = _teach_one(encoder, lesson, random_state, verbose, share=TRIAL)
        if outcome.was_interrupted:
            return outcome
        losses[network] = min(outcome.validation_losses)
    best = min(losses, key=losses.__getitem__) if losses else encoder.networks()[0]
    encoder.build(random_state, best)
    return _teach_one(encoder, lesson, random_state, verbose)


def _tried_networks(encoder: LearnedTableEncoder, lesson: _Lesson) -> tuple[NetworkName, ...]:
    """The networks that get a trial; none where there is no choice, or no time for one."""
    networks = encoder.networks()
    has_time = lesson.n_trained <= MOST_ROWS_FOR_TRIALS
    return networks if len(networks) > 1 and has_time else ()


def _teach_one(
    encoder: LearnedTableEncoder,
    lesson: _Lesson,
    random_state: int,
    verbose: int,
    share: float = 1.0,
) -> TrainResult:
    """Train the network in place; `share` of the epochs is a training by itself, to its end."""
    generator = torch.Generator().manual_seed(random_state)
    classroom = _Classroom(encoder, lesson, generator)
    calibration_batch = "" if share == 1.0 else ", a trial"
    with one_thread_if((os.cpu_count() or 1) <= FEW_CORES):
        outcome = train(
            classroom,
            classroom.loss,
            classroom.judge,
            lesson.n_trained,
            _config(encoder, classroom, share),
            _groups(encoder, classroom),
            generator,
            title=f"Learning the embedding ({encoder.network_}{calibration_batch})",
            verbose=verbose,
            before_epoch=classroom.refresh,
        )
    encoder.module_.chance.draw = None
    encoder.module_.eval()
    return outcome


def _groups(encoder: LearnedTableEncoder, classroom: _Classroom) -> list[Group]:
    rate = encoder.of_network("learning_rate")
    groups = parameter_groups(
        encoder.module_, learning_rate=rate, weight_decay=encoder.weight_decay
    )
    scalars = [classroom.log_sharpness, classroom.prior_score]
    groups.append({"params": scalars, "lr": rate * SCALAR_LR_SCALE, "weight_decay": 0.0})
    return groups


def _config(encoder: LearnedTableEncoder, classroom: _Classroom, share: float) -> TrainConfig:
    epochs = encoder.epochs
    if epochs is None:
        steps_per_epoch = math.ceil(classroom.n_trained / encoder.batch_size)
        epochs = min(max(math.ceil(N_STEPS / steps_per_epoch), FEWEST_EPOCHS), MOST_EPOCHS)
    epochs = max(1, round(share * epochs))
    return TrainConfig(
        epochs=epochs,
        batch_size=encoder.batch_size,
        average=encoder.average,
        warmup=0.05,
        patience=encoder.patience or max(3, epochs // 5),
    )


@dataclass(frozen=True)
class _Lesson:
    """Rows to train on, the first `n_trained`, then rows that judge."""

    inputs: NDArray[np.float32]
    codes: Integers
    groups: Integers
    n_trained: int
    n_classes: int


class _Classroom(nn.Module):
    """The network with the temperature and the prior's score that are trained beside it."""

    def __init__(
        self, encoder: LearnedTableEncoder, lesson: _Lesson, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.net, self.settings, self.generator = encoder.module_, encoder, generator
        self.net.chance.draw = generator
        self.log_sharpness = nn.Parameter(torch.tensor(SHARPNESS).log())
        self.prior_score = nn.Parameter(torch.tensor(PRIOR_SCORE))
        self.inputs = torch.from_numpy(lesson.inputs)
        self.codes, self.groups = torch.from_numpy(lesson.codes), torch.from_numpy(lesson.groups)
        self.has_groups = bool((lesson.groups != NO_GROUP).any())
        self.n_trained, self.n_classes = lesson.n_trained, lesson.n_classes
        self.counts = np.bincount(lesson.codes[: lesson.n_trained], minlength=lesson.n_classes)
        self.nearest: Tensor | None = None

    def loss(self, rows: Tensor) -> Tensor:
        """Mean log-loss of the labels of these rows, asked of others, with a gradient."""
        self.net.train()
        ask = self._ask_candidates if self.nearest is None else self._ask_nearest
        logs = _logs(ask(rows))
        smoothing = self.settings.label_smoothing
        return F.nll_loss(logs, self.codes[rows]) * (1 - smoothing) - smoothing * logs.mean()

    def judge(self) -> float:
        """Log-loss of the rows that are not trained on, asked of all that are."""
        self.net.eval()
        prior = torch.from_numpy(class_prior(self.counts)).float()
        with torch.no_grad():
            entries = self._embed(torch.arange(self.n_trained))
            judges = torch.arange(self.n_trained, len(self.codes))
            total = 0.0
            for part in self._split(judges):
                weights = self._weights_among(self._embed(part), part, entries)
                trained = self.codes[: self.n_trained]
                shares = self._vote(trained, weights, prior)
                total += F.nll_loss(_logs(shares), self.codes[part], reduction="sum").item()
        return total / max(1, len(judges))

    def refresh(self, epoch: int) -> None:
        """Find the nearest others of each trained row again, where these are asked."""
        if self.settings.candidates != "nearest" or epoch % self.settings.refresh:
            return
        self.net.eval()
        k = max(1, min(self.settings.n_candidates, self.n_trained - 1))
        rows = torch.arange(self.n_trained)
        with torch.no_grad():
            entries = self._embed(rows)
            parts = [
                self._weights_among(entries[part], part, entries)[:, :-1].topk(k, dim=1).indices
                for part in self._split(rows)
            ]
        self.nearest = torch.cat(parts)

    def _ask_candidates(self, rows: Tensor) -> Tensor:
        """Shares (B, C) by the vote of the batch and of rows drawn at random."""
        n_drawn = min(self.settings.n_candidates, self.n_trained)
        drawn = torch.randint(self.n_trained, (n_drawn,), generator=self.generator)
        both = torch.cat([rows, drawn])
        embedded = self.net(self.inputs[both])
        weights = self._weights_among(embedded[: len(rows)], rows, embedded, both)
        return self._vote(self.codes[both], weights, self._prior_without(rows))

    def _ask_nearest(self, rows: Tensor) -> Tensor:
        """Shares (B, C) by the vote of the nearest others, encoded again."""
        assert self.nearest is not None
        places = self.nearest[rows]  # (B, K)
        used, where = torch.cat([rows[:, None], places], dim=1).unique(return_inverse=True)
        embedded = self.net(self.inputs[used])
        queries, others = embedded[where[:, :1]], embedded[where[:, 1:]]  # (B, 1, D), (B, K, D)
        scores = -(queries - others).square().sum(-1) * self.log_sharpness.exp()
        may_vote = self._may_vote(rows, places)
        weights = self._weights(scores.masked_fill(~may_vote, -torch.inf))
        prior = self._prior_without(rows)
        return vote_in_torch(self.codes[places], weights[:, :-1], weights[:, -1], prior)

    def _vote(self, labels: Tensor, weights: Tensor, prior: Tensor) -> Tensor:
        return vote_of_candidates(labels, weights[:, :-1], weights[:, -1], prior, self.n_classes)

    def _weights_among(
        self, queries: Tensor, rows: Tensor, entries: Tensor, others: Tensor | None = None
    ) -> Tensor:
        """Weights (B, M + 1) of entries, by default all trained ones, and of the prior."""
        lengths = queries.square().sum(1)[:, None] + entries.square().sum(1)
        squared = torch.addmm(lengths, queries, entries.T, alpha=-2.0).clamp_min(0.0)
        others = torch.arange(self.n_trained) if others is None else others
        may_vote = self._may_vote(rows, others)
        return self._weights(
            (-squared * self.log_sharpness.exp()).masked_fill(~may_vote, -torch.inf)
        )

    def _weights(self, scores: Tensor) -> Tensor:
        """Softmax (B, M + 1) over scores and, last, the prior's."""
        prior = self.prior_score.expand(len(scores), 1)
        return torch.softmax(torch.cat([scores, prior], dim=1), dim=1)

    def _split(self, rows: Tensor) -> tuple[Tensor, ...]:
        return rows.split(max(1, PAIRS_AT_ONCE // self.n_trained))

    def _may_vote(self, rows: Tensor, others: Tensor) -> Tensor:
        """(B, M) where another row is neither the row itself nor of its group."""
        may_vote = rows[:, None] != others  # others are (M,), or (B, M) for each row its own
        if self.has_groups:
            groups = self.groups[rows][:, None]
            may_vote &= (groups != self.groups[others]) | (groups == NO_GROUP)
        return may_vote

    def _prior_without(self, rows: Tensor) -> Tensor:
        """Class frequencies (B, C) of the trained rows, each without the row that asks."""
        return torch.from_numpy(class_prior(self.counts, self.codes[rows].numpy())).float()

    def _embed(self, rows: Tensor) -> Tensor:
        return torch.cat([self.net(self.inputs[part]) for part in rows.split(ROWS_AT_ONCE)])


def _logs(shares: Tensor) -> Tensor:
    return shares.clamp_min(torch.finfo(shares.dtype).tiny).log()
