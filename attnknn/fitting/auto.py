"""Choose an attention by leave-one-out: candidates are fitted, compared and mixed.

All candidates are compared by one currency, the leave-one-out log-loss. Those that leave every
entry held out come first: distance, a linear projection, and forests. Costly ones follow where the
first ones show that they can pay. They are mixed, unless the best of them is better alone.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from attnknn.attention import (
    Attention,
    BlockAttention,
    BoostingAttention,
    ClassScoreAttention,
    DirectAttention,
    DistanceAttention,
    ForestAttention,
    LearnedAttention,
    MixtureAttention,
    MLPAttention,
    ProjectionAttention,
)
from attnknn.attention.learned import reason_not_to_learn
from attnknn.calibration import Calibration, CalibrationFit
from attnknn.calibration.fitting import N_STANDARD_ERRORS
from attnknn.calibration.mixing import fit_mixing
from attnknn.fitting.fitting import (
    MAX_NEIGHBORS_TO_LEARN,
    STANDARD_ERRORS,
    DirectFitting,
    Fit,
    Fitting,
)
from attnknn.fitting.holdout import Gain
from attnknn.fitting.report import Candidate
from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.records import Floats

Head = Attention | DirectAttention
FORESTS = ("forest", "extra trees")
SMOOTH = ("distance", "projection")
CLASS_SCORES = ClassScoreAttention.registered_name
MAX_SECONDS = 60.0  # that a candidate may take by its estimate if there is no budget
MAX_COLUMNS_FOR_TREES = 200  # vectors with more are no columns of a table
MAX_ENCODED_COLUMNS_FOR_TREES = 2_000  # of a table, whose categories have a column each
MIN_ROWS_TO_HOLD_OUT = 3_000  # below, the rows held out are too few for the weights of a mixture
MIN_WEIGHT_TO_LEARN = 0.1  # of distance attention, for learned attention to be worth a try
MIN_ROWS_FOR_NETWORK = 1_000
ROWS_TO_TRAIN_ON = 600_000  # by a network, of all epochs
MAX_RATIO_FOR_NETWORK = 1.5  # of the log-loss of smooth attentions to the best
MAX_RATIO_FOR_NOISE = 1.3  # of the log-loss of a candidate to the best, to estimate label noise
MAX_FALL_BY_NOISE = 2.0  # of the log-likelihood of the mixture, for an estimate to be likely
MAX_RATIO_TO_BOOST = 1.2  # of the log-loss of forests to the best, for boosting to be worth a try


def fit_best(fitting: Fitting) -> Fit:
    """Fit the candidates that can pay, and return the best of them or their mixture.

    Parameters
    ----------
    fitting : Fitting
        The entries and settings.

    Returns
    -------
    Fit
        Its report lists all candidates, with their log-loss, weight and seconds.
    """
    choice = _Choice(fitting)
    for candidate in choice.first_candidates():
        choice.try_head(*candidate)
    if choice.has_trees and choice.are_trees_good():
        choice.try_head("boosting", *_boosting(*choice.size))
    if choice.has_trees and choice.may_network_pay():
        choice.try_head("mlp", *_mlp(*choice.size))
    choice.try_learned()
    return choice.result()


def _forests(n_rows: int, n_columns: int) -> list[tuple[str, Head, float]]:
    """Names, attentions and estimated seconds of both kinds of forests."""
    n_trees = int(np.clip(4_000_000 // n_rows, 150, 400))
    visits = n_trees * n_rows * math.log2(max(2, n_rows))
    random, extra = ForestAttention(n_trees), ForestAttention(n_trees, kind="extra_trees")
    return [
        (FORESTS[0], random, 5e-8 * visits * math.sqrt(n_columns)),
        (FORESTS[1], extra, 8e-9 * visits * n_columns),
    ]


def _boosting(n_rows: int, n_columns: int, n_classes: int) -> tuple[BoostingAttention, float]:
    """Boosted trees, slower ones for few rows, and the seconds that they take."""
    n_scores = 1 if n_classes == 2 else n_classes
    per_tree = 1e-3 + 4e-7 * n_rows + 6e-9 * n_rows * n_columns
    attention = BoostingAttention(learning_rate=0.06, max_features=0.5)
    return attention, 500 * n_scores * per_tree


def _mlp(n_rows: int, n_columns: int, n_classes: int) -> tuple[MLPAttention, float]:
    """Networks, trained for fewer epochs on many rows, and the seconds that they take."""
    n_epochs = int(np.clip(ROWS_TO_TRAIN_ON // n_rows, 15, 40))
    per_row = 6e-6 + 1.6e-7 * n_columns + 4e-8 * n_classes
    return MLPAttention(max_epochs=n_epochs), 1.0 + n_epochs * n_rows * per_row


@dataclass
class _Tried:
    """A fitted candidate."""

    name: str
    head: Head
    n_neighbors: int
    seconds: float
    shares: Floats  # (B, C) leave-one-out, of the rows that all candidates are compared on
    log_loss: float


@dataclass
class _Choice:
    """The candidates that were fitted so far."""

    fitting: Fitting
    problem: DirectFitting = field(init=False)
    left_out: LeaveOneOutBatch = field(init=False)
    # the label noise given which candidates are compared
    noise: Calibration = field(default_factory=Calibration)
    tried: list[_Tried] = field(default_factory=list)
    skipped: list[Candidate] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.problem = self.fitting.problem()
        self.left_out = self.problem.left_out()

    @property
    def size(self) -> tuple[int, int, int]:
        """Numbers of rows, columns and classes."""
        memory = self.fitting.memory
        return len(memory), memory.vectors.width, len(self.fitting.counts)

    @property
    def has_trees(self) -> bool:
        """Whether trees are candidates: not for wide or joined embeddings, or class scores."""
        is_plain = len(self.problem.blocks) == 1 and not self.problem.score_blocks
        is_table = self.fitting.encoder.allows_missing
        most = MAX_ENCODED_COLUMNS_FOR_TREES if is_table else MAX_COLUMNS_FOR_TREES
        return is_plain and self.size[1] <= most

    def first_candidates(self) -> list[tuple[str, Head, float]]:
        """Names, attentions and estimated seconds of those that leave all entries held out."""
        n_rows, n_columns, n_classes = self.size
        linear = 5e-8 * n_rows * n_classes  # seconds of a projection for each column
        blocks, scores = self.problem.blocks, self.problem.score_blocks
        if len(blocks) > 1:
            votes = [
                (f"class-scores of {b}", BlockAttention(b, ClassScoreAttention()), 0.0)
                if b in scores
                else (f"distance of {b}", BlockAttention(b), 0.0)
                for b in blocks
            ]
            others = {b: stop - start for b, (start, stop) in blocks.items() if b not in scores}
            return [
                *votes,
                *(
                    (f"projection of {b}", BlockAttention(b, ProjectionAttention()), linear * width)
                    for b, width in others.items()
                ),
            ]
        if scores:
            return [(CLASS_SCORES, ClassScoreAttention(), 0.0)]
        found: list[tuple[str, Head, float]] = [
            ("distance", DistanceAttention(), 0.0),
            ("projection", ProjectionAttention(), linear * n_columns),
        ]
        return [*found, *(_forests(n_rows, n_columns) if self.has_trees else [])]

    def learned_candidate(self) -> tuple[str, str, Head]:
        """Name of the learned attention, of the distance attention beside it, and the attention."""
        blocks = [b for b in self.problem.blocks if b not in self.problem.score_blocks]
        if len(self.problem.blocks) == 1 or not blocks:
            beside = "distance" if blocks else CLASS_SCORES
            return "learned", beside, LearnedAttention()
        name = blocks[0]
        head = BlockAttention(name, LearnedAttention())
        return f"learned of {name}", f"distance of {name}", head

    def try_head(self, name: str, head: Head, estimate: float) -> None:
        """Fit a candidate, unless it would take too long."""
        if self._is_too_slow(name, estimate):
            return
        start = time.perf_counter()
        n_neighbors = self.problem.fit_head(head)
        shares = self._shares(head, n_neighbors, self.left_out)
        loss = self._calibrated(shares, self.left_out).loss
        seconds = time.perf_counter() - start
        self.tried.append(_Tried(name, head, n_neighbors, seconds, shares, loss))

    def _is_too_slow(self, name: str, estimate: float) -> bool:
        budget = self.fitting.settings.budget
        if budget is None:
            if estimate > MAX_SECONDS:
                self.skip(name, f"would take about {estimate:.0f} s; give a `budget` to allow it")
            return estimate > MAX_SECONDS
        left = budget - (time.perf_counter() - self.started)
        if not self.tried or estimate <= left:
            return False
        self.skip(name, f"would take about {estimate:.1f} s of the {max(left, 0.0):.1f} s left")
        return True

    def skip(self, name: str, note: str) -> None:
        """Note why a candidate is not fitted."""
        self.skipped.append(Candidate(name, note=f"not tried: {note}"))

    def weight_of(self, *names: str) -> float:
        """Weight of some candidates in the mixture of those fitted so far."""
        places = [place for place, tried in enumerate(self.tried) if tried.name in names]
        return float(self._mixing()[places].sum())

    def are_trees_good(self) -> bool:
        """Whether no forest was fitted, or one is about as good as anything else."""
        forests = [tried.log_loss for tried in self.tried if tried.name in FORESTS]
        best = min(tried.log_loss for tried in self.tried)
        if not forests or min(forests) <= MAX_RATIO_TO_BOOST * best:
            return True
        self.skip("boosting", "forests are worse than other attentions")
        return False

    def may_network_pay(self) -> bool:
        """Whether there are enough rows, and smooth boundaries are about as good as trees."""
        if self.size[0] < MIN_ROWS_FOR_NETWORK:
            self.skip("mlp", f"fewer than {MIN_ROWS_FOR_NETWORK:,} rows")
            return False
        smooth = [tried.log_loss for tried in self.tried if tried.name in SMOOTH]
        best = min(tried.log_loss for tried in self.tried)
        if smooth and min(smooth) <= MAX_RATIO_FOR_NETWORK * best:
            return True
        self.skip("mlp", "distance attention and projection are worse than trees")
        return False

    def _mixing(self) -> Floats:
        shares = [tried.shares for tried in self.tried]
        return fit_mixing(shares, self.left_out.own, self.left_out.prior)

    def try_learned(self) -> None:
        """Add learned attention if the mixture with it is better on rows it was not trained on.

        It is worth the rows that it is trained on, which are no longer held out, only then.
        """
        n_rows, n_columns, _ = self.size
        name, beside, head = self.learned_candidate()
        if n_rows < MIN_ROWS_TO_HOLD_OUT:
            return self.skip(name, f"fewer than {MIN_ROWS_TO_HOLD_OUT:,} rows")
        if self.weight_of(beside) < MIN_WEIGHT_TO_LEARN:
            return self.skip(name, "distance attention has little weight")
        reason = reason_not_to_learn(self.left_out.batch)
        if reason:
            return self.skip(name, reason)
        if self._is_too_slow(name, 2.0 + 2e-5 * n_rows * min(n_columns, 128)):
            return None
        start = time.perf_counter()
        problem = self.fitting.with_fewer(MAX_NEIGHBORS_TO_LEARN).problem()
        n_neighbors = problem.fit_head(head)
        left_out = problem.left_out()
        shares = [self._shares(t.head, t.n_neighbors, left_out) for t in self.tried]
        learned = self._shares(head, n_neighbors, left_out)
        loss = self._calibrated(learned, left_out).loss
        without, together = (self._mixed(s, left_out)[1] for s in (shares, [*shares, learned]))
        gain = Gain.of(without.losses - together.losses, left_out.groups)
        seconds = time.perf_counter() - start
        if gain.mean <= STANDARD_ERRORS * gain.error:
            note = f"not significantly better with it on {len(left_out)} held-out rows, {gain}"
            self.skipped.append(Candidate(name, loss, 0.0, seconds, note))
            return None
        problem.fits = {**self.problem.fits, **problem.fits}
        self.problem, self.left_out = problem, left_out
        for tried, of_head in zip(self.tried, shares, strict=True):
            tried.shares = of_head
            tried.log_loss = self._calibrated(of_head, left_out).loss
        self.tried.append(_Tried(name, head, n_neighbors, seconds, learned, loss))
        return None

    def _shares(self, head: Head, n_neighbors: int, left_out: LeaveOneOutBatch) -> Floats:
        model = self.fitting.model_of(head, Calibration(), n_neighbors)
        return model.left_out_vote_shares(left_out.rows)

    def _calibrated(self, shares: Floats, left_out: LeaveOneOutBatch) -> CalibrationFit:
        """Given the label noise, which is a property of the labels and not of an attention."""
        return self.fitting.fit_shares(MixtureAttention(), shares, left_out, self.noise)

    def estimate_noise(self) -> Calibration | None:
        """The most certain estimate of label noise by a candidate; None if none of them finds any.

        Smooth votes such as those of a mixture can take wrong labels for ambiguous rows, and those
        of distant neighbors ambiguous rows for wrong labels. So an estimate counts only if the
        labels are about as likely given it by the mixture as they are without noise.
        """
        if self.fitting.settings.label_noise != "auto":
            return None
        best = min(tried.log_loss for tried in self.tried)
        good = [t.shares for t in self.tried if t.log_loss <= MAX_RATIO_FOR_NOISE * best]
        mixed = np.tensordot(self._mixing(), [tried.shares for tried in self.tried], axes=1)
        fit_shares = partial(self.fitting.fit_shares, MixtureAttention())
        fits = [fit_shares(shares, self.left_out).calibration for shares in (*good, mixed)]
        found = [fitted for fitted in fits if fitted.has_noise]
        if not found:
            return None
        noise = min(found, key=lambda fitted: fitted.noise_error)
        without, given = (fit_shares(mixed, self.left_out, n) for n in (Calibration(), noise))
        is_likely = (given.losses - without.losses).sum() <= MAX_FALL_BY_NOISE
        return noise if is_likely else None

    def _mixed(
        self, shares: list[Floats], left_out: LeaveOneOutBatch
    ) -> tuple[Floats, CalibrationFit]:
        """Weights of votes, and the calibration of their mixture."""
        return self.fitting.mixed(MixtureAttention(), shares, left_out, self.noise)

    def result(self) -> Fit:
        """The mixture of all candidates, or the best of them if it is significantly better.

        The best of several estimates is optimistic, so a single candidate must be better by more
        than chance.
        """
        noise = self.estimate_noise()
        self.noise = noise or self.noise
        best = min(self.tried, key=lambda tried: tried.log_loss)
        mixing, mixture = self._mixed([tried.shares for tried in self.tried], self.left_out)
        alone = self._calibrated(best.shares, self.left_out)
        gain = Gain.of(alone.losses - mixture.losses, self.left_out.groups)
        words = f"leave-one-out log-loss is {mixture.loss:.4f} mixed and {alone.loss:.4f}"
        is_worse = gain.mean < -N_STANDARD_ERRORS * gain.error
        if not is_worse and np.count_nonzero(mixing) > 1:
            words = f"{words} by the best of them ({best.name})"
            fit = self._fit_mixture(mixing, words, noise)
        else:
            mixing = np.array([float(tried is best) for tried in self.tried])
            fit = self._fit_alone(best, f"{words} by {best.name} alone, {gain}", noise)
        chosen = [
            Candidate(tried.name, tried.log_loss, float(weight), tried.seconds)
            for tried, weight in zip(self.tried, mixing, strict=True)
        ]
        return replace(fit, candidates=(*chosen, *self.skipped))

    def _fit_mixture(self, mixing: Floats, reason: str, noise: Calibration | None) -> Fit:
        kept = [tried for tried, weight in zip(self.tried, mixing, strict=True) if weight]
        heads, n_neighbors = [t.head for t in kept], [t.n_neighbors for t in kept]
        attention = MixtureAttention(tuple(clone(head) for head in heads))
        attention.set_heads(heads, n_neighbors, mixing[mixing > 0])
        shares = np.tensordot(mixing, [tried.shares for tried in self.tried], axes=1)
        return self._calibrated_on(shares, attention, reason, noise)

    def _fit_alone(self, best: _Tried, reason: str, noise: Calibration | None) -> Fit:
        if best.name not in self.problem.fits:
            return self._calibrated_on(best.shares, best.head, reason, noise)
        return replace(self.problem.fits[best.name], reason=reason)

    def _calibrated_on(
        self, shares: Floats, attention: Any, reason: str, noise: Calibration | None
    ) -> Fit:
        known = shares, self.left_out, attention, self.problem, reason
        return self.fitting.calibrated_on(*known, noise)
