"""Sections about the predictions of one model: scores, calibration, confusions, mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnknn.metrics import (
    aurc,
    brier_parts,
    confusion_matrix,
    ece_by_class,
    mce,
    reliability_bins,
    risk_coverage,
    row_brier,
    row_correct,
    row_nll,
    score_all,
    smooth_ece,
)
from attnknn.metrics.classification import mean_f1, mean_recall
from attnknn.records import Booleans, Floats, Integers
from attnknn.research.evaluation.error_analysis import N_SHOWN, ErrorAnalysis, Mistake
from attnknn.research.evaluation.illustrations import (
    EmbeddingMap,
    OneVsRest,
    Thumbnails,
    one_vs_rest,
)
from attnknn.research.evaluation.intervals import (
    Interval,
    calibration_errors,
    interval_around,
    mean_interval,
)
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section
from attnknn.research.reports.sentences import describe_confidence

N_DRAWS = 1000


def score_intervals(codes: Integers, probabilities: Floats) -> dict[str, Interval]:
    """95 % intervals of scores.

    For means over rows, recalls, F1 and `aurc` rows are drawn with replacement; `ece` is that of
    endless rows (see `calibration_errors`). Other calibration errors take in the noise of the
    rows, which drawing rows would add to.

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
    """Interval of `aurc`; rows with the same confidence share their errors."""
    place = np.unique(-confidence, return_inverse=True)[1]
    n_rows = len(confidence)
    rng = np.random.default_rng(0)

    def area(rows: Integers) -> float:
        counts = np.bincount(place[rows])
        wrong = np.bincount(place[rows], is_wrong[rows]) / np.maximum(counts, 1)
        return float((np.repeat(wrong, counts).cumsum() / np.arange(1, n_rows + 1)).mean())

    drawn = [area(rng.integers(n_rows, size=n_rows)) for _ in range(N_DRAWS)]
    return interval_around(area(np.arange(n_rows)), np.array(drawn))


def _of_confusions(codes: Integers, answers: Integers, n_classes: int) -> dict[str, Interval]:
    """Intervals of scores that are functions of the confusion matrix."""
    cells, counts = np.unique(codes * n_classes + answers, return_counts=True)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(codes), counts / len(codes), size=N_DRAWS)
    scores = []
    for row in (counts, *drawn):
        matrix = np.zeros((n_classes, n_classes), dtype=np.int64)
        matrix.ravel()[cells] = row
        scores.append((mean_recall(matrix), mean_f1(matrix)))
    values = dict(zip(("balanced_accuracy", "macro_f1"), np.array(scores).T, strict=True))
    return {name: interval_around(float(found[0]), found[1:]) for name, found in values.items()}


SCORES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "nll": "log-loss",
    "brier": "Brier score",
    "ece": "ECE, 15 bins of equal width",
    "debiased_ece": "ECE without its sampling noise",
    "mce": "maximum calibration error",
    "smooth_ece": "smooth ECE",
    "aurc": "area under the risk-coverage curve",
}


def model_sections(
    codes: Integers,
    probabilities: Floats,
    classes: Sequence[str],
    mistakes: Sequence[Mistake] = (),
    embeddings: EmbeddingMap | None = None,
) -> list[Section]:
    """Sections on the predictions of a model: scores, calibration, classes, errors, embeddings."""
    scores = _scores(codes, probabilities)
    areas = one_vs_rest(codes, probabilities)
    return [
        _summary(scores, codes, probabilities),
        _calibration(codes, probabilities, classes),
        class_section(confusion_matrix(codes, probabilities), classes, [areas]),
        _confusions(confusion_matrix(codes, probabilities), classes),
        *([_mistakes(mistakes)] if mistakes else []),
        *([] if embeddings is None else [_map_of_rows(embeddings, codes, probabilities)]),
    ]


def _map_of_rows(found: EmbeddingMap, codes: Integers, probabilities: Floats) -> Section:
    is_wrong = (probabilities.argmax(axis=1) != codes)[found.rows]
    return map_section(found, is_wrong, "the model", "Embeddings", "embeddings")


