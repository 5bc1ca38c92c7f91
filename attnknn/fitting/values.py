"""Trains a value head leave-one-out: each row asks the others for their values and its label."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from attnknn.calibration import Calibration, sample_of
from attnknn.fitting.gain import Gain
from attnknn.fitting.holdout import trained_rows
from attnknn.leave_one_out import Trust, judge
from attnknn.pipeline import Parts
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.loop import train
from attnknn.training.optimizers import parameter_groups
from attnknn.training.threads import SMALL, one_thread_if
from attnknn.value_head.head import ValueHead, columns_of, look, shared_out
from attnknn.value_head.network import Drop, Seen, ValueNet, ValueShape
from attnknn.vote import class_prior

FEWEST_ROWS = 30  # below, none can be spared to judge
FEWEST_TRAINED, FEWEST_JUDGES = 15, 4
HOLDOUT = 0.15
MOST_ROWS, MOST_JUDGES = 50_000, 5_000
MOST_COMPARISONS = 1 << 33  # of rows with entries, in the searches before the training
PAIRS_AT_ONCE = 1 << 20  # rows and neighbors
WIDTH, VALUE_DIM = 96, 64
DROPOUT = 0.4  # of inner numbers
KEPT = 1 - DROPOUT
NEIGHBOR_DROPOUT = 0.3
BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 256, 2e-3, 0.01
N_STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1500, 8, 60
WIDEST_TEMPERATURE = 1.5  # its logarithm, either way
TINY = torch.finfo(torch.float32).tiny  # the log of an underflow is infinite


@dataclass(frozen=True)
class TaughtHead:
    """A trained head, or None; which entries are still fresh; what to tell people."""

    head: ValueHead | None
    held_out: Booleans
    words: str


def teach_head(
    parts: Parts,
    held_out: Booleans,
    trust: Trust | None = None,
    *,
    is_calibrated: bool = True,
    random_state: int = 0,
    verbose: int = 0,
) -> TaughtHead:
    """Train a value head on entries that are not `held_out`; held-out ones judge it.

    Where nothing was trained before, a part of the entries is held out, and the others are fresh
    no longer.

    Parameters
    ----------
    parts : fitted attention and calibration, which stay as they are
    trust : where the attention asks for it
    is_calibrated : whether a temperature may be fitted
    """
    generator = np.random.default_rng([random_state, 1])  # the other parts draw as without a head
    reason = _reason_not_to_teach(parts)
    if reason:
        return TaughtHead(None, held_out, f"none, {reason}")
    split = _Split.of(parts, held_out, generator)
    reason = split.reason_not_to_teach()
    if reason:
        return TaughtHead(None, held_out, f"none, {reason}")
    lesson, exam = _lesson_and_exam(parts, trust, split)
    chance = torch.Generator().manual_seed(int(generator.integers(2**31)))
    net = _new_net(parts, len(exam.columns), chance)
    outcome = _train(_Classroom(net, lesson, exam, chance), chance, verbose)
    logs = ValueHead(net, 1.0, split.places).logs(exam.seen, lesson.entries.numpy())
    temperature = exam.best_temperature(logs) if is_calibrated else 1.0
    words = exam.words(logs / temperature)
    if outcome.was_interrupted:
        warnings.warn("Training was stopped by hand; the best so far was kept.", stacklevel=2)
        words += "; training was stopped by hand, the best so far was kept"
    return TaughtHead(ValueHead(net, temperature, split.places), split.held_out, words)


def _reason_not_to_teach(parts: Parts) -> str:
    if int((parts.counts > 0).sum()) < 2:
        return "there is one class only"
    if len(parts.memory) < FEWEST_ROWS:
        return f"with fewer than {FEWEST_ROWS} rows none can be spared to judge it"
    return ""


@dataclass(frozen=True)
class _Split:
    """Which entries are trained on, which judge, which stay fresh, and the classes to be known."""

    trained: Integers
    judges: Integers
    held_out: Booleans
    places: Integers

    @classmethod
    def of(cls, parts: Parts, held_out: Booleans, generator: np.random.Generator) -> _Split:
        entries, n_classes = parts.memory.entries, len(parts.counts)
        most = min(MOST_ROWS, MOST_COMPARISONS // len(entries))
        if (~held_out).sum() < FEWEST_TRAINED:
            is_trained_on = trained_rows(entries.labels, entries.groups, HOLDOUT, most, generator)
            held_out = held_out & ~is_trained_on
        trained, judges = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        trained = trained[sample_of(len(trained), n_classes, generator, most)]
        judges = judges[sample_of(len(judges), n_classes, generator, min(MOST_JUDGES, most))]
        places = np.full(n_classes, -1, dtype=np.int64)
        known = np.unique(entries.labels[trained])
        places[known] = np.arange(len(known))
        return cls(trained, judges, held_out, places)

    def reason_not_to_teach(self) -> str:
        if len(self.judges) < FEWEST_JUDGES:
            return f"fewer than {FEWEST_JUDGES} held-out rows are left to judge it"
        if (self.places >= 0).sum() < 2:
            return "the rows to train on have one class only"
        return ""


@dataclass(frozen=True)
class _Lesson:
    """Rows to train on: what they see, and their labels as the network counts classes."""

    seen: Seen
    own: Tensor
    entries: Tensor


@dataclass(frozen=True)
class _Exam:
    """Rows that judge: what they see, what the vote says of them, and their label codes."""

    seen: Seen
    by_vote: Floats
    own: Integers
    groups: Integers
    places: Integers
    calibration: Calibration

    @property
    def columns(self) -> Integers:
        """The classes that the network knows."""
        return columns_of(self.places)

    def losses(self, probabilities: Floats) -> Floats:
        """Log-loss (B,) of the observed labels."""
        likely = self.calibration.observed(probabilities)[np.arange(len(self.own)), self.own]
        return -np.log(np.maximum(likely, np.finfo(float).tiny))

    def best_temperature(self, logs: Floats) -> float:
        """The one with the least log-loss; one row more pulls it towards 1."""

        def loss(log_temperature: float) -> float:
            answers = shared_out(logs / math.exp(log_temperature), self.by_vote, self.columns)
            return float(self.losses(answers).sum()) + log_temperature**2

        bounds = (-WIDEST_TEMPERATURE, WIDEST_TEMPERATURE)
        return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)

    def words(self, logs: Floats) -> str:
        """The head beside the vote, on these rows."""
        answers = shared_out(logs, self.by_vote, self.columns)
        by_vote, by_head = self.losses(self.by_vote), self.losses(answers)
        return (
            f"log-loss on {len(self.own)} held-out rows is {by_vote.mean():.4f} by the vote and "
            f"{by_head.mean():.4f} by the value head ({Gain.of(by_vote - by_head, self.groups)})"
        )


def _lesson_and_exam(parts: Parts, trust: Trust | None, split: _Split) -> tuple[_Lesson, _Exam]:
    entries, judges = parts.memory.entries, split.judges
    trained, _ = _look_at(parts, trust, split, split.trained)
    judging, by_vote = _look_at(parts, trust, split, judges)
    own = torch.from_numpy(split.places[entries.labels[split.trained]])
    lesson = _Lesson(trained, own, torch.from_numpy(entries.embeddings))
    labels, groups = entries.labels[judges], entries.groups[judges]
    return lesson, _Exam(judging, by_vote, labels, groups, split.places, parts.calibration)


def _look_at(
    parts: Parts, trust: Trust | None, split: _Split, rows: Integers
) -> tuple[Seen, Floats]:
    """What a head sees of entries that ask the others, and what the vote says (B, C) of them.

    Entries without a row have one less of its class, which is a trace of its label that no new
    query leaves. So the prior is the same for all rows here, and rows that judge ask none of each
    other: what is read from such a trace does not help them, and ends the training.
    """
    may_judge = np.ones(len(parts.memory), dtype=bool)
    may_judge[split.judges] = False
    step = max(1, PAIRS_AT_ONCE // min(parts.n_neighbors, len(parts.memory)))
    seen, votes = [], []
    for start in range(0, len(rows), step):
        left_out = judge(parts.memory, parts.counts, parts.n_neighbors, rows[start : start + step])
        batch = left_out.trusting(trust).asking(may_judge).batch
        answer = parts.finish(batch, class_prior(parts.counts))
        votes.append(answer.probabilities)
        seen.append(look(batch, answer.weights, answer.shares, answer.probabilities, split.places))
    return Seen.joined(seen), np.concatenate(votes)


def _new_net(parts: Parts, n_classes: int, generator: torch.Generator) -> ValueNet:
    entries = parts.memory.entries.embeddings
    net = ValueNet(ValueShape(entries.shape[1], n_classes, WIDTH, VALUE_DIM), generator)
    sample = entries[:: max(1, len(entries) // MOST_ROWS)].astype(np.float64)
    spread = sample.std(axis=0)
    is_constant = spread <= 1e-6 * spread.max()  # all but rounding
    net.center.copy_(torch.from_numpy(sample.mean(axis=0)))
    net.spread.copy_(torch.from_numpy(np.where(is_constant, 1.0, spread)))
    return net


def _train(classroom: _Classroom, generator: torch.Generator, verbose: int) -> TrainResult:
    n_rows = len(classroom.lesson.own)
    steps_per_epoch = math.ceil(n_rows / BATCH_SIZE)
    epochs = min(max(math.ceil(N_STEPS / steps_per_epoch), FEWEST_EPOCHS), MOST_EPOCHS)
    groups = parameter_groups(classroom.net, learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    config = TrainConfig(epochs, BATCH_SIZE, warmup=0.05, patience=max(3, epochs // 5))
    n_near = classroom.lesson.seen.near.shape[1]
    with one_thread_if(BATCH_SIZE * n_near * VALUE_DIM < SMALL):
        return train(
            classroom,
            classroom.loss,
            classroom.judge,
            n_rows,
            config,
            groups,
            generator,
            title="Learning a value head",
            verbose=verbose,
        )


class _Classroom(nn.Module):
    """The network with what it is taught from; the noise of labels is calibration's."""

    def __init__(
        self, net: ValueNet, lesson: _Lesson, exam: _Exam, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.net, self.lesson, self.exam, self.generator = net, lesson, exam, generator
        own = exam.places[exam.own]
        self.judges = torch.from_numpy(np.flatnonzero(own >= 0))  # others keep what the vote says
        self.judges_own = torch.from_numpy(own)
        noise, known = exam.calibration, np.ix_(exam.columns, exam.columns)
        chances = noise.observed(np.eye(len(exam.places)))[known]  # of observed labels, by true
        self.chances = torch.from_numpy(chances).float()
        self.has_noise = noise.label_noise > 0 or noise.transition is not None

    def loss(self, rows: Tensor) -> Tensor:
        """Mean log-loss of the observed labels of these rows, with a gradient."""
        seen = self.lesson.seen.rows(rows)
        near = seen.near * self._kept(seen.near, NEIGHBOR_DROPOUT)
        logs = self._logs(
            replace(seen, near=near), lambda inner: inner * self._kept(inner, DROPOUT) / KEPT
        )
        return self._losses(logs, self.lesson.own[rows]).mean()

    def judge(self) -> float:
        """The same without dropout and gradient, on rows that are not trained on."""
        total = 0.0
        with torch.no_grad():
            for rows in self.judges.split(1024):
                logs = self._logs(self.exam.seen.rows(rows))
                total += self._losses(logs, self.judges_own[rows]).sum().item()
        return total / max(1, len(self.judges))

    def _logs(self, seen: Seen, drop: Drop | None = None) -> Tensor:
        """Log-probabilities (B, C); only entries that are needed are projected."""
        used, places = seen.positions.unique(return_inverse=True)
        entries = self.net.project(self.lesson.entries[used])
        return self.net(replace(seen, positions=places), entries, drop)

    def _kept(self, like: Tensor, share_out: float) -> Tensor:
        return (torch.rand(like.shape, generator=self.generator) >= share_out).to(like)

    def _losses(self, logs: Tensor, own: Tensor) -> Tensor:
        if not self.has_noise:
            return -logs.gather(1, own[:, None])[:, 0]
        return -(logs.exp() * self.chances[:, own].T).sum(dim=1).clamp_min(TINY).log()
