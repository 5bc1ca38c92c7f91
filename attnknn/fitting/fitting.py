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
    PeakedAttention,
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
from attnknn.fitting.gain import Gain
from attnknn.fitting.holdout import clusters_of, trained_rows
from attnknn.fitting.report import FitReport, describe
from attnknn.leave_one_out import Judged, Trust, judge
from attnknn.memory.base import Memory
from attnknn.pipeline import Parts
from attnknn.records import Booleans, Floats, Integers

FEWEST_ROWS_TO_LEARN = 300  # below, fresh rows are too few to tell whether learning helped
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
class FitOutcome:
    """The fitted parts, which entries are fresh, the report, and trust where attention asks."""

    parts: Parts
    fresh: Booleans
    report: FitReport
    trust: Trust | None = None


def fit_parts(
    memory: Memory,
    counts: Integers,
    attention: str | Attention,
    settings: FitSettings,
    fresh: Booleans | None = None,
) -> FitOutcome:
    """Fit everything between memory and probabilities.

    Parameters
    ----------
    fresh : (N,) entries that the encoder was not trained on; None if it was trained on none
    """
    outcome = _fit_vote(_Fitting(memory, counts, settings, fresh), attention)
    return _with_value_head(outcome, settings) if settings.value_head else outcome


def _fit_vote(fitting: _Fitting, attention: str | Attention) -> FitOutcome:
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


def _with_value_head(outcome: FitOutcome, settings: FitSettings) -> FitOutcome:
    from attnknn.fitting.values import teach_head

    taught = teach_head(
        outcome.parts,
        outcome.fresh,
        outcome.trust,
        is_calibrated=settings.calibration is not None,
        random_state=settings.random_state,
        verbose=settings.verbose,
    )
    return FitOutcome(
        replace(outcome.parts, value_head=taught.head),
        taught.fresh,
        replace(outcome.report, value_head=taught.words),
    )


