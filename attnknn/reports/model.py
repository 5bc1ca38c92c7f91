"""A report on one model's answers for labeled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnknn.metrics import (
    aurc,
    brier_parts,
    confusion_matrix,
    ece_by_class,
    mce,
    reliability_bins,
    risk_coverage,
    score_all,
    smooth_ece,
)
from attnknn.records import Floats, Integers
from attnknn.reports import figures
from attnknn.reports.page import Drawing, Grid, Section

SCORES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "nll": "log-loss",
    "brier": "Brier score",
    "ece": "calibration error, 15 bins of equal width",
    "debiased_ece": "the same without its sampling noise",
    "mce": "the largest gap of a bin",
    "smooth_ece": "calibration error without bins",
    "aurc": "area under risk and coverage",
}


@dataclass(frozen=True)
class Mistake:
    """A row that was answered wrongly: what it is called, and why it was answered so."""

    row: str
    truth: str
    answer: str
    confidence: float
    evidence: str


def worst_mistakes(codes: Integers, probabilities: Floats, n: int) -> Integers:
    """The rows of the most confident wrong answers, most confident first.

    >>> p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> worst_mistakes(np.array([1, 1, 1]), p, 5).tolist()
    [0, 2]
    """
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != codes)
    order = np.argsort(-probabilities[wrong].max(axis=1), kind="stable")
    return wrong[order[:n]]


def model_sections(
    codes: Integers,
    probabilities: Floats,
    classes: Sequence[str],
    mistakes: Sequence[Mistake] = (),
) -> list[Section]:
    """How right, how honest, where wrong, and why."""
    scores = _scores(codes, probabilities)
    return [
        _summary(scores, codes, probabilities),
        _honesty(codes, probabilities, classes),
        _where(codes, probabilities, classes),
        *([_why(mistakes)] if mistakes else []),
    ]


def _scores(codes: Integers, probabilities: Floats) -> dict[str, float]:
    more = {"mce": mce, "smooth_ece": smooth_ece, "aurc": aurc}
    return {
        **score_all(codes, probabilities).to_dict(),
        **{name: metric(codes, probabilities) for name, metric in more.items()},
    }


def _summary(scores: dict[str, float], codes: Integers, probabilities: Floats) -> Section:
    n_wrong = int((probabilities.argmax(axis=1) != codes).sum())
    parts = brier_parts(codes, probabilities)
    sentences = [
        f"Of {len(codes):,} rows {len(codes) - n_wrong:,} were answered right and {n_wrong:,} "
        f"wrong ({scores['accuracy']:.2%} right).",
        f"Of the Brier score of {scores['brier']:.4f}, {parts.reliability:.4f} is promises that "
        f"did not come true; telling rows apart takes {parts.resolution:.4f} off the "
        f"{parts.uncertainty:.4f} that the class shares alone would give.",
    ]
    rows = [[words, f"{scores[name]:.4f}"] for name, words in SCORES.items()]
    return Section("How right", sentences, [Grid("scores", ["score", "value"], rows)])


def _honesty(codes: Integers, probabilities: Floats, classes: Sequence[str]) -> Section:
    confidence = float(probabilities.max(axis=1).mean())
    share = float((probabilities.argmax(axis=1) == codes).mean())
    lean = "more sure than right" if confidence > share else "less sure than right"
    by_class = ece_by_class(codes, probabilities)
    worst = int(by_class.argmax())
    sentences = [
        f"On average it is {lean}: its confidence is {confidence:.4f}, and {share:.4f} of its "
        "answers are right.",
        f"Of all classes, the probabilities of {classes[worst]!r} are farthest from its shares "
        f"({by_class[worst]:.4f}).",
    ]
    drawings = [
        Drawing(
            "reliability",
            figures.reliability(reliability_bins(codes, probabilities), "Promised and come"),
            "How often answers are right, by how sure they are; whiskers are two standard "
            "deviations.",
        ),
        Drawing(
            "risk-coverage",
            figures.risk_and_coverage(
                {"model": risk_coverage(codes, probabilities)}, "If only the surest are answered"
            ),
            "The share of wrong answers among those that are given, most confident first.",
        ),
    ]
    return Section("How honest", sentences, [], drawings)


def _where(codes: Integers, probabilities: Floats, classes: Sequence[str]) -> Section:
    matrix = confusion_matrix(codes, probabilities)
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    sentences = ["No row was answered wrongly."]
    if wrong.any():
        truth, answer = divmod(int(wrong.argmax()), len(classes))
        sentences = [
            f"The most frequent mistake is {classes[truth]!r} taken for {classes[answer]!r}, "
            f"{int(wrong[truth, answer]):,} of {int(matrix[truth].sum()):,} rows."
        ]
    drawing = Drawing(
        "confusions",
        figures.confusions(matrix, classes, "Truth and answers"),
        "Rows counted by truth and answer; shades are shares of each truth.",
    )
    return Section("Where wrong", sentences, [], [drawing])


def _why(mistakes: Sequence[Mistake]) -> Section:
    rows = [[m.row, m.truth, m.answer, f"{m.confidence:.4f}", m.evidence] for m in mistakes]
    head = ["row", "truth", "answer", "confidence", "who decided"]
    most = mistakes[0]
    sentence = (
        f"The most confident mistake is row {most.row}: {most.answer!r} at {most.confidence:.4f}, "
        f"in truth {most.truth!r}."
    )
    return Section("The most confident mistakes", [sentence], [Grid("mistakes", head, rows)])
