"""Fit temperature, prior score, probability map and label noise by maximum likelihood.

The probability map turns vote shares into probabilities, p_c ∝ share_c^γ, and keeps their order.
The observed label of a row is its true one with probability 1 − ε, and another one otherwise. The
likelihood of the observed labels is maximized; predictions are probabilities of the true label.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from attnknn.calibration.likelihood import (
    CalibrationBatch,
    CalibrationFit,
    Free,
    Likelihood,
    max_noise,
)
from attnknn.calibration.probability_map import TINY, Calibration
from attnknn.records import Floats, Integers

LabelNoise = Literal["auto", "symmetric", "by_class"]
MIN_NOISE = 0.03  # below, the prior smooths enough, and a noise model raises the log-loss
MAX_NOISE_ERROR = 0.05  # with a larger standard error label noise is not estimable
NOISE_STEP = 0.03  # by which label noise is moved to see how fast the likelihood falls
N_STANDARD_ERRORS = 2.0  # by which a richer model must be better
MIN_GAIN = 2.0  # of total log-likelihood; a likelihood-ratio test at 5 % requires 1.92
MIN_GAIN_BY_NOISE = 4.8  # at 0.1 %: noise that is not there makes predictions overconfident
MAX_ROWS = 10_000  # a few scalars need no more
ROWS_TO_START = 1_000  # rows on which starting points are compared
MAX_CELLS = 2_000_000  # rows × classes held at once
MAX_NEIGHBORS_FOR_NOISE = 64  # more of them average wrong labels away
FEW_NEIGHBORS = 16  # whose votes differ enough to show wrong labels in regions of one class
MAX_ERROR_BY_FEW = 0.03  # above, few neighbors often take ambiguous rows for wrong labels
N_BISECTIONS = 30

ONE_CLASS = "not estimable: there is one class"
UNCERTAIN = "not estimable: wrong labels and ambiguous rows explain these labels equally well"
NOT_MODELED = "not modeled: label_noise=None"
UNFITTED = Calibration(no_estimate="not estimated: nothing is calibrated")


def sample_rows(
    n_rows: int, n_classes: int, generator: np.random.Generator, most: int | None = None
) -> Integers:
    """Positions of the rows to fit on: all, or a random sample of at most `most`."""
    if most is None:
        most = min(MAX_ROWS, max(1000, MAX_CELLS // max(n_classes, 1)))
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(generator.choice(n_rows, most, replace=False))


def fit(
    batch: CalibrationBatch,
    *,
    label_noise: LabelNoise | None = "auto",
    fits_map: bool = True,
    is_map_needed: bool = False,
    start: tuple[float, float] | CalibrationFit | None = None,
    fixed: dict[str, float] | None = None,
) -> CalibrationFit:
    """Fit temperature, prior score, exponent and label noise by maximum likelihood.

    The weights of the vote are a softmax over the neighbors' scores divided by the *temperature*,
    and the *prior score*, the score of a prior that votes for each class by its frequency. The
    probability of a class is proportional to its share in the vote to the power of the *exponent*
    γ. *Label noise* is the probability that an observed label is not the true one.

    Temperature and prior score are always fitted. The exponent is kept only if it is significantly
    better: the mean reduction of the log-loss per row must exceed two standard errors, and the
    total log-likelihood must rise by more than 2 (a likelihood-ratio test at 5 % requires 1.92).
    The label noise of "auto" is kept if the total log-likelihood rises by more than 4.8 (a test at
    0.1 %) and the noise is at least 3 %. Its standard error is that of the profile likelihood.
    Above 0.05, noise is not estimable: ambiguous rows explain the labels equally well.

    Parameters
    ----------
    batch : CalibrationBatch
        Held-out rows with the scores of their neighbors.
    label_noise : {"auto", "symmetric", "by_class"} or None, default="auto"
        Model of label noise. "symmetric" confuses all classes alike, "by_class" has a probability
        for each pair of classes, "auto" is "symmetric" if noise is found and no noise otherwise,
        and None is no noise.
    fits_map : bool, default=True
        Whether to fit the exponent of the probability map.
    is_map_needed : bool, default=False
        Keep the exponent even if it is not significantly better, as for means of several votes,
        which are underconfident.
    start : tuple of (temperature, prior score) or CalibrationFit, default=None
        Starting point of the optimization; None searches for one.
    fixed : dict, default=None
        Values to hold fixed, by name: "temperature", "prior_score" or both.

    Returns
    -------
    CalibrationFit
        The fitted values, and the log-loss of the observed label of each row.

    Examples
    --------
    Every fifth observed label is wrong, however clear the vote of its three neighbors is:

    >>> from attnknn.attention.base import Scores
    >>> rows = np.arange(800)
    >>> true = rows % 2
    >>> neighbors = np.repeat(true[:, None], 3, axis=1)
    >>> neighbors[::4, 2] = 1 - neighbors[::4, 2]  # two to one in every fourth row
    >>> batch = CalibrationBatch(
    ...     scores=Scores(-np.ones((800, 1, 3)), np.zeros((800, 1))),
    ...     log_sample_weight=np.zeros((800, 3)),
    ...     labels=neighbors,
    ...     mask=np.ones((800, 3), bool),
    ...     own=np.where(rows % 5 == 0, 1 - true, true),
    ...     prior=np.full((800, 2), 0.5))
    >>> fit(batch).calibration.noise_words
    '0.190 ± 0.015'
    >>> fit(batch, label_noise=None).calibration.label_noise
    0.0
    """
    has_classes = batch.prior.shape[1] > 1
    problem = Likelihood(batch, fixed or {})
    free = Free(exponent=fits_map, noise=True)
    if has_classes and label_noise == "symmetric" and isinstance(start, CalibrationFit):
        return problem.solve(free, start)
    kept = problem.solve(Free(), start or _best_start(batch, fixed or {}))
    richer = kept
    if fits_map:
        richer = problem.solve(Free(exponent=True), kept)
        kept = richer if is_map_needed or is_significantly_better(kept, richer) else kept
    if label_noise is None or not has_classes:
        return kept.with_calibration(no_estimate=ONE_CLASS if label_noise else NOT_MODELED)
    noisy = problem.solve(free, richer)
    noise = noisy.calibration.label_noise
    is_significant = (richer.losses - noisy.losses).sum() > MIN_GAIN_BY_NOISE
    error = _noise_error(problem, noisy, free)
    if label_noise != "auto":
        error = error if is_significant else max(error, noise / 2)  # 0 is within two errors
    noisy = noisy.with_calibration(noise_error=error)
    if label_noise == "by_class":
        return _fit_by_class(problem, noisy, fits_map)
    if label_noise == "symmetric":
        return noisy
    if is_significant and noise >= MIN_NOISE and error <= MAX_NOISE_ERROR:
        return noisy
    return kept.with_noise_of(_none_found(noisy.calibration))


def _none_found(noisy: Calibration) -> Calibration:
    """No noise: either it is at most the given estimate plus two errors, or it is not estimable.

    >>> _none_found(Calibration(label_noise=0.02, noise_error=0.01)).noise_error
    0.02
    >>> _none_found(Calibration(label_noise=0.2, noise_error=0.1)).no_estimate[:13]
    'not estimable'
    """
    error = noisy.label_noise / 2 + noisy.noise_error
    if error > MAX_NOISE_ERROR:
        return Calibration(no_estimate=UNCERTAIN)
    return Calibration(noise_error=error)


def _noise_error(problem: Likelihood, noisy: CalibrationFit, free: Free) -> float:
    """Standard error of the noise, from the curvature of its profile likelihood.

    The other parameters are fitted again after a step up and a step down. A normal log-likelihood
    falls by step² / (2 error²) each time.
    """
    noise, most = noisy.calibration.label_noise, max_noise(problem.n_others)
    falls = []
    for held in (noise - NOISE_STEP, noise + NOISE_STEP):
        if 0 <= held <= most:
            moved = Likelihood(problem.batch, problem.fixed | {"label_noise": held})
            falls.append((moved.solve(free, noisy).losses - noisy.losses).sum())
    return min(NOISE_STEP / math.sqrt(2 * max(float(np.mean(falls)), TINY)), most)


def fit_given_noise(
    noise: Calibration,
    batch: CalibrationBatch,
    *,
    fits_map: bool = True,
    is_map_needed: bool = False,
    start: tuple[float, float] | None = None,
    fixed: dict[str, float] | None = None,
) -> CalibrationFit:
    """Fit temperature, prior score and exponent for label noise that is known, also to be none."""
    fixed = fixed or {}
    if noise.has_noise:
        problem = Likelihood(batch, fixed | {"label_noise": noise.label_noise})
        free = Free(exponent=fits_map, noise=True)
        fitted = problem.solve(free, start or _best_start(batch, fixed), noise.transition)
    else:
        fitted = fit(
            batch,
            label_noise=None,
            fits_map=fits_map,
            is_map_needed=is_map_needed,
            start=start,
            fixed=fixed,
        )
    return fitted.with_noise_of(noise)


def estimate_confusions(
    calibration: Calibration, probabilities: Floats, own: Integers
) -> Floats | None:
    """Probability (C, C) of each current label (column) for each true one (row); None: no noise.

    Edits since the fit may have corrected labels or added wrong ones. The fitted confusions T are
    scaled to the strength s that maximizes the likelihood of the current labels:
    T(s) = 1 + s (T − 1), with s = 1 if nothing has changed. The probability map of the fit is too
    sharp for votes of corrected neighbors, so an exponent for the probabilities is fitted along.

    `probabilities` (n, C): leave-one-out probabilities of the true labels of held-out rows; `own`
    (n,): their current labels.

    >>> sure = np.array([[0.99, 0.01], [0.01, 0.99]])
    >>> estimate_confusions(Calibration(label_noise=0.25), sure, np.array([0, 1]))
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
    """The s that maximizes Σ log((1 − s) p + s (p T)) of the labels, and that sum.

    The sum is concave in s, so the sign of its slope is enough for a bisection.
    """
    chance = np.maximum(probabilities[np.arange(len(own)), own], TINY)
    change = np.einsum("nc,cn->n", probabilities, fitted[:, own]) - chance
    most_wrong = float((1 - fitted.diagonal()).max())
    low, high = 0.0, max(1.0, max_noise(max(len(fitted) - 1, 1)) / max(most_wrong, TINY))
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        rises = (change / np.maximum(chance + middle * change, TINY)).sum() > 0
        low, high = (middle, high) if rises else (low, middle)
    strength = round(low, 6)
    return strength, float(np.log(np.maximum(chance + strength * change, TINY)).sum())


