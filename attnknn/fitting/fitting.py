"""Fits the parts of a classifier on its memory: which attention, how many neighbors, how sure."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from attnknn.attention import (
    Attention,
    DistanceAttention,
    LearnedAttention,
    PowerDistanceAttention,
    SeveralSizesAttention,
    UniformAttention,
    make_attention,
)
from attnknn.calibration import (
    LEAST_NOISE,
    MOST_NEIGHBORS_TO_SEE_NOISE,
    Calibration,
    Fitted,
    LabelNoise,
    as_it_is,
    fit,
    fit_under,
    is_better,
    rule_of_thumb,
    sample_of,
)
from attnknn.ensembling import fit_mixing
from attnknn.errors import InvalidInputError
from attnknn.fitting.holdout import Gain, clusters_of, trained_rows
from attnknn.fitting.report import FitReport, describe
from attnknn.leave_one_out import LeaveOneOutBatch, Trust, judge
from attnknn.memory.base import Memory
from attnknn.pipeline import Parts
from attnknn.records import Booleans, Floats, Integers

FEWEST_ROWS_TO_LEARN = 300  # below, held-out rows are too few to tell whether learning helped
MOST_ROWS_FOR_TRUST = 200_000
MOST_NEIGHBORS_TO_LEARN = 128
MOST_PAIRS = 4_000_000  # of rows and neighbors that scalars are fitted on
BEYOND_NOISE = 1.64  # standard errors by which learned attention must be better to be kept
ROWS_TO_CHOOSE_K = 2_000
ROWS_TO_CHOOSE_POWER, NEIGHBORS_TO_CHOOSE_POWER = 1_000, 128
POWERS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)  # of the squared distance
FEWEST_NEIGHBORS = 4

CalibrationName = Literal["auto", "scores"]


@dataclass(frozen=True)
class FitSettings:
    """What the user chose, beside the attention.

    Parameters
    ----------
    n_neighbors : the largest K
    calibration : 'auto' fits scalars and map, 'scores' leaves the map out, None fits nothing
    value_head : whether one is trained after everything else
    """

    n_neighbors: int
    calibration: CalibrationName | None
    label_noise: LabelNoise | None
    random_state: int
    verbose: int = 0
    value_head: bool = False


@dataclass(frozen=True)
class FitResult:
    """The fitted parts, which entries are fresh, the report, and trust where attention asks."""

    parts: Parts
    held_out: Booleans
    report: FitReport
    trust: Trust | None = None


def fit_parts(
    memory: Memory,
    counts: Integers,
    attention: str | Attention,
    settings: FitSettings,
    held_out: Booleans | None = None,
) -> FitResult:
    """Fit everything between memory and probabilities.

    Parameters
    ----------
    held_out : (N,) entries that the encoder was not trained on; None if it was trained on none
    """
    outcome = _fit_vote(_Fitting(memory, counts, settings, held_out), attention)
    return _with_value_head(outcome, settings) if settings.value_head else outcome


def _fit_vote(fitting: _Fitting, attention: str | Attention) -> FitResult:
    if isinstance(attention, str) and attention == "auto":
        return fitting.by_the_better()
    made = make_attention(attention)
    if isinstance(made, LearnedAttention):
        return fitting.learned(made, is_asked_for=True)
    if isinstance(made, UniformAttention):
        return fitting.as_given(made)
    if isinstance(made, SeveralSizesAttention):
        made.settle(fitting.settings.n_neighbors)
    return fitting.by_scalars(made, "asked for")


def _with_value_head(outcome: FitResult, settings: FitSettings) -> FitResult:
    from attnknn.fitting.value_heads import train_value_head

    trained = train_value_head(
        outcome.parts,
        outcome.held_out,
        outcome.trust,
        is_calibrated=settings.calibration is not None,
        random_state=settings.random_state,
        verbose=settings.verbose,
    )
    return FitResult(
        replace(outcome.parts, value_head=trained.head),
        trained.held_out,
        replace(outcome.report, value_head=trained.words),
    )


class _Fitting:
    """One run of fitting over one memory."""

    def __init__(
        self,
        memory: Memory,
        counts: Integers,
        settings: FitSettings,
        held_out: Booleans | None = None,
    ) -> None:
        self.memory, self.counts, self.settings = memory, counts, settings
        self.known_held_out = held_out
        self.generator = np.random.default_rng(settings.random_state)
        self.k = max(1, min(settings.n_neighbors, len(memory)))

    def by_the_better(self) -> FitResult:
        """Learned attention where it can be judged and is better, else distance attention."""
        reason = self._reason_not_to_learn()
        if not reason and self.k > MOST_NEIGHBORS_TO_LEARN:
            outcome = self.by_scalars(DistanceAttention(), "")
            if outcome.parts.n_neighbors > MOST_NEIGHBORS_TO_LEARN:
                k = outcome.report.n_neighbors
                reason = f"{k} neighbors vote, more than learned attention takes"
                return replace(outcome, report=replace(outcome.report, reason=reason))
            self.k = MOST_NEIGHBORS_TO_LEARN
        if reason:
            return self.by_scalars(DistanceAttention(), reason)
        return self.learned(LearnedAttention(), is_asked_for=False)

    def _reason_not_to_learn(self) -> str:
        if int((self.counts > 0).sum()) < 2:
            return "there is one class only"
        if len(np.unique(clusters_of(self.memory.entries.groups))) < 2:
            return "all rows are of one group"
        if len(self.memory) < FEWEST_ROWS_TO_LEARN:
            return (
                f"with fewer than {FEWEST_ROWS_TO_LEARN} rows none can be spared to judge learning"
            )
        if self.settings.calibration is None:
            return "without calibration nothing can judge learning"
        return ""

    def as_given(self, attention: Attention) -> FitResult:
        """The classical vote: nothing is fitted."""
        parts = self._parts(attention, Calibration(), self.k)
        return self._outcome(parts, self._left_out(), "asked for; nothing is fitted")

    def by_scalars(self, attention: Attention, reason: str) -> FitResult:
        """A few scalars, leave-one-out: every entry is fresh."""
        if len(self.memory) < 2:
            for name, value in _fixed(attention).items():
                setattr(attention, f"{name}_", value)
            parts = self._parts(attention, Calibration(), self.k)
            return self._outcome(parts, self._left_out(), "one entry only, nothing to fit")
        left_out = self._left_out()
        parts, _ = self._fit_scalars(attention, left_out)
        return self._outcome(parts, left_out, reason)

    def learned(self, attention: LearnedAttention, *, is_asked_for: bool) -> FitResult:
        """Distance attention, then learned attention; the better one, or the one asked for."""
        attention.check_settings()
        if len(self.memory) < 2:
            raise InvalidInputError("Learned attention needs at least 2 rows, got 1 sample.")
        wants_trust = self._wants_trust(attention)
        left_out = self._everyone(len(self.memory) if wants_trust else attention.max_rows)
        distance, by_distance = self._fit_scalars(DistanceAttention(), self._unseen(left_out))
        first_look = self._first_look(self._unseen(left_out), distance)
        trust = Trust(left_out, first_look) if wants_trust else None
        left_out = left_out.trusting(trust)
        left_out, is_trained_on = self._split(left_out, attention)
        interrupted = self._teach(attention, left_out, first_look, by_distance, is_trained_on)
        held_out_rows = left_out.part(~is_trained_on)
        fitted = self._calibrate(attention, held_out_rows, by_distance)
        gains = self._losses(distance, held_out_rows) - fitted.losses
        comparison = _Comparison.of(gains, held_out_rows.groups, fitted, interrupted)
        if not (is_asked_for or comparison.is_better):
            reason = f"learned weights are not better beyond the noise, {comparison.words}"
            return self._outcome(distance, self._unseen(left_out), reason)
        parts = self._parts(attention, fitted.calibration, self.k, trust)
        held_out = self.known_held_out
        if held_out is None:
            held_out = np.ones(len(self.memory), dtype=bool)
            held_out[left_out.rows[is_trained_on]] = False
        why = "asked for" if is_asked_for else "better beyond the noise"
        reason = f"{why}, {comparison.words}"
        return replace(self._outcome(parts, held_out_rows, reason, held_out), trust=trust)

    def _left_out(self) -> LeaveOneOutBatch:
        """A sample of entries with their others: enough for a few scalars, and fresh."""
        rows = np.arange(len(self.memory))
        rows = rows if self.known_held_out is None else rows[self.known_held_out]
        return judge(self.memory, self.counts, self.k, rows[self._sample(len(rows))])

    def _everyone(self, most: int) -> LeaveOneOutBatch:
        """Entries with their others, at most this many."""
        rows = sample_of(len(self.memory), len(self.counts), self.generator, most)
        return judge(self.memory, self.counts, self.k, rows)

    def _unseen(self, left_out: LeaveOneOutBatch) -> LeaveOneOutBatch:
        """Those that the encoder was not trained on."""
        return (
            left_out
            if self.known_held_out is None
            else left_out.part(self.known_held_out[left_out.rows])
        )

    def _sample(self, n_rows: int) -> Integers:
        """As many rows as a few scalars need, and as their neighbors leave room for."""
        rows = sample_of(n_rows, len(self.counts), self.generator)
        return rows[:: -(-len(rows) * self.k // MOST_PAIRS) or 1]

    def _fit_scalars(
        self, attention: Attention, left_out: LeaveOneOutBatch
    ) -> tuple[Parts, Fitted]:
        if isinstance(attention, SeveralSizesAttention) and self.settings.calibration:
            _apply(self._fit_at(attention, left_out, self.k), attention)
            fit_mixing(attention, left_out.batch, left_out.own, left_out.prior)
        if isinstance(attention, PowerDistanceAttention):
            self._fit_power(attention, left_out)
        k = self._best_k(attention, left_out)
        fitted = self._fit_at(attention, left_out, k)
        _apply(fitted, attention)
        return self._parts(attention, fitted.calibration, k), fitted

    def _fit_power(self, attention: PowerDistanceAttention, left_out: LeaveOneOutBatch) -> None:
        """The power with the least leave-one-out log-loss on a part of the rows, else 1."""
        if self.settings.calibration is None or attention.power is not None:
            return
        part = sample_of(len(left_out), len(self.counts), self.generator, ROWS_TO_CHOOSE_POWER)
        left_out = left_out.part(part).nearest(NEIGHBORS_TO_CHOOSE_POWER)
        fixed, fits_map = _fixed(attention), self.settings.calibration == "auto"
        found: dict[float, Fitted] = {}
        for power in POWERS:
            attention.power_ = power
            calibration_batch = left_out.calibration_batch(attention)
            found[power] = fit(calibration_batch, label_noise=None, fits_map=fits_map, fixed=fixed)
        best = min(found, key=lambda power: found[power].loss)
        attention.power_ = best if is_better(found[1.0], found[best]) else 1.0

    def _best_k(self, attention: Attention, left_out: LeaveOneOutBatch) -> int:
        """The K with the least leave-one-out log-loss on a part of the rows."""
        if self.settings.calibration is None or isinstance(attention, SeveralSizesAttention):
            return self.k
        part = sample_of(len(left_out), len(self.counts), self.generator, ROWS_TO_CHOOSE_K)
        calibration_batch = left_out.part(part).calibration_batch(attention)
        by_prior = -np.log(
            calibration_batch.prior[np.arange(len(calibration_batch.own)), calibration_batch.own]
        ).mean()
        noise: LabelNoise | None = None if self.settings.label_noise is None else "symmetric"
        losses: dict[int, float] = {}
        fitted = None
        for k in _halvings(self.k):
            fitted = fit(
                calibration_batch.nearest(k),
                label_noise=noise,
                fits_map=self.settings.calibration == "auto",
                start=fitted,
                fixed=_fixed(attention),
            )
            losses[k] = fitted.loss
            best_k = min(losses, key=losses.__getitem__)
            if 4 * k <= best_k:
                break  # halved twice in vain
            if fitted.loss > 0.99 * by_prior:
                fitted = None  # the prior has all the say: no slope leads away from such a start
        return best_k

    def _fit_at(self, attention: Attention, left_out: LeaveOneOutBatch, k: int) -> Fitted:
        part = self._sample(len(left_out))
        calibration_batch = left_out.part(part).nearest(k).calibration_batch(attention)
        fixed, fits_map = _fixed(attention), self.settings.calibration == "auto"
        if self.settings.calibration is None:
            return rule_of_thumb(calibration_batch, fixed)
        noise = self.settings.label_noise
        if noise is not None and k > MOST_NEIGHBORS_TO_SEE_NOISE:
            few = calibration_batch.nearest(MOST_NEIGHBORS_TO_SEE_NOISE)
            seen = fit(few, label_noise=noise, fits_map=fits_map, fixed=fixed).calibration
            if seen.label_noise:
                return fit_under(seen, calibration_batch, fits_map=fits_map, fixed=fixed)
            noise = None
        return fit(calibration_batch, label_noise=noise, fits_map=fits_map, fixed=fixed)

    def _first_look(self, left_out: LeaveOneOutBatch, distance: Parts) -> Attention:
        """Distance attention over all K neighbors: where learning starts from."""
        if distance.n_neighbors == self.k:
            return distance.attention
        attention = DistanceAttention()
        _apply(self._fit_at(attention, left_out, self.k), attention)
        return attention

    def _wants_trust(self, attention: LearnedAttention) -> bool:
        if attention.trust == "auto":
            return len(self.memory) <= MOST_ROWS_FOR_TRUST
        return bool(attention.trust)

    def _split(
        self, left_out: LeaveOneOutBatch, attention: LearnedAttention
    ) -> tuple[LeaveOneOutBatch, Booleans]:
        """Which rows are trained on, and of the others as many as a few scalars need."""
        if self.known_held_out is not None:
            is_trained_on = ~self.known_held_out[left_out.rows]
        else:
            is_trained_on = trained_rows(
                left_out.own, left_out.groups, attention.holdout, attention.max_rows, self.generator
            )
        held_out = np.flatnonzero(~is_trained_on)
        held_out = held_out[sample_of(len(held_out), len(self.counts), self.generator)]
        rows = np.sort(np.concatenate([np.flatnonzero(is_trained_on), held_out]))
        return left_out.part(rows), is_trained_on[rows]

    def _teach(
        self,
        attention: LearnedAttention,
        left_out: LeaveOneOutBatch,
        first_look: Attention,
        by_distance: Fitted,
        is_trained_on: Booleans,
    ) -> bool:
        from attnknn.fitting.attention import train_attention

        outcome = train_attention(
            attention,
            left_out,
            first_look=first_look,
            noise=by_distance.calibration,
            is_trained_on=is_trained_on,
            random_state=int(self.generator.integers(2**31)),
            verbose=self.settings.verbose,
        )
        if outcome.was_interrupted:
            warnings.warn("Training was stopped by hand; the best so far was kept.", stacklevel=2)
        return outcome.was_interrupted

    def _calibrate(
        self, attention: Attention, held_out: LeaveOneOutBatch, by_distance: Fitted
    ) -> Fitted:
        """Fit the scalars of learned attention on held-out rows.

        Whether there is noise at all was decided on all rows by distance attention; how much of it
        is left is decided here.
        """
        calibration_batch = held_out.calibration_batch(attention)
        if self.settings.calibration is None:
            return as_it_is(calibration_batch)
        noise = self.settings.label_noise
        if noise == "auto":
            noise = "symmetric" if by_distance.calibration.label_noise > 0 else None
        fits_map = self.settings.calibration == "auto"
        fitted = fit(calibration_batch, label_noise=noise, fits_map=fits_map, start=(1.0, 0.0))
        is_little = fitted.calibration.label_noise < LEAST_NOISE
        if self.settings.label_noise == "auto" and noise is not None and is_little:
            fitted = fit(calibration_batch, label_noise=None, fits_map=fits_map, start=(1.0, 0.0))
        _apply(fitted, attention)
        return fitted

    def _losses(self, parts: Parts, left_out: LeaveOneOutBatch) -> np.ndarray:
        return parts.calibration.losses(left_out.answer(parts).shares, left_out.own)

    def _parts(
        self, attention: Attention, calibration: Calibration, k: int, trust: Trust | None = None
    ) -> Parts:
        of_all = None if trust is None else trust.of_all
        if k >= len(self.memory) - 1:
            k = self.settings.n_neighbors  # all there are now; of a memory that grows, the asked K
        return Parts(self.memory, attention, calibration, k, self.counts, of_all)

    def _outcome(
        self,
        parts: Parts,
        left_out: LeaveOneOutBatch,
        reason: str,
        held_out: Booleans | None = None,
    ) -> FitResult:
        if held_out is None and self.known_held_out is not None:
            held_out = self.known_held_out
        if held_out is None:
            held_out = np.ones(len(self.memory), dtype=bool)
        return FitResult(parts, held_out, describe(parts, left_out, reason))


def _halvings(k: int) -> list[int]:
    """K, half of it, and so on down to a few: how many neighbors are worth a try."""
    sizes = [k]
    while sizes[-1] // 2 >= FEWEST_NEIGHBORS:
        sizes.append(sizes[-1] // 2)
    return sizes


def _fixed(attention: Attention) -> dict[str, float]:
    """What the user set by hand and calibration must leave alone."""
    chosen = {
        "temperature": getattr(attention, "temperature", None),
        "prior_score": getattr(attention, "prior_score", None),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _apply(fitted: Fitted, attention: Attention) -> None:
    attention.temperature_ = fitted.temperature
    attention.prior_score_ = fitted.prior_score


@dataclass(frozen=True)
class _Comparison:
    """Learned against distance attention on rows that neither learned from."""

    gain: Gain
    words: str

    @property
    def is_better(self) -> bool:
        return self.gain.mean > BEYOND_NOISE * self.gain.error

    @classmethod
    def of(
        cls, gains: Floats, groups: Integers, learned: Fitted, was_interrupted: bool
    ) -> _Comparison:
        gain = Gain.of(gains, groups)
        words = (
            f"log-loss on {len(gains)} held-out rows is {learned.loss + gain.mean:.4f} by distance "
            f"and {learned.loss:.4f} learned ({gain})"
        )
        if was_interrupted:
            words += "; training was stopped by hand, the best so far was kept"
        return cls(gain, words)
