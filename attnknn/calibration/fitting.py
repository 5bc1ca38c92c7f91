"""Fits temperatures, the prior's score, the map and the label noise on held-out rows.

The map takes shares to probabilities, p_c ∝ share_c^exponent, and keeps their order. The observed
label of a row is its true one with probability 1 − ε and another one otherwise: what is fitted is
the likelihood of the observed labels, what is answered is the probability of the true one.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from attnknn.calibration.likelihood import (
    TINY,
    Calibration,
    CalibrationBatch,
    Fitted,
    Free,
    Likelihood,
    most_noise,
)
from attnknn.records import Floats, Integers

LabelNoise = Literal["auto", "symmetric", "by_class"]
LEAST_NOISE = 0.03  # below this the prior does the smoothing, and modelling noise costs log-loss
BEYOND_NOISE = 2.0  # standard errors by which a richer model must be better
LEAST_GAIN = 2.0  # of log-likelihood in all: half the square that chance exceeds in 1 of 20 fits
MOST_ROWS = 10_000  # a few scalars need no more
ROWS_TO_START = 1_000  # rows on which starts are tried
MOST_CELLS = 2_000_000  # rows × classes held at once
MOST_NEIGHBORS_TO_SEE_NOISE = 64  # more of them smooth wrong labels away
HALVINGS = 30  # of the range that a maximum is looked for in


def sample_of(
    n_rows: int, n_classes: int, generator: np.random.Generator, most: int | None = None
) -> Integers:
    """Rows to fit on: all, or `most` of them (by default what a few scalars need)."""
    if most is None:
        most = min(MOST_ROWS, max(1000, MOST_CELLS // max(n_classes, 1)))
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(generator.choice(n_rows, most, replace=False))


def fit(
    batch: CalibrationBatch,
    *,
    label_noise: LabelNoise | None = "auto",
    fits_map: bool = True,
    start: tuple[float, float] | Fitted | None = None,
    fixed: dict[str, float] | None = None,
) -> Fitted:
    """Fit temperature, prior's score, exponent and noise; richer models must earn their place.

    Parameters
    ----------
    label_noise : None leaves noise out; 'auto' keeps symmetric noise only where the likelihood
        asks for it beyond the noise; 'symmetric' and 'by_class' keep it always
    start : temperature and prior's score, or an earlier fit, to start from; None finds a start
    fixed : 'temperature' or 'prior_score' that the user has set
    """
    if batch.prior.shape[1] < 2:
        label_noise = None  # with one class no label can be wrong
    problem = Likelihood(batch, fixed or {})
    if label_noise == "symmetric" and isinstance(start, Fitted):
        return problem.solve(Free(exponent=fits_map, noise=True), start)
    kept = problem.solve(Free(), start or _best_start(batch, fixed or {}))
    richer = kept
    if fits_map:
        richer = problem.solve(Free(exponent=True), kept)
        kept = richer if is_better(kept, richer) else kept
    if label_noise is None:
        return kept
    noisy = problem.solve(Free(exponent=fits_map, noise=True), richer)
    if label_noise == "by_class":
        return _fit_by_class(problem, noisy, fits_map)
    is_earned = noisy.calibration.label_noise >= LEAST_NOISE and is_better(richer, noisy)
    return noisy if is_earned or label_noise == "symmetric" else kept


def fit_under(
    noise: Calibration,
    batch: CalibrationBatch,
    *,
    fits_map: bool = True,
    fixed: dict[str, float] | None = None,
) -> Fitted:
    """Fit temperature, prior's score and exponent under label noise that is known already."""
    fixed = fixed or {}
    problem = Likelihood(batch, fixed | {"label_noise": noise.label_noise})
    free = Free(exponent=fits_map, noise=True)
    return problem.solve(free, _best_start(batch, fixed), noise.transition)


def confusions_now(calibration: Calibration, probabilities: Floats, own: Integers) -> Floats | None:
    """Chance (C, C) of each label of these rows (column) for each true one (row); None: no noise.

    Noise was estimated in a fit, and edits since may have corrected labels or brought wrong ones.
    The confusions keep their kind and get the strength that makes the labels most likely:
    T(s) = 1 + s (T − 1) for the T that was fitted, with s = 1 where nothing has changed. The map of
    the fit is too sharp for votes of corrected neighbors, so the probabilities may be blunted or
    sharpened by an exponent of their own, fitted along.

    Parameters
    ----------
    probabilities : (n, C) of the true labels of held-out rows, judged by the others
    own : (n,) their labels now

    >>> sure = np.array([[0.99, 0.01], [0.01, 0.99]])
    >>> confusions_now(Calibration(label_noise=0.25), sure, np.array([0, 1]))
    array([[1., 0.],
           [0., 1.]])
    """
    from scipy.optimize import minimize_scalar

    fitted = calibration.confusions(probabilities.shape[1])
    if fitted is None:
        return None

    def strength_at(log_exponent: float) -> tuple[float, float]:
        sharpened = Calibration(math.exp(log_exponent)).probabilities(probabilities)
        return _most_likely_strength(sharpened, own, fitted)

    best = minimize_scalar(lambda x: -strength_at(x)[1], bounds=(-1.5, 1.5), method="bounded").x
    nothing = np.eye(len(fitted))
    return nothing + strength_at(float(best))[0] * (fitted - nothing)


