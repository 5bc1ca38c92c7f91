"""How good labels and probabilities are: float64; formula, direction and example each.

Every metric takes `(y_true, probabilities)`: the true labels as codes 0..C-1 in the order of the
columns (or as any labels, with `classes=` naming the columns), and one row of probabilities per
label. Probabilities must be finite, within 0..1 up to 1e-6 and sum to one up to 1e-3, which
float32 and float16 inputs do; what lies beyond by rounding is moved to 0 or 1. The predicted class
is the first of the most probable ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name
from attnknn.records import Booleans, Floats, Integers

Bins = Literal["width", "mass"]
FLOOR = float(np.finfo(np.float64).eps)  # 2.2e-16, as in scikit-learn's log_loss
HIGHER_IS_BETTER = {
    "accuracy": True,
    "balanced_accuracy": True,
    "macro_f1": True,
    "nll": False,
    "brier": False,
    "ece": False,
    "debiased_ece": False,
}


@dataclass(frozen=True)
class Scores:
    """All metrics of one set of probabilities.

    `ece` has 15 bins of equal width, `debiased_ece` 15 bins of equal mass. `HIGHER_IS_BETTER` says
    the direction of each field.
    """

    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    nll: float
    brier: float
    ece: float
    debiased_ece: float

    def to_dict(self) -> dict[str, float]:
        """The scores by name, ready for JSON."""
        return asdict(self)


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


def accuracy(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Share of rows whose most probable class is the true one. Higher is better, 0..1.

    >>> accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    return float(row_correct(y_true, probabilities, classes=classes).mean())


def balanced_accuracy(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean over the classes that occur in `y_true` of their recall. Higher is better, 0..1.

    >>> balanced_accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.75
    """
    counts = confusion_matrix(y_true, probabilities, classes=classes)
    occurring = counts.sum(axis=1) > 0
    return float((np.diag(counts)[occurring] / counts.sum(axis=1)[occurring]).mean())