def identity_fit(batch: CalibrationBatch) -> CalibrationFit:
    """Keep scores that are trained already: no probability map, no noise."""
    shares = Likelihood(batch, {}).shares(1.0, 0.0)
    return CalibrationFit(1.0, 0.0, UNFITTED, UNFITTED.losses(shares, batch.own))


def heuristic_fit(batch: CalibrationBatch, fixed: dict[str, float]) -> CalibrationFit:
    """Scalars without a fit: a temperature of a fifth of the typical score, and a weak prior."""
    temperature, prior_score = _starts(batch)[1]
    temperature = fixed.get("temperature", temperature)
    prior_score = fixed.get("prior_score", prior_score)
    return CalibrationFit(temperature, prior_score, UNFITTED, np.zeros(0))


def is_significantly_better(simple: CalibrationFit, rich: CalibrationFit) -> bool:
    """Whether a richer model is significantly better, by its mean gain and by its total gain.

    If all rows gain nearly the same, the standard error is tiny, and the mean alone would accept a
    gain that any further parameter has by chance.
    """
    gains = simple.losses - rich.losses
    error = gains.std() / math.sqrt(max(len(gains), 1))
    return bool(gains.mean() > N_STANDARD_ERRORS * error and gains.sum() > MIN_GAIN)


def _best_start(batch: CalibrationBatch, fixed: dict[str, float]) -> CalibrationFit:
    """The best of several starting points on some of the rows, since the loss is not convex."""
    step = max(1, len(batch.own) // ROWS_TO_START)
    problem = Likelihood(batch.rows(slice(None, None, step)), fixed)
    return min((problem.solve(Free(), start) for start in _starts(batch)), key=lambda f: f.loss)


def _starts(batch: CalibrationBatch) -> list[tuple[float, float]]:
    """Temperatures at three shares of the typical score; the prior scores like a far neighbor."""
    scores = -batch.scores.neighbors[batch.has_weight]
    typical = float(scores.mean()) if scores.size else 1.0
    typical = typical if np.isfinite(typical) and typical > 0 else 1.0
    return [(typical * share, -1.0 / share) for share in (0.05, 0.2, 1.0)]


def _fit_by_class(problem: Likelihood, noisy: CalibrationFit, fits_map: bool) -> CalibrationFit:
    """Alternate between the confusion probabilities and the scalars."""
    n_classes = problem.n_others + 1
    noise = max(noisy.calibration.label_noise, MIN_NOISE)
    symmetric = np.full((n_classes, n_classes), noise / problem.n_others)
    np.fill_diagonal(symmetric, 1 - noise)
    fitted, transition = noisy, symmetric
    for _ in range(4):
        transition = _expected_confusions(problem, fitted, transition, symmetric)
        fitted = problem.solve(Free(exponent=fits_map), fitted, transition)
    return fitted.with_noise_of(noisy.calibration)


def _expected_confusions(
    problem: Likelihood, fitted: CalibrationFit, transition: Floats, symmetric: Floats
) -> Floats:
    """Twenty steps of expectation-maximization, with one symmetric pseudo-example per class."""
    shares = problem.shares(fitted.temperature, fitted.prior_score)
    probabilities = fitted.calibration.probabilities(shares)
    own = problem.batch.own
    for _ in range(20):
        posterior = probabilities * transition.T[own]  # (B, C): posterior of the true label
        posterior /= posterior.sum(axis=1, keepdims=True)
        counts = symmetric.copy()
        np.add.at(counts.T, own, posterior)
        transition = counts / counts.sum(axis=1, keepdims=True)
    return transition
