"""A report on one model's answers for labeled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
from attnknn.research.evaluation.error_analysis import ErrorAnalysis, Mistake
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section
from attnknn.research.reports.score_intervals import score_intervals
from attnknn.research.reports.sentences import sureness

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
        _where(confusion_matrix(codes, probabilities), classes),
        *([_why(mistakes)] if mistakes else []),
    ]


def error_sections(error_analyses: Sequence[ErrorAnalysis], title: str, name: str) -> list[Section]:
    """Where a method was wrong over all seeds, and why on the first."""
    first = error_analyses[0]
    matrix = np.sum([found.confusions for found in error_analyses], axis=0)
    seeds = "one seed" if len(error_analyses) == 1 else f"{len(error_analyses)} seeds"
    where = _where(matrix, first.classes, f"{name}-confusions")
    heading = f"{title}: where {first.method} is wrong, {seeds}"
    sections = [replace(where, title=heading)]
    if first.mistakes:
        why = _why(first.mistakes, f"{name}-mistakes")
        heading = f"{title}: the most confident mistakes of {first.method}, seed {first.seed}"
        sections.append(replace(why, title=heading))
    return sections


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
    return Section("How right", sentences, [_score_grid(scores, codes, probabilities)])


def _score_grid(scores: dict[str, float], codes: Integers, probabilities: Floats) -> Grid:
    ranges = {
        name: f"[{found.lower:.4f}, {found.upper:.4f}]"
        for name, found in score_intervals(codes, probabilities).items()
    }
    rows = [[words, f"{scores[name]:.4f}", ranges.get(name, "–")] for name, words in SCORES.items()]
    note = (
        f"Intervals over the luck of {len(codes):,} rows; the model stays as it is. That of the "
        "calibration error is of the error that endless rows would show: noise adds to what is "
        "seen, which with few rows may lie above. – where there is no honest interval."
    )
    return Grid("scores", ["score", "value", "95 % interval"], rows, note=note)


def _honesty(codes: Integers, probabilities: Floats, classes: Sequence[str]) -> Section:
    confidence = probabilities.max(axis=1)
    is_right = (probabilities.argmax(axis=1) == codes).astype(np.float64)
    by_class = ece_by_class(codes, probabilities)
    worst = int(by_class.argmax())
    sentences = [
        f"On average it is {sureness(confidence[None], is_right[None])}: its confidence is "
        f"{confidence.mean():.4f}, and {is_right.mean():.4f} of its answers are right.",
    ]
    if by_class[worst] > 0:
        sentences.append(
            f"Of all classes, the probabilities of “{classes[worst]}” are farthest from its shares "
            f"({by_class[worst]:.4f})."
        )
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


def _where(matrix: Integers, classes: Sequence[str], name: str = "confusions") -> Section:
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    sentences = ["No row was answered wrongly."]
    if wrong.any():
        truth, answer = divmod(int(wrong.argmax()), len(classes))
        sentences = [
            f"The most frequent mistake is “{classes[truth]}” taken for “{classes[answer]}”, "
            f"{int(wrong[truth, answer]):,} of {int(matrix[truth].sum()):,} answers."
        ]
    drawing = Drawing(
        name,
        figures.confusions(matrix, classes, "Truth and answers"),
        "Rows counted by truth and answer; shades are shares of each truth.",
    )
    return Section("Where wrong", sentences, [], [drawing])


def _why(mistakes: Sequence[Mistake], name: str = "mistakes") -> Section:
    rows = [[m.row, m.truth, m.predicted, f"{m.confidence:.4f}", m.evidence] for m in mistakes]
    head = ["row", "truth", "answer", "confidence", "who decided"]
    most = mistakes[0]
    sentence = (
        f"The most confident mistake is row {most.row}: “{most.predicted}” at "
        f"{most.confidence:.4f}, in truth “{most.truth}”."
    )
    return Section("The most confident mistakes", [sentence], [Grid(name, head, rows)])