def macro_f1(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean F1 over the classes that occur or are predicted. Higher is better, 0..1.

    F1 of a class is 2·hits / (rows of the class + rows predicted as the class).

    >>> macro_f1([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    counts = confusion_matrix(y_true, probabilities, classes=classes)
    totals = counts.sum(axis=0) + counts.sum(axis=1)
    seen = totals > 0
    return float((2 * np.diag(counts)[seen] / totals[seen]).mean())


def confusion_matrix(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Integers:
    """Rows counted by true class (down) and predicted class (across), (C, C).

    >>> confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    array([[1, 0],
           [1, 1]])
    """
    codes, checked = _checked(y_true, probabilities, classes)
    n_classes = checked.shape[1]
    cells = codes * n_classes + checked.argmax(axis=1)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


def nll(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean of −log p(true class), in nats. Lower is better, 0..36.04.

    A probability of zero counts as 2.2e-16, as in scikit-learn's `log_loss`, so that one row costs
    at most 36.04: dear, but the mean stays a number that tables can hold.

    >>> round(nll([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.4149
    """
    return float(row_nll(y_true, probabilities, classes=classes).mean())


def brier(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> float:
    """Mean of Σ_c (p_c − [c is true])². Lower is better, 0..2.

    >>> round(brier([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 4)
    0.2733
    """
    return float(row_brier(y_true, probabilities, classes=classes).mean())


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
    if n_bins < 1:
        raise InvalidSettingError(f"`n_bins` must be an integer of at least 1, got {n_bins}.")
    codes, checked = _checked(y_true, probabilities, classes)
    confidence = checked.max(axis=1)
    edges = _edges(confidence, n_bins, bins)
    place = np.searchsorted(edges[1:-1], confidence, side="right")
    counts = np.bincount(place, minlength=len(edges) - 1)
    correct = (checked.argmax(axis=1) == codes).astype(np.float64)
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


def score_all(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Scores:
    """All metrics at once.

    >>> scores = score_all([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> scores.accuracy, round(scores.brier, 4)
    (0.6666666666666666, 0.2733)
    """
    codes, checked = _checked(y_true, probabilities, classes)
    return Scores(
        accuracy=accuracy(codes, checked),
        balanced_accuracy=balanced_accuracy(codes, checked),
        macro_f1=macro_f1(codes, checked),
        nll=nll(codes, checked),
        brier=brier(codes, checked),
        ece=ece(codes, checked),
        debiased_ece=debiased_ece(codes, checked),
    )


def row_correct(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Booleans:
    """For each row whether its most probable class is the true one.

    >>> row_correct([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    array([ True, False])
    """
    codes, checked = _checked(y_true, probabilities, classes)
    return checked.argmax(axis=1) == codes


def row_nll(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Floats:
    """For each row −log p(true class), with the floor of `nll`.

    >>> row_nll([0, 1], [[0.9, 0.1], [0.6, 0.4]]).round(3)
    array([0.105, 0.916])
    """
    codes, checked = _checked(y_true, probabilities, classes)
    return -np.log(np.maximum(checked[np.arange(len(codes)), codes], FLOOR))


def row_brier(
    y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Floats:
    """For each row Σ_c (p_c − [c is true])².

    >>> row_brier([0, 1], [[0.9, 0.1], [0.6, 0.4]]).round(3)
    array([0.02, 0.72])
    """
    codes, checked = _checked(y_true, probabilities, classes)
    errors = checked.copy()
    errors[np.arange(len(codes)), codes] -= 1.0
    return np.square(errors).sum(axis=1)


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


def _checked(
    y_true: ArrayLike, probabilities: ArrayLike, classes: Sequence[Any] | None
) -> tuple[Integers, Floats]:
    """Codes (n,) and probabilities (n, C) in float64, or an error that says what is wrong."""
    table = _checked_probabilities(probabilities)
    labels = np.asarray(y_true)
    if labels.ndim != 1 or len(labels) != len(table):
        raise InvalidInputError(
            f"`y_true` must have one label per row of `probabilities`, got shape {labels.shape} "
            f"for {len(table)} rows."
        )
    codes = labels if classes is None else _codes(labels, classes, table.shape[1])
    if codes.dtype.kind not in "iub":
        raise InvalidInputError(
            f"`y_true` must hold codes from 0 to {table.shape[1] - 1}, got {labels[0]!r}. "
            "For other labels give `classes`, the label of each column."
        )
    codes = codes.astype(np.int64)
    outside = (codes < 0) | (codes >= table.shape[1])
    if outside.any():
        raise InvalidInputError(
            f"`y_true` must hold codes from 0 to {table.shape[1] - 1}, "
            f"got {codes[outside][0]}. For other labels give `classes`, the label of each column."
        )
    return codes, table


def _checked_probabilities(probabilities: ArrayLike) -> Floats:
    table = np.asarray(probabilities, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise InvalidInputError(
            "`probabilities` must have shape (rows, classes) with at least one of each, "
            f"got {table.shape}."
        )
    wrong = ~np.isfinite(table) | (table < -1e-6) | (table > 1 + 1e-6)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidInputError(
            f"`probabilities` must lie between 0 and 1, got {table[row, column]} in row {row}."
        )
    sums = table.sum(axis=1)
    row = int(np.abs(sums - 1).argmax())
    if abs(sums[row] - 1) > 1e-3:
        raise InvalidInputError(
            f"Each row of `probabilities` must sum to 1, row {row} sums to {sums[row]:.6g}."
        )
    return np.clip(table, 0.0, 1.0)


def _codes(labels: Any, classes: Sequence[Any], n_columns: int) -> Integers:
    if len(classes) != n_columns:
        raise InvalidInputError(
            f"`classes` must name each of the {n_columns} columns of `probabilities`, "
            f"got {len(classes)} names."
        )
    code_of = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    unknown = [label for label in labels.tolist() if label not in code_of]
    if unknown:
        raise InvalidInputError(f"`y_true` must hold labels of `classes`, got {unknown[0]!r}.")
    return np.array([code_of[label] for label in labels.tolist()], dtype=np.int64)
