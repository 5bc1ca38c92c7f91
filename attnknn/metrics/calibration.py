"""Calibration metrics: expected calibration error in several forms, and the Brier decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct, idct
from scipy.special import ndtr

from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.metrics.validation import check_inputs
from attnknn.records import Booleans, Floats, Integers

Bins = Literal["width", "mass"]
# Cells of the smooth error, into which 0..1 is cut; a kernel of a few cells is not resolved.
N_CELLS = 4096
MIN_WIDTH = 4 / N_CELLS
N_HALVINGS = 40


@dataclass(frozen=True)
class ReliabilityBins:
    """Confidence and accuracy by bin of confidence, as a reliability diagram shows them.

    Attributes
    ----------
    lower, upper : ndarray of shape (n_bins,)
        The bin holds lower ≤ confidence < upper, the last one also upper.
    counts : ndarray of shape (n_bins,)
        Rows in the bin; they sum to all rows.
    confidence : ndarray of shape (n_bins,)
        Mean confidence, NaN for an empty bin.
    accuracy : ndarray of shape (n_bins,)
        Share of right predictions, NaN for an empty bin.
    noise : ndarray of shape (n_bins,)
        Standard deviation of `accuracy` if the probabilities were perfectly calibrated,
        √Σ c(1−c) / count; NaN for an empty bin.

    Examples
    --------
    >>> len(reliability_bins([0, 1], [[0.9, 0.1], [0.2, 0.8]], n_bins=10).nonempty())
    2
    """

    lower: Floats
    upper: Floats
    counts: Integers
    confidence: Floats
    accuracy: Floats
    noise: Floats

    def nonempty(self) -> ReliabilityBins:
        """Drop the empty bins.

        Returns
        -------
        ReliabilityBins
            The bins with at least one row.
        """
        some = self.counts > 0
        return ReliabilityBins(*(values[some] for values in vars(self).values()))

    def __len__(self) -> int:
        return len(self.counts)


def ece(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    classes: Sequence[Any] | None = None,
) -> float:
    """Compute the expected calibration error Σ_b (n_b/n)·|accuracy_b − confidence_b|.

    The error is biased upward: sampling noise makes the gap of a bin positive even if the
    probabilities are perfect. `debiased_ece` removes the bias.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        True labels: integer codes from 0 in the order of the columns, or values of `classes`.
    probabilities : array-like of shape (n_rows, n_classes)
        Class probabilities.
    n_bins : int, default=15
        Number of bins. More bins resolve finer errors and have more noise.
    bins : {"width", "mass"}, default="width"
        "width" cuts 0..1 into bins of equal width, "mass" into bins with about as many rows each.
    classes : sequence, default=None
        Label of each column; None if `y_true` contains integer codes.

    Returns
    -------
    float
        Error between 0 and 1; lower is better.

    Examples
    --------
    >>> round(ece([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.3
    """
    found = reliability_bins(y_true, probabilities, n_bins=n_bins, bins=bins, classes=classes)
    return _mean_gap(found.nonempty())


def debiased_ece(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    bins: Bins = "mass",
    classes: Sequence[Any] | None = None,
) -> float:
    """Compute the expected calibration error without the part that is sampling noise.

    With σ_b = √Σ c(1−c)/n_b, the noise of bin b, and F(δ, σ) = E|N(δ, σ²)|, the mean observed gap
    for a true gap δ:

    - S = Σ_b (n_b/n)·|accuracy_b − confidence_b|, the plain error, in bins of equal mass;
    - δ = max(0, S − Σ_b (n_b/n)·F(0, σ_b)), where F(0, σ) = σ·√(2/π): the noise of perfect
      probabilities is subtracted, which is too much wherever the true gap exceeds the noise; so
    - result = max(0, S − Σ_b (n_b/n)·(F(δ, σ_b) − δ)): the noise that remains at a gap of δ.

    Its mean is near 0 for perfect probabilities and tends to the true error with more rows. With
    few rows and true gaps about as large as the noise it is too low, by up to a third of σ (the
    first step alone by up to 0.8 σ): report the number of rows with it. The Gaussian approximates
    the binomial as in Kumar et al. 2019 (*Verified uncertainty calibration*, section 5) and Roelofs
    et al. 2022 (*Mitigating bias in calibration error estimation*).

    Parameters
    ----------
    y_true, probabilities, n_bins, bins, classes : array-like, array-like, int, str, sequence
        As in `ece`, with bins of equal mass by default.

    Returns
    -------
    float
        Error between 0 and 1; lower is better.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, 2000)
    >>> y = (rng.uniform(size=2000) > confidence).astype(int)  # perfectly calibrated
    >>> p = np.column_stack([confidence, 1 - confidence])
    >>> round(ece(y, p), 3), round(debiased_ece(y, p), 3)
    (0.013, 0.0)
    """
    found = reliability_bins(y_true, probabilities, n_bins=n_bins, bins=bins, classes=classes)
    found = found.nonempty()
    shares = found.counts / found.counts.sum()
    plain = _mean_gap(found)
    gap = max(0.0, plain - float(shares @ _observed_gap(0.0, found.noise)))
    return max(0.0, plain - float(shares @ (_observed_gap(gap, found.noise) - gap)))


def mce(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    classes: Sequence[Any] | None = None,
) -> float:
    """Compute the maximum calibration error max_b |accuracy_b − confidence_b|.

    The bin with the largest gap is often the one with the fewest rows: look at its count.

    Parameters
    ----------
    y_true, probabilities, n_bins, bins, classes : array-like, array-like, int, str, sequence
        As in `ece`.

    Returns
    -------
    float
        Error between 0 and 1; lower is better.

    Examples
    --------
    >>> round(mce([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.6
    """
    found = reliability_bins(y_true, probabilities, n_bins=n_bins, bins=bins, classes=classes)
    found = found.nonempty()
    return float(np.abs(found.accuracy - found.confidence).max())


def ece_by_class(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    classes: Sequence[Any] | None = None,
) -> Floats:
    """Compute the calibration error of the probabilities of each class.

    For each class, all rows are put into bins of equal width by the probability p of that class.
    The error is Σ_b (n_b/n)·|o_b − p_b|, with n_b the number of rows, p_b the mean probability and
    o_b the observed frequency of the class in bin b.

    Parameters
    ----------
    y_true, probabilities, n_bins, classes : array-like, array-like, int, sequence
        As in `ece`.

    Returns
    -------
    ndarray of shape (n_classes,)
        Errors between 0 and 1; lower is better. Their mean is the static calibration error.

    Examples
    --------
    >>> ece_by_class([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]).round(4)
    array([0.3, 0.3])
    """
    check_bins(n_bins)
    codes, table = check_inputs(y_true, probabilities, classes)
    edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    gaps = np.empty(table.shape[1])
    for column, predicted in enumerate(table.T):
        place = np.searchsorted(edges, predicted, side="right")
        gap = np.bincount(place, weights=(codes == column) - predicted, minlength=n_bins)
        gaps[column] = np.abs(gap).sum() / len(codes)
    return gaps


def reliability_bins(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    classes: Sequence[Any] | None = None,
) -> ReliabilityBins:
    """Compute confidence and accuracy by bin of confidence.

    Bins of equal mass keep rows of equal confidence together, so that there may be fewer of them
    and the order of the rows does not matter.

    Parameters
    ----------
    y_true, probabilities, n_bins, bins, classes : array-like, array-like, int, str, sequence
        As in `ece`.

    Returns
    -------
    ReliabilityBins
        One value per bin; every row falls into a bin.

    Examples
    --------
    >>> found = reliability_bins([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], n_bins=2)
    >>> found.counts.tolist(), found.accuracy.round(3).tolist()
    ([0, 3], [nan, 0.667])
    """
    check_bins(n_bins)
    codes, table = check_inputs(y_true, probabilities, classes)
    return bins_of_confidence(table.max(axis=1), table.argmax(axis=1) == codes, n_bins, bins)


def smooth_ece(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Compute the smooth calibration error of confidences (Błasiok and Nakkiran 2023).

    With a Gaussian kernel K_σ reflected at 0 and 1, confidences c and correctness a (0 or 1),

        smECE_σ = ∫ |(1/n) Σᵢ K_σ(t, cᵢ)·(aᵢ − cᵢ)| dt,

    and the result is the σ for which smECE_σ = σ. It has no bins, is continuous in the
    probabilities, and is within a constant factor of the distance to perfect calibration. The
    kernel is at least 0.001 wide.

    Parameters
    ----------
    y_true, probabilities, classes : array-like, array-like, sequence
        As in `ece`.

    Returns
    -------
    float
        Error between 0 and 1; lower is better.

    Examples
    --------
    >>> round(smooth_ece([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 3)
    0.166
    """
    codes, table = check_inputs(y_true, probabilities, classes)
    confidence = table.max(axis=1)
    is_right = (table.argmax(axis=1) == codes).astype(np.float64)
    return _fixed_point(_sum_by_cell(confidence, is_right - confidence))


@dataclass(frozen=True)
class BrierParts:
    """The result of `brier_parts`: the Brier score in four parts.

    The Brier score is reliability − resolution + uncertainty + within. For each class, the rows are
    put into bins of equal width by the predicted probability of that class; the parts are averages
    over the rows and sums over the classes.

    Attributes
    ----------
    reliability : float
        Squared difference between the mean probability and the observed frequency of the class in
        a bin; lower is better.
    resolution : float
        Squared difference between the observed frequency of the class in a bin and its overall
        frequency; higher is better.
    uncertainty : float
        Brier score of always predicting the overall frequencies. It depends on the labels only.
    within : float
        Variance of the probabilities inside bins, minus twice their covariance with the labels. It
        is zero if all probabilities in a bin are equal.

    Examples
    --------
    >>> round(BrierParts(0.1, 0.2, 0.5, 0.0).brier, 3)
    0.4
    """

    reliability: float
    resolution: float
    uncertainty: float
    within: float

    @property
    def brier(self) -> float:
        """The Brier score."""
        return self.reliability - self.resolution + self.uncertainty + self.within


def brier_parts(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    classes: Sequence[Any] | None = None,
) -> BrierParts:
    """Decompose the Brier score (Murphy 1973; within bins, Stephenson et al. 2008).

    For each class, rows are put into bins of equal width by its predicted probability p. Let o be
    the overall frequency of the class, and n_b, p_b and o_b the number of rows, the mean
    probability and the observed frequency of the class in bin b:

    - reliability = Σ_b (n_b/n)·(p_b − o_b)², resolution = Σ_b (n_b/n)·(o_b − o)²,
    - uncertainty = o·(1 − o), within = mean of (p − p_b)² − 2·(p − p_b)·([true] − o_b).

    Parameters
    ----------
    y_true, probabilities, n_bins, classes : array-like, array-like, int, sequence
        As in `ece`.

    Returns
    -------
    BrierParts
        Four parts that sum to `brier`.

    Examples
    --------
    >>> parts = brier_parts([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> round(parts.reliability, 4), round(parts.uncertainty, 4), round(parts.brier, 4)
    (0.2733, 0.4444, 0.2733)
    """
    check_bins(n_bins)
    codes, table = check_inputs(y_true, probabilities, classes)
    parts = np.zeros(4)
    for column in range(table.shape[1]):
        parts += _brier_parts_of_class(
            table[:, column], (codes == column).astype(np.float64), n_bins
        )
    return BrierParts(*parts.tolist())


def bins_of_confidence(
    confidence: Floats, is_right: Booleans, n_bins: int = 15, bins: Bins = "width"
) -> ReliabilityBins:
    """`reliability_bins` from confidences (n,) and whether each prediction is right."""
    edges = _edges(confidence, n_bins, bins)
    place = np.searchsorted(edges[1:-1], confidence, side="right")
    counts = np.bincount(place, minlength=len(edges) - 1)
    correct = is_right.astype(np.float64)
    variance = _sums(place, confidence * (1 - confidence), counts)
    with np.errstate(invalid="ignore"):  # 0/0 of an empty bin is NaN
        return ReliabilityBins(
            lower=edges[:-1],
            upper=edges[1:],
            counts=counts,
            confidence=_sums(place, confidence, counts) / counts,
            accuracy=_sums(place, correct, counts) / counts,
            noise=np.sqrt(variance) / counts,
        )


def check_bins(n_bins: int) -> None:
    """Raise an error for less than one bin."""
    if n_bins < 1:
        raise InvalidSettingError(f"`n_bins` must be an integer of at least 1, got {n_bins}.")


def _mean_gap(found: ReliabilityBins) -> float:
    gaps = np.abs(found.accuracy - found.confidence)
    return float(found.counts @ gaps / found.counts.sum())


def _observed_gap(gap: float, noise: Floats) -> Floats:
    """E|N(gap, noise²)|: the mean of the folded normal distribution."""
    ratio = np.divide(gap, noise, out=np.full_like(noise, np.inf), where=noise > 0)
    return noise * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + gap * (1 - 2 * ndtr(-ratio))


def _edges(confidence: Floats, n_bins: int, bins: Bins) -> Floats:
    if bins == "width":
        return np.linspace(0.0, 1.0, n_bins + 1, dtype=np.float64)
    if bins != "mass":
        raise unknown_name("kind of bins", bins, ["width", "mass"])
    ordered: Floats = np.sort(confidence)
    cuts = ordered[np.arange(1, n_bins) * len(ordered) // n_bins]
    inner = np.unique(cuts[cuts > ordered[0]])  # a cut at the minimum would leave a bin empty
    return np.concatenate([ordered[:1], inner, ordered[-1:]])


def _sums(place: Integers, values: Floats, counts: Integers) -> Floats:
    return np.bincount(place, weights=values, minlength=len(counts)).astype(np.float64)


def _sum_by_cell(confidence: Floats, gaps: Floats) -> Floats:
    """The summed gaps of all rows, each divided between the two nearest cells."""
    place = np.clip(confidence * N_CELLS - 0.5, 0, N_CELLS - 1)
    left = np.minimum(place.astype(np.int64), N_CELLS - 2)
    right_share = place - left
    cells = np.bincount(left, weights=gaps * (1 - right_share), minlength=N_CELLS)
    cells += np.bincount(left + 1, weights=gaps * right_share, minlength=N_CELLS)
    return cells / len(gaps)


def _fixed_point(cells: Floats) -> float:
    """The error at the width that equals it, by bisection: the error falls with the width."""
    cosines = dct(cells, norm="ortho")
    low, high = MIN_WIDTH, 1.0
    if _error(cosines, low) <= low:
        return _error(cosines, low)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _error(cosines, middle) > middle else (low, middle)
    return _error(cosines, high)


def _error(cosines: Floats, width: float) -> float:
    """The error for one kernel width: a reflected Gaussian damps each cosine of the cells."""
    damping = np.exp(-((np.pi * width * np.arange(len(cosines))) ** 2) / 2)
    return min(1.0, float(np.abs(idct(cosines * damping, norm="ortho")).sum()))


def _brier_parts_of_class(predicted: Floats, observed: Floats, n_bins: int) -> Floats:
    place = np.minimum((predicted * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    weight = counts / len(place)
    with np.errstate(invalid="ignore"):  # an empty bin has no weight
        mean_predicted, mean_observed = (
            np.nan_to_num(np.bincount(place, weights=values, minlength=n_bins) / counts)
            for values in (predicted, observed)
        )
    share = observed.mean()
    spread = predicted - mean_predicted[place]
    within = (spread**2 - 2 * spread * (observed - mean_observed[place])).mean()
    return np.array(
        [
            weight @ (mean_predicted - mean_observed) ** 2,
            weight @ (mean_observed - share) ** 2,
            share * (1 - share),
            within,
        ]
    )
