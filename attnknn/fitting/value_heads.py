"""Training of a value head: other rows vote on each row, and the network corrects the vote."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from attnknn.calibration import Calibration
from attnknn.calibration.fitting import sample_rows
from attnknn.fitting.holdout import Gain, trained_rows
from attnknn.fitting.objective import log_losses
from attnknn.leave_one_out import Trust, leave_one_out_batch
from attnknn.memory.vectors import EntryVectors
from attnknn.model import FittedModel
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.config import TrainConfig, TrainResult, epochs_for
from attnknn.training.loop import train
from attnknn.training.optimizers import parameter_groups
from attnknn.training.threads import SMALL, one_thread_if
from attnknn.value_head.head import ValueHead, head_input, known_classes, redistribute
from attnknn.value_head.network import Drop, HeadInput, ValueNet, ValueShape
from attnknn.vote import class_prior

MIN_ROWS = 30  # below, none can be spared for validation
MIN_TRAINED, MIN_VALIDATION = 15, 4
HOLDOUT = 0.15
MAX_ROWS, MAX_VALIDATION = 50_000, 5_000
MAX_COMPARISONS = 1 << 33  # of rows with entries, in the searches before the training
PAIRS_AT_ONCE, ROWS_AT_ONCE = 1 << 20, 1024  # pairs of rows and neighbors
WIDTH, VALUE_DIM = 96, 64
DROPOUT = 0.4  # of hidden units
NEIGHBOR_DROPOUT = 0.3
TRAINING = TrainConfig(batch_size=256, learning_rate=2e-3, weight_decay=0.01, warmup=0.05)
N_STEPS, EPOCHS = 1500, (8, 60)  # as many epochs as make so many steps, within bounds
MAX_LOG_TEMPERATURE = 1.5


@dataclass(frozen=True)
class TrainedHead:
    """A trained head, or None; which entries are still held out; a comparison with the vote."""

    head: ValueHead | None
    held_out: Booleans
    words: str


def train_value_head(
    parts: FittedModel,
    held_out: Booleans,
    trust: Trust | None = None,
    *,
    is_calibrated: bool = True,
    random_state: int = 0,
    verbose: int = 0,
) -> TrainedHead:
    """Train a value head on entries that are not `held_out`; held-out ones validate it.

    Where nothing was trained before, a part of the entries is held out now.

    `parts`: fitted attention and calibration, which do not change; `trust`: for attention that
    needs it; `is_calibrated`: whether a temperature may be fitted.
    """
    generator = np.random.default_rng([random_state, 1])  # the other parts draw as without a head
    reason = ""
    if int((parts.counts > 0).sum()) < 2:
        reason = "there is one class only"
    elif len(parts.memory) < MIN_ROWS:
        reason = f"fewer than {MIN_ROWS} rows are too few to hold some out"
    if not reason:
        split = Split.of(parts, held_out, generator)
        reason = split.reason_not_to_train()
    if reason:
        return TrainedHead(None, held_out, f"none, {reason}")
    objective = _new_objective(parts, trust, split, generator)
    result = _train(objective, verbose)
    validation, net = objective.validation, objective.net
    logs = ValueHead(net, 1.0, split.places).logs(validation.inputs, objective.entries.numpy())
    temperature = validation.best_temperature(logs) if is_calibrated else 1.0
    words = validation.compare(logs / temperature)
    if result.was_interrupted:
        warnings.warn("Training was interrupted; the best state so far was kept.", stacklevel=2)
        words += "; training was interrupted, the best state so far was kept"
    return TrainedHead(ValueHead(net, temperature, split.places), split.held_out, words)


@dataclass(frozen=True)
class Split:
    """Training and validation entries, all held-out entries, and where the head has each class."""

    trained: Integers
    validation: Integers
    held_out: Booleans
    places: Integers

    @classmethod
    def of(cls, parts: FittedModel, held_out: Booleans, generator: np.random.Generator) -> Split:
        """Split the entries, or use the split of parts that were trained before."""
        entries, n_classes = parts.memory.entries, len(parts.counts)
        most = min(MAX_ROWS, MAX_COMPARISONS // len(entries))
        if (~held_out).sum() < MIN_TRAINED:
            is_trained_on = trained_rows(entries.labels, entries.groups, HOLDOUT, most, generator)
            held_out = held_out & ~is_trained_on
        trained, validation = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        trained = trained[sample_rows(len(trained), n_classes, generator, most)]
        n_validation = min(MAX_VALIDATION, most)
        validation = validation[sample_rows(len(validation), n_classes, generator, n_validation)]
        places = np.full(n_classes, -1, dtype=np.int64)
        known = np.unique(entries.labels[trained])
        places[known] = np.arange(len(known))
        return cls(trained, validation, held_out, places)

    def reason_not_to_train(self) -> str:
        """Why these entries are not enough, or an empty text."""
        if len(self.validation) < MIN_VALIDATION:
            return f"fewer than {MIN_VALIDATION} held-out rows are left for validation"
        if (self.places >= 0).sum() < 2:
            return "the training rows have one class only"
        return ""


@dataclass(frozen=True)
class Validation:
    """Held-out rows: inputs of the head, probabilities of the vote, and label codes."""

    inputs: HeadInput
    by_vote: Floats
    own: Integers
    groups: Integers
    places: Integers
    calibration: Calibration

    @property
    def columns(self) -> Integers:
        """The classes that the network knows."""
        return known_classes(self.places)

    def losses(self, probabilities: Floats) -> Floats:
        """Log-loss (B,) of the observed labels."""
        likely = self.calibration.observed(probabilities)[np.arange(len(self.own)), self.own]
        return -np.log(np.maximum(likely, np.finfo(float).tiny))

    def best_temperature(self, logs: Floats) -> float:
        """The temperature with the lowest log-loss; a prior of one row pulls it towards 1."""

        def loss(log_temperature: float) -> float:
            answers = redistribute(logs / math.exp(log_temperature), self.by_vote, self.columns)
            return float(self.losses(answers).sum()) + log_temperature**2

        bounds = (-MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE)
        return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)

    def compare(self, logs: Floats) -> str:
        """Log-loss of the head and of the vote on these rows, in words."""
        answers = redistribute(logs, self.by_vote, self.columns)
        by_vote, by_head = self.losses(self.by_vote), self.losses(answers)
        return (
            f"log-loss on {len(self.own)} held-out rows is {by_vote.mean():.4f} by the vote and "
            f"{by_head.mean():.4f} by the value head ({Gain.of(by_vote - by_head, self.groups)})"
        )


def _new_objective(
    parts: FittedModel, trust: Trust | None, split: Split, generator: np.random.Generator
) -> HeadObjective:
    entries, rows = parts.memory.entries, split.validation
    inputs, _ = _inputs_of(parts, trust, split, split.trained)
    own = torch.from_numpy(split.places[entries.labels[split.trained]])
    held_out, by_vote = _inputs_of(parts, trust, split, rows)
    positions = torch.cat([inputs.positions, held_out.positions]).numpy()
    vectors, found = parts.memory.vectors.gather(positions)
    places = torch.from_numpy(found)
    inputs = replace(inputs, positions=places[: len(inputs.positions)])
    held_out = replace(held_out, positions=places[len(inputs.positions) :])
    labels, groups = entries.labels[rows], entries.groups[rows]
    validation = Validation(held_out, by_vote, labels, groups, split.places, parts.calibration)
    drawing = torch.Generator().manual_seed(int(generator.integers(2**31)))
    net = _new_net(parts.memory.vectors, len(validation.columns), drawing)
    embeddings = torch.from_numpy(vectors)
    return HeadObjective(net, inputs, own, embeddings, validation, drawing)


def _inputs_of(
    parts: FittedModel, trust: Trust | None, split: Split, rows: Integers
) -> tuple[HeadInput, Floats]:
    """Inputs of a head for left-out entries, and probabilities (B, C) of the vote on them.

    Class frequencies without a row have one less of its class, a trace of its label that no new
    query leaves. So the prior is the same for all rows here, and validation rows do not vote on
    each other: what is learned from such a trace does not help them, and ends the training.
    """
    may_vote = np.ones(len(parts.memory), dtype=bool)
    may_vote[split.validation] = False
    step = max(1, PAIRS_AT_ONCE // min(parts.n_neighbors, len(parts.memory)))
    inputs, votes = [], []
    for start in range(0, len(rows), step):
        left_out = leave_one_out_batch(
            parts.memory, parts.counts, parts.n_neighbors, rows[start : start + step]
        )
        batch = left_out.with_trust(trust).restricted(may_vote).batch
        answer = parts.answer_batch(batch, class_prior(parts.counts))
        votes.append(answer.probabilities)
        inputs.append(
            head_input(batch, answer.weights, answer.shares, answer.probabilities, split.places)
        )
    return HeadInput.joined(inputs), np.concatenate(votes)


def _new_net(vectors: EntryVectors, n_classes: int, generator: torch.Generator) -> ValueNet:
    net = ValueNet(ValueShape(vectors.width, n_classes, WIDTH, VALUE_DIM), generator)
    sample = vectors[:: max(1, len(vectors) // MAX_ROWS)].astype(np.float64)
    spread = sample.std(axis=0)
    is_constant = spread <= 1e-6 * spread.max()  # all but rounding
    net.center.copy_(torch.from_numpy(sample.mean(axis=0)))
    net.spread.copy_(torch.from_numpy(np.where(is_constant, 1.0, spread)))
    return net


def _train(objective: HeadObjective, verbose: int) -> TrainResult:
    n_rows, size = len(objective.own), TRAINING.batch_size
    epochs = epochs_for(n_rows, size, N_STEPS, EPOCHS)
    rate, decay = TRAINING.learning_rate, TRAINING.weight_decay
    n_near = objective.inputs.near.shape[1]
    with one_thread_if(size * n_near * VALUE_DIM < SMALL):
        return train(
            objective,
            objective.loss,
            objective.validate,
            n_rows,
            replace(TRAINING, epochs=epochs, patience=max(3, epochs // 5)),
            parameter_groups(objective.net, learning_rate=rate, weight_decay=decay),
            objective.generator,
            title="Learning a value head",
            verbose=verbose,
        )


class HeadObjective(nn.Module):
    """Log-loss of the network's probabilities, under the label noise that calibration found."""

    def __init__(
        self,
        net: ValueNet,
        inputs: HeadInput,
        own: Tensor,
        entries: Tensor,
        validation: Validation,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.net, self.inputs, self.own, self.entries = net, inputs, own, entries
        self.validation, self.generator = validation, generator
        validation_own = validation.places[validation.own]  # -1: unknown classes keep their vote
        self.rows = torch.from_numpy(np.flatnonzero(validation_own >= 0))
        self.validation_own = torch.from_numpy(validation_own)
        calibration, known = validation.calibration, np.ix_(validation.columns, validation.columns)
        self.noise: Tensor | None = None
        if calibration.has_noise:
            observed = calibration.observed(np.eye(len(validation.places)))[known]
            self.noise = torch.from_numpy(observed).float()  # P(observed | true)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean log-loss of the observed labels of these rows, with a gradient."""
        inputs = self.inputs.rows(rows)
        near = inputs.near * self._kept(inputs.near, NEIGHBOR_DROPOUT)
        kept = 1 - DROPOUT
        logs = self._logs(
            replace(inputs, near=near), lambda hidden: hidden * self._kept(hidden, DROPOUT) / kept
        )
        return log_losses(logs, self.own[rows], self.noise).mean()

    def validate(self) -> float:
        """The same without dropout and gradient, on held-out rows."""
        total = 0.0
        with torch.no_grad():
            for rows in self.rows.split(ROWS_AT_ONCE):
                logs = self._logs(self.validation.inputs.rows(rows))
                total += log_losses(logs, self.validation_own[rows], self.noise).sum().item()
        return total / max(1, len(self.rows))

    def _logs(self, inputs: HeadInput, drop: Drop | None = None) -> Tensor:
        """Log-probabilities (B, C); only entries that are needed are projected."""
        used, places = inputs.positions.unique(return_inverse=True)
        entries = self.net.project(self.entries[used])
        return self.net(replace(inputs, positions=places), entries, drop)

    def _kept(self, like: Tensor, dropout: float) -> Tensor:
        return (torch.rand(like.shape, generator=self.generator) >= dropout).to(like)
