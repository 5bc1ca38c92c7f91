"""How sure a mean or a difference is: a paired bootstrap over test rows and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Floats

CHUNK = 1 << 21  # numbers of a block of resamples held at once


@dataclass(frozen=True)
class Interval:
    """A mean and the range that its resamples fill.

    Parameters
    ----------
    mean : over all rows and seeds
    lower, upper : percentiles of the resampled means
    """

    mean: float
    lower: float
    upper: float

    def excludes_zero(self) -> bool:
        """Whether the range lies on one side of zero."""
        return self.lower > 0 or self.upper < 0

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} [{self.lower:{spec}}, {self.upper:{spec}}]"


def bootstrap_means(
    losses: Mapping[str, ArrayLike], *, n_resamples: int = 2000, random_state: int = 0
) -> dict[str, Floats]:
    """Resampled mean losses of several methods, (n_resamples,) each.

    A resample draws rows with replacement and, apart from them, seeds with replacement; it is the
    same for all methods, so that subtracting two of the results pairs the methods row by row.
    Drawing both ways errs on the safe side: the range is a little too wide rather than too narrow.

    Parameters
    ----------
    losses : per method one number per seed and test row, (S, n)
    random_state : fixes the draws

    Examples
    --------
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
    return _interval(float(losses.mean()), means, level)


def paired_interval(
    first: ArrayLike,
    second: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    random_state: int = 0,
) -> Interval:
    """The mean of `first` − `second` with its interval, paired by seed and row.

    Negative means that the first method loses less. Where the interval excludes zero, the
    difference is more than the luck of rows and seeds.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.normal(1.0, 1.0, (5, 1000))  # rows differ much more than methods do
    >>> paired_interval(hard - 0.01, hard).excludes_zero()
    True
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return mean_interval(
        difference, level=level, n_resamples=n_resamples, random_state=random_state
    )


def bootstrap_eces(
    confidence: Mapping[str, ArrayLike],
    is_right: Mapping[str, ArrayLike],
    *,
    n_bins: int = 15,
    n_resamples: int = 500,
    random_state: int = 0,
) -> dict[str, Floats]:
    """Resampled calibration errors of several methods, (n_resamples,) each, bins of equal width.

    Rows and seeds are drawn as in `bootstrap_means`, the same for all methods; the error of each
    seed is taken by itself and then averaged. A resample holds rows twice and so looks noisier than
    the rows do: subtract two methods rather than read one.

    Parameters
    ----------
    confidence, is_right : per method one number per seed and test row, (S, n)

    Examples
    --------
    >>> sure, right = {"a": [[0.9, 0.9]]}, {"a": [[True, True]]}
    >>> bootstrap_eces(sure, right, n_resamples=3)["a"].round(2).tolist()
    [0.1, 0.1, 0.1]
    """
    sure, right = _stacked(confidence), _stacked(is_right)  # (M, S, n)
    n_methods, n_seeds, n_rows = sure.shape
    bins = np.clip((sure * n_bins).astype(int), 0, n_bins - 1)
    in_bin = bins[..., None] == np.arange(n_bins)  # (M, S, n, bins)
    gaps = np.where(in_bin, (sure - right)[..., None], 0.0)
    table = gaps.transpose(2, 0, 1, 3).reshape(n_rows, -1)
    rng = np.random.default_rng(random_state)
    step = max(1, CHUNK // n_rows)
    parts = []
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        by_bin = _draws(rng, size, n_rows) @ table
        errors = np.abs(by_bin.reshape(size, -1, n_bins)).sum(axis=2)
        shares = _draws(rng, size, n_seeds)
        parts.append(np.einsum("rms,rs->mr", errors.reshape(size, n_methods, n_seeds), shares))
    return dict(zip(confidence, np.concatenate(parts, axis=1), strict=True))


def _stacked(losses: Mapping[str, ArrayLike]) -> Floats:
    arrays = [np.asarray(values, dtype=np.float64) for values in losses.values()]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 2 or not arrays[0].size:
        raise InvalidInputError(
            f"Losses must have one shape (seeds, rows) for all methods, got {sorted(shapes)}."
        )
    return np.stack(arrays)


def _draws(rng: np.random.Generator, size: int, n: int) -> Floats:
    """Shares (size, n) that each of n things has in a draw of n with replacement."""
    drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) / n


def _interval(mean: float, means: Floats, level: float) -> Interval:
    if not 0 < level < 1:
        raise InvalidSettingError(f"`level` must lie between 0 and 1, got {level}.")
    lower, upper = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(lower), float(upper))
