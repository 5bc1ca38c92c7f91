"""Prediction sets and decisions of a fitted model, calibrated by leave-one-out.

**Few held-out entries.** Temperature, prior score and K are fitted on the rows that calibrate the
sets, so these rows have slightly better scores than new rows. One row changes the fit by about
1 / n, so the loss of coverage is a constant divided by n, measured at less than 0.5
(`python -m experiments.small_coverage`). Thresholds are therefore set for a coverage that is higher
by 0.5 / (n + 1).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from attnknn._validation import Limits, check_at_least
from attnknn.conformal.coverage_spec import CoverageSpec, thresholds
from attnknn.conformal.decisions import (
    Decisions,
    confidence_for_risk,
    decide,
    novelty_p_values,
    novelty_p_values_of_entries,
)
from attnknn.conformal.jackknife import Jackknife
from attnknn.conformal.sets import PredictionSets, members
from attnknn.errors import InvalidSettingError
from attnknn.model import FittedModel, Queries
from attnknn.records import Booleans, Floats

METHODS = ("leave_one_out", "split", "jackknife+")
RISK = Limits(above=0, below=1, may_be_none=True)
CONFIDENCE = Limits(least=0, below=1, may_be_none=True)
NOVELTY = Limits(least=0, below=1)
ROWS_HIDDEN_BY_THE_FIT = 0.5  # see the module
FEW_ROWS = 1000  # from here on half a row is less than 0.05 % of coverage


def predict_sets(
    model: FittedModel, queries: Queries, spec: CoverageSpec, thresholds: Floats | None = None
) -> PredictionSets:
    """Prediction sets by thresholds (C,), by default those of the held-out entries."""
    method = "leave_one_out" if thresholds is None else "split"
    limits = leave_one_out_thresholds(model, spec) if thresholds is None else thresholds
    first = queries if isinstance(queries, np.ndarray) else queries[0]
    scores = spec.scores_of_queries(model.predict_proba(queries), first)
    inside = members(scores, limits)
    return PredictionSets(inside, model.classes, spec.coverage, spec.by_class, method, limits)


def predict_sets_by_jackknife(
    model: FittedModel, queries: Queries, spec: CoverageSpec
) -> PredictionSets:
    """Prediction sets by jackknife+, which predicts again without each held-out entry."""
    if not isinstance(queries, np.ndarray):
        raise InvalidSettingError(
            "`method='jackknife+'` asks about each row once, but this encoder averages "
            f"{len(queries)} views. Use `method='split'`, or an encoder with one view."
        )
    if model.direct_attention is not None:
        raise InvalidSettingError(
            "`method='jackknife+'` needs an attention that searches the memory, such as "
            f"'distance', got {type(model.attention).__name__}. Use `method='leave_one_out'` or "
            "'split'."
        )
    found = model.held_out_predictions(samples=not spec.by_class)
    spec.check_examples(found.own, model.classes)
    scores = spec.scores_of_examples(found.probabilities, model.memory.entries.ids[found.rows])
    own_scores = scores[np.arange(len(found)), found.own]
    jackknife = Jackknife(model, found, own_scores, spec.score, model.trust())
    uniform = spec.uniform_of_queries(queries)
    inside = jackknife.members(queries, spec.coverage, by_class=spec.by_class, uniform=uniform)
    return PredictionSets(inside, model.classes, spec.coverage, spec.by_class, "jackknife+", None)


def without_empty_sets(
    sets: PredictionSets, model: FittedModel, queries: Queries
) -> PredictionSets:
    """The sets of `queries`, with the most probable class in those that were empty."""
    empty = np.flatnonzero(sets.sizes == 0)
    if not len(empty):
        return sets
    inside = sets.members.copy()
    inside[empty, model.predict_proba(queries)[empty].argmax(axis=1)] = True
    return replace(sets, members=inside)


def leave_one_out_thresholds(model: FittedModel, spec: CoverageSpec) -> Floats:
    """Thresholds (C,) by leave-one-out predictions of the held-out entries."""

    def compute() -> Floats:
        held_out = _held_out_among_all(model) if spec.by_class else None
        found = model.held_out_predictions(
            samples=not spec.by_class, includes_trained=held_out is not None
        )
        scores = spec.scores_of_examples(found.probabilities, model.memory.entries.ids[found.rows])
        noise = model.confusions()
        asked = spec.thresholds(scores, found.own, model.classes, noise, held_out)
        n_held_out = len(found) if held_out is None else int(held_out.sum())
        if n_held_out >= FEW_ROWS:
            return asked
        raised = thresholds(
            scores,
            found.own,
            spec.coverage + ROWS_HIDDEN_BY_THE_FIT / (n_held_out + 1),
            by_class=spec.by_class,
            confusions=noise,
            held_out=held_out,
        )
        return np.where(np.isfinite(raised), raised, asked)  # infinite: too few rows to raise it

    return model.cached(spec, compute)


def _held_out_among_all(model: FittedModel) -> Booleans | None:
    """Which entries (N,) are held out, if the others can help to estimate thresholds by class.

    An encoder moves the rows that it was trained on toward their classes: those cannot help.
    """
    held_out = model.memory.entries.held_out
    return None if held_out.all() or model.has_trained_encoder else held_out


def decide_queries(
    model: FittedModel,
    queries: Queries,
    *,
    max_risk: float | None,
    min_confidence: float | None,
    novelty_level: float,
    n_nearest: int,
) -> Decisions:
    """Labels for queries of sufficient confidence and low novelty, reasons for the others."""
    for name, value, limits in (
        ("max_risk", max_risk, RISK),
        ("min_confidence", min_confidence, CONFIDENCE),
        ("novelty_level", novelty_level, NOVELTY),
    ):
        if not limits.allow(value):
            raise InvalidSettingError(f"`{name}` must be {limits}, got {value!r}.")
    if check_at_least("n_nearest", n_nearest, 1) > model.n_neighbors:
        raise InvalidSettingError(
            f"`n_nearest` must be at most `n_neighbors_` ({model.n_neighbors}), got {n_nearest}."
        )
    threshold = 0.0 if min_confidence is None else float(min_confidence)
    if max_risk is not None:
        threshold = max(threshold, _min_confidence(model, max_risk, novelty_level, n_nearest))
    known = model.held_out_predictions().nearest(n_nearest)
    _warn_if_novelty_is_undetectable(novelty_level, len(known))
    probabilities, nearest = model.predict_with_distance(queries, n_nearest)
    return decide(
        probabilities,
        novelty_p_values(nearest, known),
        model.classes,
        min_confidence=threshold,
        novelty_level=novelty_level,
    )


def _min_confidence(
    model: FittedModel, max_risk: float, novelty_level: float, n_nearest: int
) -> float:
    """The confidence that bounds the risk, among held-out entries that are not novel."""

    def compute() -> float:
        found = model.held_out_predictions()
        is_known = novelty_p_values_of_entries(found.nearest(n_nearest)) > novelty_level
        return confidence_for_risk(found.part(is_known), max_risk, model.confusions())

    return model.cached(("confidence", max_risk, novelty_level, n_nearest), compute)


def _warn_if_novelty_is_undetectable(novelty_level: float, n_held_out: int) -> None:
    if 0 < novelty_level < 1 / (n_held_out + 1):
        warnings.warn(
            f"No row can be called novel at `novelty_level={novelty_level}` with {n_held_out} "
            f"held-out entries: at least {math.ceil(1 / novelty_level) - 1} are needed. Use 0, or "
            f"at least {1 / (n_held_out + 1):.2g}.",
            stacklevel=4,
        )