class _Fitting:
    """One run of fitting over one memory."""

    def __init__(
        self,
        memory: Memory,
        counts: Integers,
        settings: FitSettings,
        fresh: Booleans | None = None,
    ) -> None:
        self.memory, self.counts, self.settings = memory, counts, settings
        self.known_fresh = fresh
        self.generator = np.random.default_rng(settings.random_state)
        self.k = max(1, min(settings.n_neighbors, len(memory)))

    def by_the_better(self) -> FitOutcome:
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

    def as_given(self, attention: Attention) -> FitOutcome:
        """The classical vote: nothing is fitted."""
        parts = self._parts(attention, Calibration(), self.k)
        return self._outcome(parts, self._judged(), "asked for; nothing is fitted")

    def by_scalars(self, attention: Attention, reason: str) -> FitOutcome:
        """A few scalars, leave-one-out: every entry is fresh."""
        if len(self.memory) < 2:
            for name, value in _fixed(attention).items():
                setattr(attention, f"{name}_", value)
            parts = self._parts(attention, Calibration(), self.k)
            return self._outcome(parts, self._judged(), "one entry only, nothing to fit")
        judged = self._judged()
        parts, _ = self._fit_scalars(attention, judged)
        return self._outcome(parts, judged, reason)

    def learned(self, attention: LearnedAttention, *, is_asked_for: bool) -> FitOutcome:
        """Distance attention, then learned attention; the better one, or the one asked for."""
        attention.check_settings()
        if len(self.memory) < 2:
            raise InvalidInputError("Learned attention needs at least 2 rows, got 1 sample.")
        wants_trust = self._wants_trust(attention)
        judged = self._everyone(len(self.memory) if wants_trust else attention.max_rows)
        distance, by_distance = self._fit_scalars(DistanceAttention(), self._unseen(judged))
        first_look = self._first_look(self._unseen(judged), distance)
        trust = Trust(judged, first_look) if wants_trust else None
        judged = judged.trusting(trust)
        judged, is_trained_on = self._split(judged, attention)
        interrupted = self._teach(attention, judged, first_look, by_distance, is_trained_on)
        fresh_rows = judged.part(~is_trained_on)
        fitted = self._calibrate(attention, fresh_rows, by_distance)
        gains = self._losses(distance, fresh_rows) - fitted.losses
        comparison = _Comparison.of(gains, fresh_rows.groups, fitted, interrupted)
        if not (is_asked_for or comparison.is_better):
            reason = f"learned weights are not better beyond the noise, {comparison.words}"
            return self._outcome(distance, self._unseen(judged), reason)
        parts = self._parts(attention, fitted.calibration, self.k, trust)
        fresh = self.known_fresh
        if fresh is None:
            fresh = np.ones(len(self.memory), dtype=bool)
            fresh[judged.rows[is_trained_on]] = False
        why = "asked for" if is_asked_for else "better beyond the noise"
        reason = f"{why}, {comparison.words}"
        return replace(self._outcome(parts, fresh_rows, reason, fresh), trust=trust)

    def _judged(self) -> Judged:
        """A sample of entries with their others: enough for a few scalars, and fresh."""
        rows = np.arange(len(self.memory))
        rows = rows if self.known_fresh is None else rows[self.known_fresh]
        return judge(self.memory, self.counts, self.k, rows[self._sample(len(rows))])

    def _everyone(self, most: int) -> Judged:
        """Entries with their others, at most this many."""
        rows = sample_of(len(self.memory), len(self.counts), self.generator, most)
        return judge(self.memory, self.counts, self.k, rows)

    def _unseen(self, judged: Judged) -> Judged:
        """Those that the encoder was not trained on."""
        return judged if self.known_fresh is None else judged.part(self.known_fresh[judged.rows])

    def _sample(self, n_rows: int) -> Integers:
        """As many rows as a few scalars need, and as their neighbors leave room for."""
        rows = sample_of(n_rows, len(self.counts), self.generator)
        return rows[:: -(-len(rows) * self.k // MOST_PAIRS) or 1]

    def _fit_scalars(self, attention: Attention, judged: Judged) -> tuple[Parts, Fitted]:
        if isinstance(attention, SeveralSizesAttention) and self.settings.calibration:
            _apply(self._fit_at(attention, judged, self.k), attention)
            fit_mixing(attention, judged.situation, judged.own, judged.prior)
        if isinstance(attention, PeakedAttention):
            self._fit_power(attention, judged)
        k = self._best_k(attention, judged)
        fitted = self._fit_at(attention, judged, k)
        _apply(fitted, attention)
        return self._parts(attention, fitted.calibration, k), fitted

    def _fit_power(self, attention: PeakedAttention, judged: Judged) -> None:
        """The power with the least leave-one-out log-loss on a part of the rows, else 1."""
        if self.settings.calibration is None or attention.power is not None:
            return
        part = sample_of(len(judged), len(self.counts), self.generator, ROWS_TO_CHOOSE_POWER)
        judged = judged.part(part).nearest(NEIGHBORS_TO_CHOOSE_POWER)
        fixed, fits_map = _fixed(attention), self.settings.calibration == "auto"
        found: dict[float, Fitted] = {}
        for power in POWERS:
            attention.power_ = power
            trial = judged.trial(attention)
            found[power] = fit(trial, label_noise=None, fits_map=fits_map, fixed=fixed)
        best = min(found, key=lambda power: found[power].loss)
        attention.power_ = best if is_better(found[1.0], found[best]) else 1.0

    def _best_k(self, attention: Attention, judged: Judged) -> int:
        """The K with the least leave-one-out log-loss on a part of the rows."""
        if self.settings.calibration is None or isinstance(attention, SeveralSizesAttention):
            return self.k
        part = sample_of(len(judged), len(self.counts), self.generator, ROWS_TO_CHOOSE_K)
        trial = judged.part(part).trial(attention)
        by_prior = -np.log(trial.prior[np.arange(len(trial.own)), trial.own]).mean()
        noise: LabelNoise | None = None if self.settings.label_noise is None else "symmetric"
        losses: dict[int, float] = {}
        fitted = None
        for k in _halvings(self.k):
            fitted = fit(
                trial.nearest(k),
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

    def _fit_at(self, attention: Attention, judged: Judged, k: int) -> Fitted:
        part = self._sample(len(judged))
        trial = judged.part(part).nearest(k).trial(attention)
        fixed, fits_map = _fixed(attention), self.settings.calibration == "auto"
        if self.settings.calibration is None:
            return rule_of_thumb(trial, fixed)
        noise = self.settings.label_noise
        if noise is not None and k > MOST_NEIGHBORS_TO_SEE_NOISE:
            few = trial.nearest(MOST_NEIGHBORS_TO_SEE_NOISE)
            seen = fit(few, label_noise=noise, fits_map=fits_map, fixed=fixed).calibration
            if seen.label_noise:
                return fit_under(seen, trial, fits_map=fits_map, fixed=fixed)
            noise = None
        return fit(trial, label_noise=noise, fits_map=fits_map, fixed=fixed)

    def _first_look(self, judged: Judged, distance: Parts) -> Attention:
        """Distance attention over all K neighbors: where learning starts from."""
        if distance.n_neighbors == self.k:
            return distance.attention
        attention = DistanceAttention()
        _apply(self._fit_at(attention, judged, self.k), attention)
        return attention

    def _wants_trust(self, attention: LearnedAttention) -> bool:
        if attention.trust == "auto":
            return len(self.memory) <= MOST_ROWS_FOR_TRUST
        return bool(attention.trust)

    def _split(self, judged: Judged, attention: LearnedAttention) -> tuple[Judged, Booleans]:
        """Which rows are trained on, and of the others as many as a few scalars need."""
        if self.known_fresh is not None:
            is_trained_on = ~self.known_fresh[judged.rows]
        else:
            is_trained_on = trained_rows(
                judged.own, judged.groups, attention.holdout, attention.max_rows, self.generator
            )
        fresh = np.flatnonzero(~is_trained_on)
        fresh = fresh[sample_of(len(fresh), len(self.counts), self.generator)]
        rows = np.sort(np.concatenate([np.flatnonzero(is_trained_on), fresh]))
        return judged.part(rows), is_trained_on[rows]

    def _teach(
        self,
        attention: LearnedAttention,
        judged: Judged,
        first_look: Attention,
        by_distance: Fitted,
        is_trained_on: Booleans,
    ) -> bool:
        from attnknn.fitting.attention import teach

        outcome = teach(
            attention,
            judged,
            first_look=first_look,
            noise=by_distance.calibration,
            is_trained_on=is_trained_on,
            random_state=int(self.generator.integers(2**31)),
            verbose=self.settings.verbose,
        )
        if outcome.was_interrupted:
            warnings.warn("Training was stopped by hand; the best so far was kept.", stacklevel=2)
        return outcome.was_interrupted

    def _calibrate(self, attention: Attention, fresh: Judged, by_distance: Fitted) -> Fitted:
        """Fit the scalars of learned attention on fresh rows.

        Whether there is noise at all was decided on all rows by distance attention; how much of it
        is left is decided here.
        """
        trial = fresh.trial(attention)
        if self.settings.calibration is None:
            return as_it_is(trial)
        noise = self.settings.label_noise
        if noise == "auto":
            noise = "symmetric" if by_distance.calibration.label_noise > 0 else None
        fits_map = self.settings.calibration == "auto"
        fitted = fit(trial, label_noise=noise, fits_map=fits_map, start=(1.0, 0.0))
        is_little = fitted.calibration.label_noise < LEAST_NOISE
        if self.settings.label_noise == "auto" and noise is not None and is_little:
            fitted = fit(trial, label_noise=None, fits_map=fits_map, start=(1.0, 0.0))
        _apply(fitted, attention)
        return fitted

    def _losses(self, parts: Parts, judged: Judged) -> np.ndarray:
        return parts.calibration.losses(judged.answer(parts).shares, judged.own)

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
        judged: Judged,
        reason: str,
        fresh: Booleans | None = None,
    ) -> FitOutcome:
        if fresh is None and self.known_fresh is not None:
            fresh = self.known_fresh
        if fresh is None:
            fresh = np.ones(len(self.memory), dtype=bool)
        return FitOutcome(parts, fresh, describe(parts, judged, reason))


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
            f"log-loss on {len(gains)} fresh rows is {learned.loss + gain.mean:.4f} by distance "
            f"and {learned.loss:.4f} learned ({gain})"
        )
        if was_interrupted:
            words += "; training was stopped by hand, the best so far was kept"
        return cls(gain, words)
