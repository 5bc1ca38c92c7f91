"""Calibration by bins of confidence: what was promised against what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.metrics.checking import checked
from attnknn.records import Booleans, Floats, Integers

Bins = Literal["width", "mass"]


@dataclass(frozen=True)
class ReliabilityBins:
    """One line per bin of confidence: what was promised, and what came.

    Parameters
    ----------
    lower, upper : (n_bins,) the bin holds lower ≤ confidence < upper, the last one also upper
    counts : (n_bins,) rows in the bin; they add up to all rows
    confidence : (n_bins,) mean confidence, NaN where the bin is empty
    accuracy : (n_bins,) share of right predictions, NaN where the bin is empty
    noise : (n_bins,) standard deviation that `accuracy` would have if every confidence were true,
        √Σ c(1−c) / count; NaN where the bin is empty
    """

    lower: Floats
    upper: Floats
    counts: Integers
    confidence: Floats
    accuracy: Floats
    noise: Floats

    def filled(self) -> ReliabilityBins:
        """The same record without its empty bins."""
        some = self.counts > 0
        return ReliabilityBins(
            self.lower[some],
            self.upper[some],
            self.counts[some],
            self.confidence[some],
            self.accuracy[some],
            self.noise[some],
        )

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
    """Expected calibration error Σ_b (n_b/n)·|accuracy_b − confidence_b|. Lower is better, 0..1.

    Biased upward: the noise of a bin cannot be negative, so that even perfect probabilities
    score above zero (`debiased_ece` takes the noise off).

    Parameters
    ----------
    n_bins : more bins see finer errors and more noise
    bins : "width" cuts 0..1 into equal parts, "mass" into parts with about as many rows each

    Examples
    --------
    >>> round(ece([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.3
    """
    found = reliability_bins(y_true, probabilities, n_bins=n_bins, bins=bins, classes=classes)
    return _mean_gap(found.filled())


def debiased_ece(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    bins: Bins = "mass",
    classes: Sequence[Any] | None = None,
) -> float:
    """Expected calibration error without the part that is sampling noise. Lower is better, 0..1.

    With σ_b = √Σ c(1−c)/n_b, the noise of bin b, and F(δ, σ) = E|N(δ, σ²)|, the mean gap that one
    sees where δ is true:

    - S = Σ_b (n_b/n)·|accuracy_b − confidence_b|, the plain error, in bins of equal mass;
    - δ = max(0, S − Σ_b (n_b/n)·F(0, σ_b)), where F(0, σ) = σ·√(2/π): the noise of perfect
      probabilities taken off, which is too much wherever the true gap exceeds the noise; so
    - result = max(0, S − Σ_b (n_b/n)·(F(δ, σ_b) − δ)): the noise that remains at a gap of δ.

    Its mean is near 0 for perfect probabilities and tends to the true error as rows come in. With
    few rows and true gaps about as large as the noise it is too low, by up to a third of σ (the
    first step alone by up to 0.8 σ): give the number of rows with it. The Gaussian stands for the
    binomial as in Kumar et al. 2019 (*Verified uncertainty calibration*, section 5) and Roelofs et
    al. 2022 (*Mitigating bias in calibration error estimation*).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, 2000)
    >>> y = (rng.uniform(size=2000) > confidence).astype(int)  # class 0 as often as was said
    >>> p = np.column_stack([confidence, 1 - confidence])
    >>> round(ece(y, p), 3), round(debiased_ece(y, p), 3)
    (0.013, 0.0)
    """
    found = reliability_bins(
        y_true, probabilities, n_bins=n_bins, bins=bins, classes=classes
    ).filled()
    shares = found.counts / found.counts.sum()
    plain = _mean_gap(found)
    gap = max(0.0, plain - float(shares @ _seen_gap(0.0, found.noise)))
    return max(0.0, plain - float(shares @ (_seen_gap(gap, found.noise) - gap)))


def mce(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    classes: Sequence[Any] | None = None,
) -> float:
    """Maximum calibration error max_b |accuracy_b − confidence_b|. Lower is better, 0..1.

    The bin of the largest gap is often the one with the fewest rows: look at its count.

    >>> round(mce([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.6
    """
    found = reliability_bins(y_true, probabilities, n_bins=n_bins, bins=bins, classes=classes)
    filled = found.filled()
    return float(np.abs(filled.accuracy - filled.confidence).max())


def ece_by_class(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 15,
    classes: Sequence[Any] | None = None,
) -> Floats:
    """For each class, how far its probabilities are from its shares, (C,). Lower is better, 0..1.

    Σ_b (n_b/n)·|share_b − mean probability_b| over bins of equal width of that class's
    probability, of all rows. The mean over classes is the static calibration error.

    >>> ece_by_class([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]).round(4)
    array([0.3, 0.3])
    """
    check_bins(n_bins)
    codes, table = checked(y_true, probabilities, classes)
    edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    gaps = np.empty(table.shape[1])
    for column, promised in enumerate(table.T):
        place = np.searchsorted(edges, promised, side="right")
        gap = np.bincount(place, weights=(codes == column) - promised, minlength=n_bins)
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
    """Confidence against accuracy, bin by bin; every row falls into a bin.

    Parameters
    ----------
    bins : "width" for bins of equal width; "mass" for bins of about equal counts, where rows of
        equal confidence stay together (so there may be fewer bins) and the order of the rows does
        not matter

    Examples
    --------
    >>> found = reliability_bins([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], n_bins=2)
    >>> found.counts.tolist(), found.accuracy.round(3).tolist()
    ([0, 3], [nan, 0.667])
    """
    check_bins(n_bins)
    codes, table = checked(y_true, probabilities, classes)
    return bins_of_confidence(table.max(axis=1), table.argmax(axis=1) == codes, n_bins, bins)


def bins_of_confidence(
    confidence: Floats, is_right: Booleans, n_bins: int = 15, bins: Bins = "width"
) -> ReliabilityBins:
    """The same from confidences (n,) and whether each was right, which is what reports keep."""
    edges = _edges(confidence, n_bins, bins)
    place = np.searchsorted(edges[1:-1], confidence, side="right")
    counts = np.bincount(place, minlength=len(edges) - 1)
    correct = is_right.astype(np.float64)
    variance = _sums(place, confidence * (1 - confidence), counts)
    with np.errstate(invalid="ignore"):  # 0/0 of an empty bin is the NaN that is promised
        return ReliabilityBins(
            lower=edges[:-1],
            upper=edges[1:],
            counts=counts,
            confidence=_sums(place, confidence, counts) / counts,
            accuracy=_sums(place, correct, counts) / counts,
            noise=np.sqrt(variance) / counts,
        )


def check_bins(n_bins: int) -> None:
    """An error for no bins."""
    if n_bins < 1:
        raise InvalidSettingError(f"`n_bins` must be an integer of at least 1, got {n_bins}.")


def _mean_gap(found: ReliabilityBins) -> float:
    gaps = np.abs(found.accuracy - found.confidence)
    return float(found.counts @ gaps / found.counts.sum())


def _seen_gap(gap: float, noise: Floats) -> Floats:
    """E|N(gap, noise²)|: the mean of the folded normal distribution."""
    ratio = np.divide(gap, noise, out=np.full_like(noise, np.inf), where=noise > 0)
    return noise * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + gap * (1 - 2 * ndtr(-ratio))


def _edges(confidence: Floats, n_bins: int, bins: Bins) -> Floats:
    if bins == "width":
        return np.linspace(0.0, 1.0, n_bins + 1, dtype=np.float64)
    if bins != "mass":
        raise unknown_name("way to bin", bins, ["width", "mass"])
    ordered: Floats = np.sort(confidence)
    cuts = ordered[np.arange(1, n_bins) * len(ordered) // n_bins]
    inner = np.unique(cuts[cuts > ordered[0]])  # a cut at the smallest would leave a bin empty
    return np.concatenate([ordered[:1], inner, ordered[-1:]])


def _sums(place: Integers, values: Floats, counts: Integers) -> Floats:
    return np.bincount(place, weights=values, minlength=len(counts)).astype(np.float64)