def _most_likely_strength(
    probabilities: Floats, own: Integers, fitted: Floats
) -> tuple[float, float]:
    """The s where Σ log((1 − s) p + s (p T)) of the labels is largest, and that sum.

    Its slope in s only falls, so the range is halved by its sign.
    """
    chance = np.maximum(probabilities[np.arange(len(own)), own], TINY)
    change = np.einsum("nc,cn->n", probabilities, fitted[:, own]) - chance
    most_wrong = float((1 - fitted.diagonal()).max())
    low, high = 0.0, max(1.0, most_noise(max(len(fitted) - 1, 1)) / max(most_wrong, TINY))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rises = (change / np.maximum(chance + middle * change, TINY)).sum() > 0
        low, high = (middle, high) if rises else (low, middle)
    strength = round(low, 6)
    return strength, float(np.log(np.maximum(chance + strength * change, TINY)).sum())


def as_it_is(batch: CalibrationBatch) -> Fitted:
    """No fit: scores that are trained already, with no map and no noise."""
    shares = Likelihood(batch, {}).shares(1.0, 0.0)
    return Fitted(1.0, 0.0, Calibration(), Calibration().losses(shares, batch.own))


def rule_of_thumb(batch: CalibrationBatch, fixed: dict[str, float]) -> Fitted:
    """Scalars without a fit: a temperature of a fifth of the typical score, a faint prior."""
    temperature, prior_score = _starts(batch)[1]
    temperature = fixed.get("temperature", temperature)
    prior_score = fixed.get("prior_score", prior_score)
    return Fitted(temperature, prior_score, Calibration(), np.zeros(0))


def is_better(simple: Fitted, rich: Fitted) -> bool:
    """Whether a richer model pays: beyond what rows scatter, and beyond what a parameter may gain.

    Where all rows gain nearly the same they hardly scatter, and the first alone would take a gain
    that any parameter has by chance.
    """
    gains = simple.losses - rich.losses
    error = gains.std() / math.sqrt(max(len(gains), 1))
    return bool(gains.mean() > BEYOND_NOISE * error and gains.sum() > LEAST_GAIN)


def _best_start(batch: CalibrationBatch, fixed: dict[str, float]) -> Fitted:
    """The best of several starts on a part of the rows: the loss has flat and steep valleys."""
    step = max(1, len(batch.own) // ROWS_TO_START)
    problem = Likelihood(batch.rows(slice(None, None, step)), fixed)
    return min((problem.solve(Free(), start) for start in _starts(batch)), key=lambda f: f.loss)


def _starts(batch: CalibrationBatch) -> list[tuple[float, float]]:
    """Temperatures at three shares of the typical score, the prior level with a far neighbor."""
    scores = -batch.scores.neighbors[batch.has_say]
    typical = float(scores.mean()) if scores.size else 1.0
    typical = typical if np.isfinite(typical) and typical > 0 else 1.0
    return [(typical * share, -1.0 / share) for share in (0.05, 0.2, 1.0)]


def _fit_by_class(problem: Likelihood, noisy: Fitted, fits_map: bool) -> Fitted:
    """Alternate between the chances of each confusion and the scalars."""
    n_classes = problem.n_others + 1
    noise = max(noisy.calibration.label_noise, LEAST_NOISE)
    symmetric = np.full((n_classes, n_classes), noise / problem.n_others)
    np.fill_diagonal(symmetric, 1 - noise)
    fitted, transition = noisy, symmetric
    for _ in range(4):
        transition = _expected_confusions(problem, fitted, transition, symmetric)
        fitted = problem.solve(Free(exponent=fits_map), fitted, transition)
    return fitted


def _expected_confusions(
    problem: Likelihood, fitted: Fitted, transition: Floats, symmetric: Floats
) -> Floats:
    """Twenty steps of expectation-maximization; each class starts with one symmetric example."""
    shares = problem.shares(fitted.temperature, fitted.prior_score)
    probabilities = fitted.calibration.probabilities(shares)
    own = problem.batch.own
    for _ in range(20):
        blame = probabilities * transition.T[own]  # (B, C): who may have been behind this label
        blame /= blame.sum(axis=1, keepdims=True)
        counts = symmetric.copy()
        np.add.at(counts.T, own, blame)
        transition = counts / counts.sum(axis=1, keepdims=True)
    return transition