def error_sections(
    error_analyses: Sequence[ErrorAnalysis],
    title: str,
    name: str,
    images: Thumbnails | None = None,
) -> list[Section]:
    """Classes and confusions of a method over all seeds, and its mistakes on the first."""
    first = error_analyses[0]
    matrix = np.sum([found.confusions for found in error_analyses], axis=0)
    seeds = "one seed" if len(error_analyses) == 1 else f"{len(error_analyses)} seeds"
    where = _confusions(matrix, first.classes, f"{name}-confusions")
    heading = f"{title}: confusions of {first.method}, {seeds}"
    found = [analysis.one_vs_rest for analysis in error_analyses if analysis.one_vs_rest]
    by_class = class_section(matrix, first.classes, found, f"{name}-classes")
    by_class = replace(by_class, title=f"{title}: classes, {first.method}, {seeds}")
    sections = [by_class, replace(where, title=heading)]
    if first.mistakes:
        why = _mistakes(first.mistakes, f"{name}-mistakes", images)
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
        f"Of {len(codes):,} rows {len(codes) - n_wrong:,} were predicted correctly and {n_wrong:,} "
        f"incorrectly (accuracy {scores['accuracy']:.2%}).",
        f"Of the Brier score of {scores['brier']:.4f}, {parts.reliability:.4f} is "
        f"miscalibration; resolution reduces it by {parts.resolution:.4f} from the "
        f"{parts.uncertainty:.4f} of predicting class frequencies.",
    ]
    return Section("Scores", sentences, [_score_grid(scores, codes, probabilities)])


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


def _calibration(codes: Integers, probabilities: Floats, classes: Sequence[str]) -> Section:
    confidence = probabilities.max(axis=1)
    is_right = (probabilities.argmax(axis=1) == codes).astype(np.float64)
    by_class = ece_by_class(codes, probabilities)
    worst = int(by_class.argmax())
    sentences = [
        f"On average it is {describe_confidence(confidence[None], is_right[None])}: its "
        f"confidence is {confidence.mean():.4f}, its accuracy {is_right.mean():.4f}.",
    ]
    if by_class[worst] > 0:
        sentences.append(
            f"Of all classes, the probabilities of “{classes[worst]}” are farthest from its shares "
            f"({by_class[worst]:.4f})."
        )
    drawings = [
        Drawing(
            "reliability",
            figures.reliability(reliability_bins(codes, probabilities), "Reliability"),
            "Accuracy by confidence; whiskers are two standard deviations.",
        ),
        Drawing(
            "risk-coverage",
            figures.risk_and_coverage(
                {"model": risk_coverage(codes, probabilities)}, "Risk and coverage"
            ),
            "The error rate among the most confident predictions, by their share of all rows.",
        ),
    ]
    return Section("Calibration", sentences, [], drawings)


def class_section(
    matrix: Integers, classes: Sequence[str], areas: Sequence[OneVsRest], name: str = "classes"
) -> Section:
    """Precision, recall and F1 of each class, and its curves against all others.

    Parameters
    ----------
    matrix : (C, C) number of rows by true and predicted class
    classes : names of the classes
    areas : areas under the curves of each class on each seed; a seed with curves has these drawn
    name : file name of table and figure

    >>> matrix = np.array([[8, 2], [0, 10]])
    >>> class_section(matrix, ["cat", "dog"], []).sentences
    ['Recall is lowest for “cat” (0.8000), precision for “dog” (0.8333).']
    """
    right, n_true, n_predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    with np.errstate(invalid="ignore"):
        columns = {
            "precision": right / n_predicted,
            "recall": right / n_true,
            "F1": 2 * right / (n_true + n_predicted),
        }
    for title, area in (("ROC AUC", "roc_auc"), ("average precision", "average_precision")):
        values = np.mean([getattr(found, area) for found in areas], axis=0) if areas else np.nan
        if not np.isnan(values).all():
            columns[title] = values
    rows = [
        [label, f"{n_true[code]:,}", *(_four(values[code]) for values in columns.values())]
        for code, label in enumerate(classes)
    ]
    means = [_four(np.nanmean(values)) for values in columns.values()]
    rows.append(["mean of the classes", f"{n_true.sum():,}", *means])
    note = "Each class against all others; – where a class has no rows or no predictions."
    grid = Grid(name, ["class", "rows", *columns], rows, note=note)
    hardest, rarest = (int(np.nanargmin(columns[column])) for column in ("recall", "precision"))
    sentence = (
        f"Recall is lowest for “{classes[hardest]}” ({columns['recall'][hardest]:.4f}), precision "
        f"for “{classes[rarest]}” ({columns['precision'][rarest]:.4f})."
    )
    seed = ", on one seed" if len(areas) > 1 else ""
    drawn = [_curves(found, classes, name, seed) for found in areas if found.curves]
    return Section("Classes", [sentence], [grid], drawn[:1])


