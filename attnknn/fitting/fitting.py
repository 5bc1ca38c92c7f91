"""Fit a model on its memory: choose the attention and K, fit scalars, train what is trained."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnknn.attention import (
    Attention,
    ClassScoreAttention,
    DirectAttention,
    DistanceAttention,
    LearnedAttention,
    Scores,
    make_attention,
)
from attnknn.attention.learned import reason_not_to_learn
from attnknn.calibration import Calibration, CalibrationBatch, CalibrationFit, fit
from attnknn.calibration.fitting import (
    FEW_NEIGHBORS,
    MAX_ERROR_BY_FEW,
    MAX_NEIGHBORS_FOR_NOISE,
    UNCERTAIN,
    UNFITTED,
    LabelNoise,
    fit_given_noise,
    heuristic_fit,
    identity_fit,
    is_significantly_better,
    sample_rows,
)
from attnknn.calibration.mixing import fit_mixing
from attnknn.encoders import Encoder
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.fitting.holdout import Gain, clusters_of, trained_rows
from attnknn.fitting.report import Candidate, FitReport, describe
from attnknn.leave_one_out import LeaveOneOutBatch, Trust, leave_one_out_batch
from attnknn.memory.base import Memory
from attnknn.model import FittedModel
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.terminal import show_progress, track
from attnknn.training.threads import SMALL_TABLE, one_blas_thread_if

if TYPE_CHECKING:
    from attnknn.attention.scores import NeighborScores

ALL = "all"  # the name of the only block
MIN_ROWS_TO_MIX = 40
MIN_ROWS_TO_LEARN = 300  # below, held-out rows are too few to tell whether learning helped
MAX_ROWS_FOR_TRUST = 200_000
MAX_NEIGHBORS_TO_LEARN = 128
MAX_PAIRS = 1_000_000  # of rows and neighbors that scalars are fitted on
MAX_HELD_OUT_PAIRS = 4_000_000  # the same of learned attention
STANDARD_ERRORS = 1.64  # standard errors by which learned attention must be better to be kept
ROWS_TO_CHOOSE_K = 2_000
MIN_NEIGHBORS = 4

CalibrationName = Literal["auto", "scores"]


@dataclass(frozen=True)
class FitSettings:
    """What the user chose, beside the attention."""

    n_neighbors: int  # the largest K
    # 'auto' fits scalars and map, 'scores' leaves the map out, None fits nothing
    calibration: CalibrationName | None
    label_noise: LabelNoise | None
    random_state: int
    verbose: int = 0
    value_head: bool = False  # whether one is trained after everything else
    budget: float | None = None  # seconds for the choice of an attention
    # the largest K in the space of a classifier's scores; None is `n_neighbors`
    n_neighbors_of_scores: int | None = None
    # scores that were trained with the encoder, from which learned attention goes on
    start: NeighborScores | None = None


def fit_model(
    encoder: Encoder,
    memory: Memory,
    classes: NDArray[Any],
    attention: str | Attention,
    settings: FitSettings,
    held_out: Booleans | None = None,
) -> FittedModel:
    """Fit everything between memory and probabilities.

    Parameters
    ----------
    encoder : Encoder
        Fitted; it becomes part of the model.
    memory : Memory
        Holds the entries; it is left as it is.
    classes : ndarray of shape (C,)
    attention : str or Attention
        'auto' compares several by leave-one-out and uses the best one or a mixture.
    settings : FitSettings
    held_out : ndarray of shape (N,), default=None
        Entries that the encoder was not trained on; None if it was trained on none.

    Returns
    -------
    FittedModel
        With a `report`; its memory knows which entries are held out.
    """
    fitting = Fitting(encoder, memory, classes, settings, held_out)
    is_small = len(memory) * memory.vectors.width < SMALL_TABLE
    with show_progress("Fitting", is_wanted=settings.verbose > 0), one_blas_thread_if(is_small):
        fitted = fitting.run(attention)
        if settings.value_head:
            fitted = _with_value_head(fitted, settings)
    memory = copy(memory)  # the given one may belong to another model
    memory.set_held_out(fitted.held_out)
    return replace(fitted.model, memory=memory, report=fitted.report)


@dataclass(frozen=True)
class Fit:
    """A fitted vote, the held-out entries (N,), and what its report is made of."""

    model: FittedModel
    held_out: Booleans
    left_out: LeaveOneOutBatch  # entries that the vote is measured on
    reason: str
    trust: Trust | None = None  # if the attention uses it
    shares: Floats | None = None  # (B, C) leave-one-out, if they are known
    candidates: tuple[Candidate, ...] = ()
    value_head: str = ""

    @cached_property
    def report(self) -> FitReport:
        """What was chosen and its leave-one-out quality, measured when it is asked for."""
        found = describe(self.model, self.left_out, self.reason, self.shares)
        return replace(found, candidates=self.candidates, value_head=self.value_head)


def _with_value_head(fitted: Fit, settings: FitSettings) -> Fit:
    from attnknn.fitting.value_heads import train_value_head

    trained = train_value_head(
        fitted.model,
        fitted.held_out,
        fitted.trust,
        is_calibrated=settings.calibration is not None,
        random_state=settings.random_state,
        verbose=settings.verbose,
    )
    model = replace(fitted.model, value_head=trained.head)
    return replace(fitted, model=model, held_out=trained.held_out, value_head=trained.words)


class Fitting:
    """One run of fitting over one memory."""

    def __init__(
        self,
        encoder: Encoder,
        memory: Memory,
        classes: NDArray[Any],
        settings: FitSettings,
        held_out: Booleans | None,
    ) -> None:
        self.encoder: Any = encoder
        self.memory, self.classes = memory, classes
        self.settings, self.known_held_out = settings, held_out
        self.counts = np.bincount(memory.entries.labels, minlength=len(classes))
        self.generator = np.random.default_rng(settings.random_state)
        self.k = max(1, min(settings.n_neighbors, len(memory)))

    def run(self, attention: str | Attention) -> Fit:
        """Fit the attention that was asked for, or choose one."""
        if isinstance(attention, str) and attention == "auto":
            return self.best()
        made: Any = make_attention(attention)
        if made.fitted_by == "entries":
            return self.direct(made, "requested")
        return self.searching(made)

    def searching(self, made: Attention) -> Fit:
        """Fit the attention that was asked for, which weighs the neighbors that are found."""
        made.prepare_fit(self.settings.n_neighbors)
        if made.fitted_by == "training":
            return self.learned(made, is_requested=True)
        if made.fitted_by == "nothing":
            return self.unfitted(made)
        return self.by_scalars(made, "requested")

    def best(self) -> Fit:
        """The best attention by leave-one-out: one of the candidates, or a mixture of them."""
        if self._reason_not_to_mix():
            return self.by_the_better()
        from attnknn.fitting.auto import fit_best

        return fit_best(self)

    def _reason_not_to_mix(self) -> str:
        if self.settings.value_head:
            return "a value head needs an attention that searches"
        if len(self.memory) < MIN_ROWS_TO_MIX:
            return f"fewer than {MIN_ROWS_TO_MIX} rows are too few to compare attentions"
        if self.settings.calibration is None:
            return "without calibration attentions cannot be compared"
        if self.known_held_out is not None:
            return "the encoder was trained on most rows"
        return self._reason_to_be_simple()

    def by_the_better(self) -> Fit:
        """Learned attention where it can be validated and is better, else distance attention."""
        reason = self._reason_not_to_learn()
        if not reason and self.k > MAX_NEIGHBORS_TO_LEARN:
            outcome = self.by_scalars(DistanceAttention(), "")
            if outcome.model.n_neighbors > MAX_NEIGHBORS_TO_LEARN:
                k = min(outcome.model.n_neighbors, len(self.memory))
                reason = f"{k} neighbors vote, so that learned weights are not tried by default"
                return replace(outcome, reason=reason)
            self.k = MAX_NEIGHBORS_TO_LEARN
        if reason:
            return self.by_scalars(DistanceAttention(), reason)
        return self.learned(LearnedAttention(), is_requested=False)

    def _reason_to_be_simple(self) -> str:
        if int((self.counts > 0).sum()) < 2:
            return "there is one class only"
        if len(np.unique(clusters_of(self.memory.entries.groups))) < 2:
            return "all rows are of one group"
        return ""

    def _reason_not_to_learn(self) -> str:
        reason = self._reason_to_be_simple()
        if reason:
            return reason
        if len(self.memory) < MIN_ROWS_TO_LEARN:
            return f"fewer than {MIN_ROWS_TO_LEARN} rows are too few to validate learned weights"
        if self.settings.calibration is None:
            return "without calibration learned weights cannot be validated"
        return ""

    def unfitted(self, attention: Attention) -> Fit:
        """An attention without fitted parameters, such as the classical vote."""
        model = self.model_of(attention, UNFITTED, self.k)
        return self._fit_of(
            model, self.left_out(self.known_held_out), "requested; nothing is fitted"
        )

    def by_scalars(self, attention: Attention, reason: str) -> Fit:
        """A few scalars fitted by leave-one-out: every entry is held out."""
        if len(self.memory) < 2:
            for name, value in _fixed(attention).items():
                setattr(attention, f"{name}_", value)
            model = self.model_of(attention, UNFITTED, self.k)
            return self._fit_of(
                model, self.left_out(self.known_held_out), "one entry only, nothing to fit"
            )
        left_out = self.left_out(self.known_held_out)
        model, _ = self._fit_scalars(attention, left_out)
        return self._fit_of(model, left_out, reason)

    def direct(self, attention: DirectAttention, reason: str) -> Fit:
        """An attention that finds its voters itself; the prior and the map are fitted after it."""
        if self.settings.value_head:
            raise InvalidSettingError(
                "`value_head=True` needs an attention that searches the memory, such as "
                f"'distance', got {type(attention).__name__}."
            )
        problem = self.problem()
        attention.fit_entries(problem)
        return self.calibrated(attention, problem, reason)

    def with_fewer(self, k: int) -> Fitting:
        """The same with at most `k` neighbors."""
        settings = replace(self.settings, n_neighbors=min(k, self.settings.n_neighbors))
        return Fitting(self.encoder, self.memory, self.classes, settings, self.known_held_out)

    def problem(self) -> DirectFitting:
        """What attentions that find their voters themselves are fitted to."""
        return DirectFitting(self, int(self.generator.integers(2**31)))

    def calibrated(
        self,
        attention: DirectAttention,
        problem: DirectFitting,
        reason: str,
    ) -> Fit:
        """Fit the prior and the probability map of an attention that is fitted to the entries."""
        attention.prior_score_ = -np.inf
        left_out = problem.left_out()
        shares = self.model_of(attention, UNFITTED, self.k).left_out_shares(left_out)
        return self.calibrated_on(shares, left_out, attention, problem, reason)

    def calibrated_on(
        self,
        shares: Floats,
        left_out: LeaveOneOutBatch,
        attention: DirectAttention,
        problem: DirectFitting,
        reason: str,
        noise: Calibration | None = None,
    ) -> Fit:
        """The same for known vote shares (B, C) of entries, without the prior.

        `noise` is the label noise where it is known already; None estimates it.
        """
        attention.prior_score_, calibration = -np.inf, UNFITTED
        if self.settings.calibration is not None and len(self.memory) > 1:
            fitted = self.fit_shares(attention, shares, left_out, noise)
            attention.prior_score_, calibration = fitted.prior_score, fitted.calibration
        model = self.model_of(attention, calibration, self.k)
        fit = self._fit_of(model, left_out, reason, problem.held_out)
        return replace(fit, shares=attention.with_prior(shares, left_out.prior))

    def fit_shares(
        self,
        attention: DirectAttention,
        shares: Floats,
        left_out: LeaveOneOutBatch,
        noise: Calibration | None = None,
    ) -> CalibrationFit:
        """Fit the prior's weight, probability map and label noise for given vote shares (B, C).

        A class votes like one neighbor of its label whose weight is the class's share. `noise` is
        the label noise where it is known already; None estimates it.
        """
        with np.errstate(divide="ignore"):
            scores = Scores(np.log(shares)[:, None, :], np.zeros((len(shares), 1)))
        batch = CalibrationBatch(
            scores=scores,
            log_sample_weight=np.zeros(shares.shape),
            labels=np.tile(np.arange(shares.shape[1]), (len(shares), 1)),
            mask=np.ones(shares.shape, dtype=bool),
            own=left_out.own,
            prior=left_out.prior,
        )
        settings: dict[str, Any] = {
            "fits_map": self.settings.calibration == "auto",
            "is_map_needed": True,
            "fixed": _fixed(attention) | {"temperature": 1.0},
        }
        if noise is not None:
            return fit_given_noise(noise, batch, **settings)
        fitted = fit(batch, label_noise=self.settings.label_noise, **settings)
        seen = self._noise_by_few(fitted.calibration, left_out)
        if seen is fitted.calibration:
            return fitted
        return fit_given_noise(seen, batch, **settings)

    def mixed(
        self,
        attention: DirectAttention,
        shares: list[Floats],
        left_out: LeaveOneOutBatch,
        noise: Calibration | None = None,
    ) -> tuple[Floats, CalibrationFit]:
        """Weights (H,) of votes (B, C) in their mixture, and the calibration of the mixture.

        The weights are fitted with a label noise of their own, which limits the influence of rows
        that no vote explains. But noise forgives votes that are confident and sometimes wrong. So
        weights given the noise that calibration uses are taken where they are significantly better.
        """

        def fit_map(mixing: Floats, noise: Calibration | None) -> CalibrationFit:
            return self.fit_shares(attention, np.tensordot(mixing, shares, axes=1), left_out, noise)

        robust = fit_mixing(shares, left_out.own, left_out.prior)
        fitted = fit_map(robust, noise)
        if self.settings.label_noise not in ("auto", None):
            return robust, fitted
        used = fitted.calibration
        mixing = fit_mixing(shares, left_out.own, left_out.prior, used.label_noise)
        other = fit_map(mixing, used)
        return (mixing, other) if is_significantly_better(fitted, other) else (robust, fitted)

    def learned(self, attention: Any, *, is_requested: bool) -> Fit:
        """Distance attention, then trained attention; the better one, or the one requested."""
        if len(self.memory) < 2:
            raise InvalidInputError("Learned attention needs at least 2 rows, got 1 sample.")
        learned = getattr(attention, "scorer", attention)  # inside of votes over several K
        is_small = len(self.memory) <= MAX_ROWS_FOR_TRUST
        wants_trust = is_small if learned.trust == "auto" else bool(learned.trust)
        most = len(self.memory) if wants_trust else learned.max_rows
        rows = sample_rows(len(self.memory), len(self.counts), self.generator, most)
        k = min(self.k, MAX_NEIGHBORS_TO_LEARN)
        left_out = leave_one_out_batch(self.memory, self.counts, k, rows)
        reason = reason_not_to_learn(left_out.batch)
        if reason and is_requested:
            raise InvalidInputError(
                f"{reason[0].upper()}{reason[1:]}. Scale the columns, or choose another attention."
            )
        if reason:
            return self.by_scalars(DistanceAttention(), reason)
        unseen = self._unseen(left_out)
        all_k = unseen if k == self.k else self.left_out(self.known_held_out)
        distance, by_distance = self._fit_scalars(DistanceAttention(), all_k)
        first_look = self._first_look(unseen, distance, k)
        trust = Trust(left_out, first_look) if wants_trust else None
        left_out = left_out.with_trust(trust)
        left_out, is_trained_on = self._split(left_out, learned)
        interrupted = self._train(learned, left_out, first_look, by_distance, is_trained_on)
        compared = self._with_all_neighbors(left_out.part(~is_trained_on), k, trust)
        if self.settings.calibration is not None:
            attention.fit_parameters(_ScalarFit(self, attention, compared))
        if k < self.k:
            k = self._best_k(attention, compared)
        held_out_rows = compared.nearest(k)
        fitted = self._calibrate(attention, held_out_rows, by_distance)
        shares = distance.answer_left_out(compared).shares
        gains = distance.calibration.losses(shares, compared.own) - fitted.losses
        comparison = _Comparison.of(gains, held_out_rows.groups, fitted, interrupted)
        if not (is_requested or comparison.is_better):
            reason = f"learned weights are not significantly better, {comparison.words}"
            return self._fit_of(distance, self._unseen(left_out), reason)
        model = self.model_of(attention, fitted.calibration, k, trust)
        held_out = self.known_held_out
        if held_out is None:
            held_out = np.ones(len(self.memory), dtype=bool)
            held_out[left_out.rows[is_trained_on]] = False
        why = "requested" if is_requested else "significantly better"
        reason = f"{why}, {comparison.words}"
        return replace(self._fit_of(model, held_out_rows, reason, held_out), trust=trust)

    def _with_all_neighbors(
        self, held_out: LeaveOneOutBatch, k: int, trust: Trust | None
    ) -> LeaveOneOutBatch:
        """Rows that have K neighbors with as many as may vote; fewer rows where that is much."""
        if k == self.k:
            return held_out
        step = -(-len(held_out) * self.k // MAX_HELD_OUT_PAIRS)
        rows = held_out.rows[::step]
        return leave_one_out_batch(self.memory, self.counts, self.k, rows).with_trust(trust)

    def left_out(self, held_out: Booleans | None) -> LeaveOneOutBatch:
        """A sample of held-out entries with their neighbors: enough for a few scalars."""
        rows = np.arange(len(self.memory))
        rows = rows if held_out is None else rows[held_out]
        return leave_one_out_batch(self.memory, self.counts, self.k, rows[self._sample(len(rows))])

    def _unseen(self, left_out: LeaveOneOutBatch) -> LeaveOneOutBatch:
        """Those that the encoder was not trained on."""
        known = self.known_held_out
        return left_out if known is None else left_out.part(known[left_out.rows])

    def _sample(self, n_rows: int) -> Integers:
        """As many rows as a few scalars need, and as their neighbors leave room for."""
        rows = sample_rows(n_rows, len(self.counts), self.generator)
        return rows[:: -(-len(rows) * self.k // MAX_PAIRS) or 1]

    def _fit_scalars(
        self, attention: Attention, left_out: LeaveOneOutBatch
    ) -> tuple[FittedModel, CalibrationFit]:
        if self.settings.calibration is not None:
            attention.fit_parameters(_ScalarFit(self, attention, left_out))
        k = self._best_k(attention, left_out)
        fitted = self.fit_at(attention, left_out, k)
        _apply(fitted, attention)
        return self.model_of(attention, fitted.calibration, k), fitted

    def _best_k(self, attention: Attention, left_out: LeaveOneOutBatch) -> int:
        """The K with the lowest leave-one-out log-loss on a part of the rows."""
        if self.settings.calibration is None or not attention.chooses_n_neighbors:
            return self.k
        most = min(ROWS_TO_CHOOSE_K, max(1, MAX_PAIRS // self.k))
        part = sample_rows(len(left_out), len(self.counts), self.generator, most)
        calibration_batch = left_out.part(part).calibration_batch(attention)
        by_prior = -np.log(
            calibration_batch.prior[np.arange(len(calibration_batch.own)), calibration_batch.own]
        ).mean()
        noise: LabelNoise | None = None if self.settings.label_noise is None else "symmetric"
        losses: dict[int, float] = {}
        fitted = None
        for k in track(_halvings(self.k), "Choosing the number of neighbors"):
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
                fitted = None  # the prior has all weight: no gradient leads away from such a start
        return best_k

    def fit_at(
        self, attention: Attention, left_out: LeaveOneOutBatch, k: int | None = None
    ) -> CalibrationFit:
        """Fit temperature, prior score, probability map and label noise with K neighbors."""
        k = self.k if k is None else k
        part = self._sample(len(left_out))
        calibration_batch = left_out.part(part).nearest(k).calibration_batch(attention)
        fixed, fits_map = _fixed(attention), self.settings.calibration == "auto"
        if self.settings.calibration is None:
            return heuristic_fit(calibration_batch, fixed)
        noise = self.settings.label_noise
        nearest = calibration_batch.nearest(MAX_NEIGHBORS_FOR_NOISE)
        fitted = fit(nearest, label_noise=noise, fits_map=fits_map, fixed=fixed)
        if k <= MAX_NEIGHBORS_FOR_NOISE and fitted.calibration.no_estimate != UNCERTAIN:
            return fitted
        seen = self._noise_by_few(fitted.calibration, left_out.part(part))
        return fit_given_noise(seen, calibration_batch, fits_map=fits_map, fixed=fixed)

    def _noise_by_few(self, seen: Calibration, left_out: LeaveOneOutBatch) -> Calibration:
        """The label noise of a fit, or where that is uncertain, what the nearest neighbors show.

        In a region of one class all smooth votes are alike, which a fixed share of wrong labels
        explains as well as ambiguous rows. Votes of few neighbors differ; with noise they are
        equally often right. Ambiguous rows can look like that, too, but with a larger error.
        """
        if seen.no_estimate != UNCERTAIN:
            return seen
        nearest = left_out.nearest(FEW_NEIGHBORS).calibration_batch(DistanceAttention())
        found = fit(nearest).calibration
        return seen if found.no_estimate or found.noise_error > MAX_ERROR_BY_FEW else found

    def _first_look(self, left_out: LeaveOneOutBatch, distance: FittedModel, k: int) -> Attention:
        """Distance attention over K neighbors: where learning starts from."""
        if distance.n_neighbors == k:
            return distance.attention
        attention = DistanceAttention()
        _apply(self.fit_at(attention, left_out, k), attention)
        return attention

    def _split(
        self, left_out: LeaveOneOutBatch, attention: Any
    ) -> tuple[LeaveOneOutBatch, Booleans]:
        """Which rows are trained on, and of the others as many as a few scalars need."""
        if self.known_held_out is not None:
            is_trained_on = ~self.known_held_out[left_out.rows]
        else:
            is_trained_on = trained_rows(
                left_out.own, left_out.groups, attention.holdout, attention.max_rows, self.generator
            )
        held_out = np.flatnonzero(~is_trained_on)
        held_out = held_out[sample_rows(len(held_out), len(self.counts), self.generator)]
        rows = np.sort(np.concatenate([np.flatnonzero(is_trained_on), held_out]))
        return left_out.part(rows), is_trained_on[rows]

    def _train(
        self,
        attention: Any,
        left_out: LeaveOneOutBatch,
        first_look: Attention,
        by_distance: CalibrationFit,
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
            start=self.settings.start,
            verbose=self.settings.verbose,
        )
        if outcome.was_interrupted:
            warnings.warn("Training was stopped by hand; the best so far was kept.", stacklevel=2)
        return outcome.was_interrupted

    def _calibrate(
        self, attention: Attention, held_out: LeaveOneOutBatch, by_distance: CalibrationFit
    ) -> CalibrationFit:
        """Fit the scalars of learned attention on held-out rows.

        Whether there is noise at all was decided on all rows by distance attention; how much of it
        is left is decided here, if the held-out rows are enough.
        """
        calibration_batch = held_out.calibration_batch(attention)
        if self.settings.calibration is None:
            return identity_fit(calibration_batch)
        noise, seen = self.settings.label_noise, by_distance.calibration
        settings: dict[str, Any] = {
            "fits_map": self.settings.calibration == "auto",
            "start": (1.0, 0.0),
        }
        fitted = None
        if noise != "auto" or seen.has_noise:
            nearest = calibration_batch.nearest(MAX_NEIGHBORS_TO_LEARN)
            fitted = fit(nearest, label_noise=noise, **settings)
        if fitted is None or fitted.calibration.no_estimate == UNCERTAIN:
            fitted = fit_given_noise(seen, calibration_batch, **settings)
        elif calibration_batch.labels.shape[1] > MAX_NEIGHBORS_TO_LEARN:
            fitted = fit_given_noise(fitted.calibration, calibration_batch, **settings)
        _apply(fitted, attention)
        return fitted

    def model_of(
        self,
        attention: Attention | DirectAttention,
        calibration: Calibration,
        k: int,
        trust: Trust | None = None,
    ) -> FittedModel:
        if k >= len(self.memory) - 1:
            k = self.settings.n_neighbors  # all entries vote now; a growing memory uses the K asked
        return FittedModel(
            self.encoder,
            self.memory,
            attention,
            calibration,
            k,
            self.classes,
            stored_trust=None if trust is None else trust.of_entries,
        )

    def _fit_of(
        self,
        model: FittedModel,
        left_out: LeaveOneOutBatch,
        reason: str,
        held_out: Booleans | None = None,
    ) -> Fit:
        if held_out is None:
            held_out = self.known_held_out
        if held_out is None:
            held_out = np.ones(len(self.memory), dtype=bool)
        return Fit(model, held_out, left_out, reason)


class DirectFitting:
    """The `DirectFit` that an attention receives in `fit_entries`."""

    def __init__(self, fitting: Fitting, random_state: int) -> None:
        self._fitting, self.random_state, self.memory = fitting, random_state, fitting.memory
        self._seeds = np.random.default_rng(random_state)
        width = fitting.memory.vectors.width
        encoder = fitting.encoder
        blocks = getattr(encoder, "blocks_", {})
        if max((stop for _, stop in blocks.values()), default=0) == width:
            self.blocks, self.score_blocks = blocks, encoder.score_blocks_
        else:  # one block, or another space
            self.blocks = {ALL: (0, width)}
            self.score_blocks = frozenset([ALL] if encoder.is_cross_fitted else [])
        self.held_out = fitting.known_held_out  # (N,) by all that was fitted; None is all
        self.fits: dict[str, Fit] = {}  # of attentions that search, by name

    def fit_head(self, head: Any, memory: Memory | None = None, *, are_scores: bool = False) -> int:
        """Fit another attention to the entries; returns the number of neighbors it uses."""
        fitting = self._fitting
        if memory is not None:
            settings = fitting.settings
            if are_scores and settings.n_neighbors_of_scores is not None:
                settings = replace(settings, n_neighbors=settings.n_neighbors_of_scores)
            if settings.calibration and isinstance(head, ClassScoreAttention):
                # The map would not be kept, and votes that are mixed must be calibrated without it.
                settings = replace(settings, calibration="scores")
            arguments = fitting.encoder, memory, fitting.classes, settings
            fitting = Fitting(*arguments, fitting.known_held_out)
        if head.fitted_by == "entries":
            problem = DirectFitting(fitting, int(self._seeds.integers(2**31)))
            head.fit_entries(problem)
            head.prior_score_ = -np.inf
            self._hold_out(problem.held_out)
            return 1
        fitted = self.fits[head.registered_name] = fitting.searching(head)
        self._hold_out(fitted.held_out)
        return fitted.model.n_neighbors

    def _hold_out(self, held_out: Booleans | None) -> None:
        if held_out is not None and not held_out.all():
            self.held_out = held_out & (True if self.held_out is None else self.held_out)

    def left_out(self) -> LeaveOneOutBatch:
        """A sample of the entries that are held out, with their neighbors."""
        return self._fitting.left_out(self.held_out)

    def fit_mixing(self, attention: DirectAttention, shares_of: Any) -> Floats:
        """Weights (H,) of votes in their mixture, by the likelihood of leave-one-out rows."""
        left_out, fitting = self.left_out(), self._fitting
        model = fitting.model_of(attention, Calibration(), fitting.k)
        shares = shares_of(model, left_out.rows)
        if fitting.settings.calibration is None or len(fitting.memory) < 2:
            return fit_mixing(shares, left_out.own, left_out.prior)
        return fitting.mixed(attention, shares, left_out)[0]


class _ScalarFit:
    """The `ScalarFit` that an attention receives in `fit_parameters`."""

    def __init__(self, fitting: Fitting, attention: Attention, left_out: LeaveOneOutBatch) -> None:
        self._fitting, self._attention, self._left_out = fitting, attention, left_out
        self.batch, self.labels, self.prior = left_out.batch, left_out.own, left_out.prior

    def sample(self, n_rows: int, n_neighbors: int) -> _ScalarFit:
        """A random part of the rows, with fewer neighbors."""
        fitting = self._fitting
        part = sample_rows(len(self._left_out), len(fitting.counts), fitting.generator, n_rows)
        return _ScalarFit(fitting, self._attention, self._left_out.part(part).nearest(n_neighbors))

    def fit_scalars(self) -> CalibrationFit:
        """Fit temperature, prior score and probability map, without label noise."""
        batch = self._left_out.calibration_batch(self._attention)
        fits_map = self._fitting.settings.calibration == "auto"
        return fit(batch, label_noise=None, fits_map=fits_map, fixed=_fixed(self._attention))

    def set_scalars(self) -> None:
        """Fit temperature and prior score on all rows and set them on the attention."""
        _apply(self._fitting.fit_at(self._attention, self._left_out), self._attention)

    def is_better(self, simple: CalibrationFit, rich: CalibrationFit) -> bool:
        """Whether the fit `rich` is better than `simple` beyond chance."""
        return is_significantly_better(simple, rich)


def _halvings(k: int) -> list[int]:
    """K, half of it, and so on down to a few: how many neighbors are worth a try."""
    sizes = [k]
    while sizes[-1] // 2 >= MIN_NEIGHBORS:
        sizes.append(sizes[-1] // 2)
    return sizes


def _fixed(attention: Attention | DirectAttention) -> dict[str, float]:
    """What the user set by hand and calibration must leave alone."""
    chosen = {
        "temperature": getattr(attention, "temperature", None),
        "prior_score": getattr(attention, "prior_score", None),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _apply(fitted: CalibrationFit, attention: Attention) -> None:
    attention.temperature_ = fitted.temperature
    attention.prior_score_ = fitted.prior_score


@dataclass(frozen=True)
class _Comparison:
    """Learned against distance attention on rows that neither learned from."""

    gain: Gain
    words: str

    @property
    def is_better(self) -> bool:
        return self.gain.mean > STANDARD_ERRORS * self.gain.error

    @classmethod
    def of(
        cls, gains: Floats, groups: Integers, learned: CalibrationFit, was_interrupted: bool
    ) -> _Comparison:
        gain = Gain.of(gains, groups)
        words = (
            f"log-loss on {len(gains)} held-out rows is {learned.loss + gain.mean:.4f} by distance "
            f"and {learned.loss:.4f} learned ({gain})"
        )
        if was_interrupted:
            words += "; training was stopped by hand, the best so far was kept"
        return cls(gain, words)
