"""Confidence intervals of means, calibration errors and differences, over test rows and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Floats, Integers

CHUNK = 1 << 21  # numbers of a block of resamples held at once
CLEAR = 4.0  # standard deviations; larger gaps are not noise
TINY = 1e-12  # avoids a division by zero


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval."""

    mean: float  # over all rows and seeds
    lower: float  # and `upper`: percentiles of the resampled means
    upper: float

    def excludes_zero(self) -> bool:
        """Whether the range lies on one side of zero."""
        return self.lower > 0 or self.upper < 0

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} [{self.lower:{spec}}, {self.upper:{spec}}]"


def bootstrap_means(
    losses: Mapping[str, ArrayLike], *, n_resamples: int = 2000, random_state: int = 0
) -> dict[str, Floats]:
    """Bootstrap the mean losses of several methods, (n_resamples,) each.

    Each resample draws rows with replacement and, independently, seeds with replacement. It is the
    same for all methods, so that the difference of two results is paired by row and seed. If rows
    differ more than seeds, intervals are slightly too wide. If seeds differ more than rows, few
    seeds make them too narrow. With one seed they account for rows only.

    `losses` (S, n): for each method the loss of each seed and test row.

    >>> means = bootstrap_means({"a": [[0.0, 1.0]], "b": [[1.0, 2.0]]}, n_resamples=5)
    >>> means["b"] - means["a"]
    array([1., 1., 1., 1., 1.])
    """
    if n_resamples < 1:
        raise InvalidSettingError(f"`n_resamples` must be at least 1, got {n_resamples}.")
    stacked = _stacked(losses)  # (M, S, n)
    n_methods, n_seeds, n_rows = stacked.shape
    rng = np.random.default_rng(random_state)
    flat = stacked.reshape(-1, n_rows).T
    step = max(1, CHUNK // n_rows)
    parts = []
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        by_seed = (_draws(rng, size, n_rows) @ flat).reshape(size, n_methods, n_seeds)
        parts.append(np.einsum("rms,rs->mr", by_seed, _draws(rng, size, n_seeds)))
    means = np.concatenate(parts, axis=1)
    return dict(zip(losses, means, strict=True))


def mean_interval(
    losses: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Interval:
    """The mean loss of one method with its interval.

    >>> rng = np.random.default_rng(0)
    >>> f"{mean_interval(rng.normal(1.0, 1.0, (5, 1000))):.2f}"
    '1.00 [0.95, 1.05]'
    """
    losses = np.asarray(losses, dtype=np.float64)
    means = bootstrap_means({"": losses}, n_resamples=n_resamples, random_state=random_state)[""]
    return interval_around(float(losses.mean()), means, level)


def paired_interval(
    first: ArrayLike,
    second: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    random_state: int = 0,
) -> Interval:
    """The mean of `first` − `second` with its interval, paired by seed and row.

    Negative means that the first method has the lower loss. The difference is significant if the
    interval excludes zero.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.normal(1.0, 1.0, (5, 1000))  # rows differ much more than methods do
    >>> paired_interval(hard - 0.01, hard).excludes_zero()
    True
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return mean_interval(
        difference, level=level, n_resamples=n_resamples, random_state=random_state
    )


@dataclass(frozen=True, eq=False)
class CalibrationError:
    """An estimate of a calibration error without sampling noise."""

    estimate: float  # mean over seeds
    # (n_draws,) errors that are consistent with rows and seeds; methods share the draws
    plausible: Floats

    def interval(self, level: float = 0.95) -> Interval:
        """The estimate with its interval."""
        return interval_around(self.estimate, self.plausible, level)

    def minus(self, other: CalibrationError, level: float = 0.95) -> Interval:
        """The difference to another method's error with its interval, paired by row and seed."""
        difference = self.estimate - other.estimate
        return interval_around(difference, self.plausible - other.plausible, level)


def calibration_errors(
    confidence: Mapping[str, ArrayLike],
    is_right: Mapping[str, ArrayLike],
    *,
    n_bins: int = 15,
    n_draws: int = 2000,
    random_state: int = 0,
) -> dict[str, CalibrationError]:
    """Calibration errors of several methods in bins of equal width, with intervals.

    Sampling noise of the bin gaps increases an error S = Σ_b |gap_b|, most if the true gaps are
    small. Bootstrap resamples have this noise twice, so that their intervals miss the truth most
    of the time. Therefore the effect of noise on S is inverted. Gaps of more than four standard
    deviations σ_b are taken without correction. In the other bins, true gaps of t·σ_b would give
    Σ_b σ_b·F(t) on average, with F(t) = E|N(t, 1)|. Solving for t gives the estimate Σ_b σ_b·t. (Of
    all gaps with the same sum, these give the smallest S.) Plausible errors are computed likewise
    from S minus noise, which is drawn from the Gaussian with the covariance of all gaps over rows.
    Methods and seeds share the draws; seeds are drawn with replacement.

    `confidence`, `is_right` (S, n): for each method one number per seed and test row.

    >>> rng = np.random.default_rng(0)
    >>> honest = rng.uniform(0.5, 0.9, (1, 2000))
    >>> right = rng.uniform(size=(1, 2000)) < honest
    >>> sure = {"honest": honest, "bold": honest + 0.05}
    >>> found = calibration_errors(sure, {"honest": right, "bold": right})
    >>> f"{found['honest'].interval():.3f}", f"{found['bold'].minus(found['honest']):.3f}"
    ('0.000 [0.000, 0.026]', '0.040 [0.001, 0.059]')
    """
    sure, right = _stacked(confidence), _stacked(is_right)  # (M, S, n)
    rng = np.random.default_rng(random_state)
    shape, n_rows = (*sure.shape[:2], n_bins), sure.shape[2]
    columns = _columns(sure, n_bins)
    table = np.zeros((n_rows, math.prod(shape)))  # each row's gap, in the bin of its confidence
    np.put_along_axis(table, columns, _side_by_side(sure - right), axis=1)
    gaps = table.mean(axis=0)
    covariance = (table.T @ table / n_rows - np.outer(gaps, gaps)) / n_rows  # of means over rows
    variance = np.maximum(np.diag(covariance), 0.0)
    honest = np.bincount(columns.ravel(), _side_by_side(sure * (1 - sure)).ravel(), len(gaps))
    parts = gaps, variance, honest / n_rows**2, _gaussian(covariance, n_draws, rng)
    found = _without_noise(*(part.reshape(*part.shape[:-1], *shape) for part in parts))
    shares = _draws(rng, n_draws, sure.shape[1])
    drawn = np.einsum("rms,rs->mr", found.plausible, shares)
    return {
        name: CalibrationError(float(estimate.mean()), errors)
        for name, estimate, errors in zip(confidence, found.estimate, drawn, strict=True)
    }


def _columns(sure: Floats, n_bins: int) -> Integers:
    """The bin of each confidence, (n, M · S), those of other methods and seeds in other columns."""
    bins = np.clip((_side_by_side(sure) * n_bins).astype(int), 0, n_bins - 1)
    return bins + n_bins * np.arange(bins.shape[1])


def _side_by_side(values: Floats) -> Floats:
    return values.reshape(-1, values.shape[2]).T


def _gaussian(covariance: Floats, n_draws: int, rng: np.random.Generator) -> Floats:
    values, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(values, 0.0))
    return rng.normal(size=(n_draws, len(values))) @ root.T


@dataclass(frozen=True, eq=False)
class _Errors:
    estimate: Floats  # (M, S)
    plausible: Floats  # (R, M, S)


def _without_noise(gaps: Floats, variance: Floats, if_calibrated: Floats, noise: Floats) -> _Errors:
    """Invert the effect of sampling noise on sums of `gaps`.

    Parameters
    ----------
    gaps, variance : (M, S, bins), the variance estimated from rows
    if_calibrated : (M, S, bins) the variance of calibrated confidences: the one estimated from a
        few rows that are all correct is zero
    noise : (R, M, S, bins) draws
    """
    is_clear = np.abs(gaps) > CLEAR * np.sqrt(np.maximum(variance, if_calibrated))
    is_clear |= variance == 0
    sides, spread = np.sign(gaps), np.where(is_clear, 0.0, np.sqrt(variance))
    unit = np.maximum(spread.sum(axis=-1), TINY)
    seen = np.abs(gaps).sum(axis=-1, where=~is_clear)
    ratio = true_ratio(seen / unit)
    near = np.maximum(ratio, 1.0)  # smaller gaps vary less, but gaps up to this size are possible
    middle = sides * near[..., None] * spread
    excess = np.abs(noise + middle).sum(axis=-1, where=~is_clear) - unit * seen_ratio(near)
    clear = np.abs(gaps).sum(axis=-1, where=is_clear)
    clear_noise = (sides * noise).sum(axis=-1, where=is_clear)
    rest = unit * true_ratio((seen - excess) / unit)
    return _Errors(clear + unit * ratio, np.maximum(clear - clear_noise + rest, 0.0))


def seen_ratio(ratio: Floats) -> Floats:
    """F(t) = E|N(t, 1)|: the expected observed gap, in units of noise, if the true one is t."""
    return np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + ratio * (1 - 2 * ndtr(-ratio))


RATIOS = np.linspace(0.0, 6.0, 1201)  # beyond, noise adds nothing
SEEN = seen_ratio(RATIOS)


def true_ratio(seen: Floats) -> Floats:
    """The inverse of `seen_ratio`; 0 for less than noise alone gives."""
    return np.where(seen < SEEN[-1], np.interp(seen, SEEN, RATIOS), seen)


def _stacked(losses: Mapping[str, ArrayLike]) -> Floats:
    arrays = [np.asarray(values, dtype=np.float64) for values in losses.values()]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 2 or not arrays[0].size:
        raise InvalidInputError(
            f"Losses must have one shape (seeds, rows) for all methods, got {sorted(shapes)}."
        )
    return np.stack(arrays)


def _draws(rng: np.random.Generator, size: int, n: int) -> Floats:
    """Weights (size, n) of n items in bootstrap resamples."""
    drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) / n


def interval_around(mean: float, means: Floats, level: float = 0.95) -> Interval:
    """A mean with percentiles of its resamples."""
    if not 0 < level < 1:
        raise InvalidSettingError(f"`level` must lie between 0 and 1, got {level}.")
    lower, upper = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, min(float(lower), mean), max(float(upper), mean))
