"""Scores of the model on an uploaded file of labeled rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.metrics import confusion_matrix, reliability_bins, risk_coverage
from attnknn.metrics.classification import mean_f1, row_brier, row_correct, row_nll
from attnknn.records import Floats, Integers
from attnknn.research.evaluation.intervals import (
    Interval,
    calibration_errors,
    interval_around,
    mean_interval,
)
from attnknn.serving.predictions import predict
from attnknn.serving.schemas import (
    Bin,
    EvaluatedRow,
    EvaluatedRows,
    EvaluateRows,
    Evaluation,
    RiskPoint,
    Score,
)
from attnknn.serving.state import State
from attnknn.serving.uploads import UploadedFile

N_BINS = 15
MAX_POINTS = 200  # of a risk-coverage curve
N_RESAMPLES = 500
N_KEPT = 4  # evaluated files of a state


@dataclass(frozen=True)
class Evaluated:
    """Predictions for all rows of a labeled file."""

    codes: Integers  # (n,) of the true labels
    probabilities: Floats  # (n, C)


def evaluated(state: State, file: UploadedFile) -> Evaluated:
    """The predictions for a file, computed once for each state of the model."""

    def compute() -> Evaluated:
        codes = codes_of(file, state.classifier.classes_.tolist())
        return Evaluated(codes, predict(state, file.rows))

    return state.derived(f"file {file.id}", compute)


def codes_of(file: UploadedFile, classes: list[Any]) -> Integers:
    """The positions of the labels of a file among the classes; both are compared as texts."""
    if file.labels is None:
        raise InvalidInputError(
            f"{file.name} must have labels. Send it again, and name their column in `label_column`."
        )
    known = {str(label): code for code, label in enumerate(classes)}
    labels = [str(label) for label in file.labels.tolist()]
    unknown = next((label for label in labels if label not in known), None)
    if unknown is not None:
        raise InvalidInputError(f"{file.name} has the label {unknown!r}, which is no class.")
    return np.array([known[label] for label in labels], dtype=np.int64)


def evaluate(state: State, file: UploadedFile) -> Evaluation:
    """Scores with intervals, confusion matrix, reliability diagram and risk-coverage curve."""
    found = evaluated(state, file)
    codes, probabilities = found.codes, found.probabilities
    matrix = confusion_matrix(codes, probabilities)
    return Evaluation(
        version=state.version,
        n_rows=len(codes),
        scores=_scores(codes, probabilities, matrix),
        classes=state.classifier.classes_.tolist(),
        confusion=matrix.tolist(),
        reliability=_bins(codes, probabilities),
        risk_coverage=_curve(codes, probabilities),
    )


def evaluated_rows(state: State, file: UploadedFile, question: EvaluateRows) -> EvaluatedRows:
    """The rows of a cell of the confusion matrix, or of a range of confidence."""
    found = evaluated(state, file)
    classes = state.classifier.classes_.tolist()
    predicted, confidence = found.probabilities.argmax(axis=1), found.probabilities.max(axis=1)
    keep = np.ones(len(predicted), dtype=bool)
    for label, own in ((question.true, found.codes), (question.predicted, predicted)):
        if label is not None:
            keep &= own == _code_of(label, classes)
    if question.min_confidence is not None:
        keep &= confidence >= question.min_confidence
    if question.max_confidence is not None:
        keep &= confidence <= question.max_confidence
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(-confidence[rows], kind="stable")]
    shown = rows[question.offset : question.offset + question.limit].tolist()
    return EvaluatedRows(
        version=state.version,
        total=len(rows),
        rows=[
            EvaluatedRow(
                row=row,
                content=file.content(row),
                label=classes[found.codes[row]],
                predicted=classes[predicted[row]],
                confidence=float(confidence[row]),
            )
            for row in shown
        ],
    )


def _code_of(label: Any, classes: list[Any]) -> int:
    known = {str(one): code for code, one in enumerate(classes)}
    return known.get(str(label), -1)


def _scores(codes: Integers, probabilities: Floats, matrix: Integers) -> dict[str, Score]:
    per_row: dict[str, Callable[..., Any]] = {
        "accuracy": row_correct,
        "log_loss": row_nll,
        "brier": row_brier,
    }
    scores = {
        name: _score(mean_interval(compute(codes, probabilities)[None], n_resamples=N_RESAMPLES))
        for name, compute in per_row.items()
    }
    confidence, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
    ece = calibration_errors(
        {"": confidence[None]}, {"": is_right[None]}, n_bins=N_BINS, n_draws=N_RESAMPLES
    )
    return {**scores, "ece": _score(ece[""].interval()), "macro_f1": _macro_f1(matrix)}


def _macro_f1(matrix: Integers) -> Score:
    """Macro F1 with a bootstrap interval: cells of resampled rows are multinomial."""
    n = int(matrix.sum())
    rng = np.random.default_rng(0)
    draws = rng.multinomial(n, matrix.ravel() / n, size=N_RESAMPLES)
    resampled = np.array([mean_f1(cells.reshape(matrix.shape)) for cells in draws])
    return _score(interval_around(mean_f1(matrix), resampled))


def _score(found: Interval) -> Score:
    return Score(value=found.mean, low=found.lower, high=found.upper)


def _bins(codes: Integers, probabilities: Floats) -> list[Bin]:
    found = reliability_bins(codes, probabilities, n_bins=N_BINS)
    return [
        Bin(
            low=float(found.lower[place]),
            high=float(found.upper[place]),
            count=int(count),
            confidence=float(found.confidence[place]) if count else None,
            accuracy=float(found.accuracy[place]) if count else None,
        )
        for place, count in enumerate(found.counts.tolist())
    ]


def _curve(codes: Integers, probabilities: Floats) -> list[RiskPoint]:
    found = risk_coverage(codes, probabilities)
    n = len(found.threshold)
    places = np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).round().astype(int))
    return [
        RiskPoint(
            coverage=float(found.coverage[place]),
            risk=float(found.risk[place]),
            threshold=float(found.threshold[place]),
        )
        for place in places.tolist()
    ]