def _four(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _curves(found: OneVsRest, classes: Sequence[str], name: str, seed: str) -> Drawing:
    n_drawn = len(found.curves)
    which = "all classes" if n_drawn == len(classes) else f"the {n_drawn} worst classes"
    return Drawing(
        f"{name}-curves",
        figures.one_vs_rest(found, classes, "One class against all others"),
        f"ROC and precision-recall curves of {which}{seed}; in brackets the area under the ROC "
        "curve and the average precision.",
    )


def _confusions(matrix: Integers, classes: Sequence[str], name: str = "confusions") -> Section:
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    sentences = ["All rows were predicted correctly."]
    if wrong.any():
        truth, answer = divmod(int(wrong.argmax()), len(classes))
        sentences = [
            f"The most frequent mistake is “{classes[truth]}” predicted as “{classes[answer]}”, "
            f"{int(wrong[truth, answer]):,} of {int(matrix[truth].sum()):,} predictions."
        ]
    drawing = Drawing(
        name,
        figures.confusions(matrix, classes, "Confusion matrix"),
        "Number of rows by true and predicted class; shades are shares of each true class.",
    )
    return Section("Confusions", sentences, [], [drawing])


def _mistakes(
    mistakes: Sequence[Mistake], name: str = "mistakes", images: Thumbnails | None = None
) -> Section:
    rows = [[m.row, m.truth, m.predicted, f"{m.confidence:.4f}", m.evidence] for m in mistakes]
    head = ["row", "true class", "predicted", "confidence", "weights: neighbors (class), prior"]
    if not any(mistake.evidence for mistake in mistakes):  # not a vote
        head, rows = head[:-1], [row[:-1] for row in rows]
    most = mistakes[0]
    sentence = (
        f"The most confident mistake is row {most.row}: “{most.predicted}” at "
        f"{most.confidence:.4f}, true class “{most.truth}”."
    )
    drawings = [] if images is None else _pictures(mistakes, images, f"{name}-images")
    return Section("The most confident mistakes", [sentence], [Grid(name, head, rows)], drawings)


def _pictures(mistakes: Sequence[Mistake], images: Thumbnails, name: str) -> list[Drawing]:
    """The images of mistakes, each in a line with its neighbors if it has any."""
    lines = []
    for mistake in mistakes[:N_SHOWN]:
        if int(mistake.row) in images.test:
            words = f"row {mistake.row}: {mistake.truth}\npredicted {mistake.predicted}"
            line = [(images.test[int(mistake.row)], words)]
            lines.append(line + [_neighbor(images, *found) for found in mistake.neighbors])
    if not lines:
        return []
    caption = "The most confident mistakes, each with the neighbors of the largest weights."
    if all(len(line) == 1 for line in lines):
        lines = [[line[0] for line in lines[at : at + 3]] for at in range(0, len(lines), 3)]
        caption = "The most confident mistakes."
    return [Drawing(name, figures.image_rows(lines, "The most confident mistakes"), caption)]


def _neighbor(images: Thumbnails, row: int, label: str, weight: float) -> tuple[Any, str]:
    return images.train[row], f"neighbor {row}: {label}\nweight {weight:.2f}"


def map_section(
    found: EmbeddingMap, is_wrong: Booleans, whose: str, title: str, name: str
) -> Section:
    """Embeddings in two dimensions as a section.

    Parameters
    ----------
    found : the map
    is_wrong : (n,) whether the prediction of each row of the map is wrong
    whose : whose predictions these are, in words
    title : title of the section
    name : file name of the figure
    """
    n_wrong, n_rows = int(is_wrong.sum()), len(is_wrong)
    sentence = (
        f"Two principal components explain {sum(found.explained):.0%} of the variance of the "
        f"embeddings. {n_wrong:,} of the {n_rows:,} rows shown are errors of {whose}."
    )
    drawing = Drawing(
        name,
        figures.embedding_map(found, is_wrong, "Embeddings in two dimensions"),
        f"Test rows in the plane of the first two principal components of their embeddings; "
        f"crosses are errors of {whose}.",
    )
    return Section(title, [sentence], [], [drawing])
