"""How sure the scores of one model's answers are, over the luck of the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnknn.metrics import row_brier, row_correct, row_nll
from attnknn.records import Booleans, Floats, Integers
from attnknn.research.evaluation.intervals import Interval, calibration_errors, mean_interval

N_DRAWS = 1000


def score_intervals(codes: Integers, probabilities: Floats) -> dict[str, Interval]:
    """The 95 % intervals of the scores that have honest ones.

    For means over rows, recalls, F1 and `aurc` rows are drawn with replacement; `ece` is that of
    endless rows (see `calibration_errors`). Other calibration errors take in the noise of the
    rows, which drawing rows would add to.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    >>> f"{score_intervals(np.array([0, 1, 1, 1]), p)['accuracy']:.2f}"
    '0.75 [0.25, 1.00]'
    """
    by_row = {"accuracy": row_correct, "nll": row_nll, "brier": row_brier}
    found = {
        name: mean_interval(np.asarray(losses(codes, probabilities), dtype=np.float64)[None])
        for name, losses in by_row.items()
    }
    answers, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    sure, right = {"": confidence[None]}, {"": (answers == codes)[None]}
    found["ece"] = calibration_errors(sure, right)[""].interval()
    found["aurc"] = _of_order(confidence, answers != codes)
    return found | _of_confusions(codes, answers, probabilities.shape[1])


def _of_order(confidence: Floats, is_wrong: Booleans) -> Interval:
    """The area under risk and coverage; equally sure rows share their mistakes, as in `aurc`."""
    place = np.unique(-confidence, return_inverse=True)[1]
    n_rows = len(confidence)
    rng = np.random.default_rng(0)

    def area(rows: Integers) -> float:
        counts = np.bincount(place[rows])
        wrong = np.bincount(place[rows], is_wrong[rows]) / np.maximum(counts, 1)
        return float((np.repeat(wrong, counts).cumsum() / np.arange(1, n_rows + 1)).mean())

    drawn = [area(rng.integers(n_rows, size=n_rows)) for _ in range(N_DRAWS)]
    return _around(area(np.arange(n_rows)), np.array(drawn))


def _of_confusions(codes: Integers, answers: Integers, n_classes: int) -> dict[str, Interval]:
    """Scores of confusions, whose counts are drawn: fewer than rows."""
    cells, counts = np.unique(codes * n_classes + answers, return_counts=True)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(codes), counts / len(codes), size=N_DRAWS)
    scores: dict[str, Callable[[Floats, Floats, Floats], float]] = {
        "balanced_accuracy": _balanced,
        "macro_f1": _macro_f1,
    }
    sums = [_sums(cells, row, n_classes) for row in (counts, *drawn)]
    values = {name: np.array([score(*row) for row in sums]) for name, score in scores.items()}
    return {name: _around(found[0], found[1:]) for name, found in values.items()}


def _sums(cells: Integers, counts: Integers, n_classes: int) -> tuple[Floats, Floats, Floats]:
    """For each class its hits, its rows and its answers."""
    truth, answer = np.divmod(cells, n_classes)
    weights = counts.astype(np.float64)
    return (
        np.bincount(truth, np.where(truth == answer, weights, 0.0), n_classes).astype(np.float64),
        np.bincount(truth, weights, n_classes).astype(np.float64),
        np.bincount(answer, weights, n_classes).astype(np.float64),
    )


def _balanced(hits: Floats, rows: Floats, _answers: Floats) -> float:
    return float((hits[rows > 0] / rows[rows > 0]).mean())


def _macro_f1(hits: Floats, rows: Floats, answers: Floats) -> float:
    total = rows + answers
    return float((2 * hits[total > 0] / total[total > 0]).mean())


def _around(value: float, drawn: Floats) -> Interval:
    lower, upper = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(value), min(float(lower), value), max(float(upper), value))
