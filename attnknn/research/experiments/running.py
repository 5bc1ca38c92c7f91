"""Runs the cells of a claim; what a report has already is not run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.errors import InvalidSettingError
from attnknn.metrics import confusion_matrix
from attnknn.model import Answer
from attnknn.research.evaluation import protocol
from attnknn.research.evaluation.corruption import Corruption
from attnknn.research.evaluation.error_analysis import (
    N_NAMED,
    N_SHOWN,
    ErrorAnalysis,
    Mistake,
    describe_neighbors,
    worst_mistakes,
)
from attnknn.research.evaluation.illustrations import (
    N_CURVES,
    Illustrations,
    embedding_map,
    map_rows,
    one_vs_rest,
    thumbnails,
)
from attnknn.research.evaluation.measurements import Measurements, MeasurementSet
from attnknn.research.evaluation.protocol import REQUESTED, CellRun, Predictions, check_same
from attnknn.research.evaluation.report import REPORT, add_measurements, read_report
from attnknn.research.evaluation.table import Table
from attnknn.research.experiments.claims import Cell, MethodSpec
from attnknn.research.experiments.data import EmbeddedDataset, Setup, has_noisy_labels
from attnknn.research.experiments.methods import (
    METHODS,
    Stopwatch,
    Workspace,
    max_neighbors_for,
)
from attnknn.research.experiments.networks import as_images, has_images
from attnknn.training.config import TrainResult

N_MISTAKES = 10
HEAD, LOGISTIC = "head", "logistic"
OF_TRAINED = (HEAD, "cnn", "joint", "trained")  # methods that need the training of an encoder
NEEDS = {
    **{name: f"{name!r} needs images that a network is trained on" for name in OF_TRAINED},
    LOGISTIC: "'logistic' replaces the CNN head where no network is trained",
}


def run_cells(
    setup: Setup, claim: str, cells: Sequence[Cell], seeds: Sequence[int]
) -> dict[float | None, Table]:
    """The tables of a claim by their position on its axis; impossible cells are refused first."""
    check_cells(setup, cells)
    by_name = {cell.name: cell for cell in cells}
    order = list(dict.fromkeys(cell.damage for cell in cells))
    adjacent = sorted(cells, key=lambda cell: order.index(cell.damage))  # they share embeddings
    last: dict[tuple[str, int], Workspace] = {}

    def run_cell(name: str, seed: int) -> CellRun:
        cell = by_name[name]
        if (cell.damage, seed) not in last:
            last.clear()
            embedded = setup.embed(cell.corruption, seed, cell.shift)
            last[cell.damage, seed] = Workspace(embedded)
        return _run_cell(setup, claim, last[cell.damage, seed], cell, is_first=seed == seeds[0])

    def requested(name: str, _: int) -> dict[str, Any]:
        cell = by_name[name]
        return {
            "data": (setup.data.name, setup.data.checksum),
            "corruption": setup.describe(cell.corruption, cell.shift),
            "encoder": setup.encoder_description,
            "methods": cell.methods(methods_that_run(setup, cell)),
            "settings": _settings(setup, claim, cell),
        }

    path = report_path(setup, claim)
    names = [cell.name for cell in adjacent]
    tables = protocol.run_cells(path, names, seeds, run_cell, requested)
    return {cell.place: tables[cell.name] for cell in cells}


def report_path(setup: Setup, claim: str) -> Path:
    """The report of a claim on a data set."""
    return setup.folder / claim / setup.data.name / REPORT


def _settings(setup: Setup, claim: str, cell: Cell) -> dict[str, Any]:
    """What a report holds beside the settings of its methods."""
    return plain({"claim": claim, **setup.settings, **cell.settings})


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON gives them back.

    >>> plain({"widths": (8, 16)})
    {'widths': [8, 16]}
    """
    back: dict[str, Any] = json.loads(json.dumps(settings))
    return back


def _run_cell(
    setup: Setup, claim: str, workspace: Workspace, cell: Cell, *, is_first: bool
) -> CellRun:
    embedded = workspace.embedded
    found, analyses = [], []
    for spec in methods_that_run(setup, cell):
        where = f", {cell.name}" if cell.name else ""
        name = spec.name or spec.method
        setup.progress(f"{embedded.data.name}{where}: {name}, seed {embedded.seed}")
        for predictions in METHODS[spec.method](workspace, spec.options):
            named = _named(spec, predictions)
            if not cell.name:
                n_curves = N_CURVES if is_first else 0
                analyses.append(analyze_errors(embedded, named, predictions.answer, n_curves))
            found.append(named)
    return cell_run(
        embedded,
        found,
        _settings(setup, claim, cell),
        error_analyses=analyses,
        illustrations=illustrate(embedded, analyses) if analyses and is_first else None,
    )


def cell_run(
    embedded: EmbeddedDataset,
    predictions: Sequence[Predictions],
    settings: Mapping[str, Any] | None = None,
    *,
    corruption: str | None = None,
    training: Mapping[str, Any] | None = None,
    error_analyses: Sequence[ErrorAnalysis] = (),
    illustrations: Illustrations | None = None,
) -> CellRun:
    """The table of predictions on embedded data, with the training of its encoder.

    `corruption` replaces the description of the corruption; `training` adds to the record of the
    training.
    """
    seconds, record = {}, None
    if embedded.training is not None:
        seconds = {"encoder_seconds": round(embedded.training.seconds, 1)}
        losses = losses_of(embedded.training)
        record = {"encoder": embedded.encoder, **(training or {}), **losses}
    table = protocol.table_of(
        embedded.data,
        [replace(found, chosen={**found.chosen, **seconds}) for found in predictions],
        embedded.seed,
        corruption=embedded.corruption if corruption is None else corruption,
        encoder=embedded.encoder,
        n_train=len(embedded.codes),
        settings=settings,
    )
    return CellRun(table, record, error_analyses, illustrations)


def analyze_errors(
    embedded: EmbeddedDataset,
    predictions: Predictions,
    answer: Answer | None,
    n_curves: int = N_CURVES,
) -> ErrorAnalysis:
    """Confusions of a method, its most confident mistakes, and curves of each class.

    With the `answer` of a vote, mistakes have the neighbors behind them.
    """
    classes, truth = tuple(str(name) for name in embedded.data.classes), embedded.data.y_test
    are_images, mistakes = has_images(embedded.data), []
    for row in worst_mistakes(truth, predictions.probabilities, N_MISTAKES).tolist():
        confidence = predictions.probabilities[row]
        mistakes.append(
            Mistake(
                str(row),
                classes[truth[row]],
                classes[int(confidence.argmax())],
                float(confidence.max()),
                "" if answer is None else _evidence(answer, row, classes),
                () if answer is None or not are_images else _nearest(answer, row, classes),
            )
        )
    matrix = confusion_matrix(truth, predictions.probabilities)
    return ErrorAnalysis(
        predictions.method,
        embedded.seed,
        classes,
        matrix,
        tuple(mistakes),
        one_vs_rest(truth, predictions.probabilities, n_curves),
    )


def _evidence(answer: Answer, row: int, classes: Sequence[str]) -> str:
    neighbors = answer.neighbors.rows(row)
    names = [f"row {position}" for position in neighbors.positions[neighbors.mask]]
    labels = [classes[code] for code in neighbors.labels[neighbors.mask]]
    weights = answer.weights.neighbors[row][neighbors.mask]
    return describe_neighbors(names, labels, weights.tolist(), float(answer.weights.prior[row]))


def _nearest(
    answer: Answer, row: int, classes: Sequence[str]
) -> tuple[tuple[int, str, float], ...]:
    """Position, class and weight of the neighbors with the largest weights."""
    neighbors = answer.neighbors.rows(row)
    weights = np.where(neighbors.mask, answer.weights.neighbors[row], -1.0)
    chosen = np.argsort(-weights, kind="stable")[: min(N_NAMED, int(neighbors.mask.sum()))]
    return tuple(
        (int(neighbors.positions[at]), classes[neighbors.labels[at]], round(float(weights[at]), 4))
        for at in chosen
    )


def illustrate(embedded: EmbeddedDataset, analyses: Sequence[ErrorAnalysis]) -> Illustrations:
    """The test rows in two dimensions, and images of the mistakes and their neighbors."""
    data = embedded.data
    rows = map_rows(len(data.y_test))
    classes = [str(name) for name in data.classes]
    drawn = embedding_map(embedded.queries[0][rows], rows, data.y_test[rows], classes)
    if not has_images(data) or len(embedded.codes) != len(data.y_train):
        return Illustrations(drawn)
    mistakes = [m for analysis in analyses for m in analysis.mistakes[:N_SHOWN]]
    images = thumbnails(
        as_images(data, data.X_test),
        [int(mistake.row) for mistake in mistakes],
        as_images(data, data.X_train),
        [row for mistake in mistakes for row, _, _ in mistake.neighbors],
    )
    return Illustrations(drawn, images)


def _named(spec: MethodSpec, found: Predictions) -> Predictions:
    """Predictions under the name that the claim gives them, with the settings of the method."""
    settings = {REQUESTED: spec.name or spec.method, **spec.settings}
    name = found.method if spec.name is None else found.method.replace(spec.method, spec.name, 1)
    return replace(found, method=name, settings=settings, answer=None)  # the answer is large


def losses_of(training: TrainResult) -> dict[str, Any]:
    """The losses of a training by epoch, for reports."""
    return {
        "seconds": round(training.seconds, 1),
        "train_losses": training.train_losses,
        "validation_losses": training.validation_losses,
        "components": training.components,
        "tolerance": training.tolerance,
    }


def run_measurements(
    setup: Setup, claim: str, settings: Mapping[str, Any], seeds: Sequence[int]
) -> MeasurementSet:
    """The numbers of a claim on every seed; seeds that the report has are not measured again."""
    check_measurements(setup, claim, settings)
    path = report_path(setup, claim)
    found = dict(read_report(path).measurements)
    requested: dict[str, Any] = {
        "data": (setup.data.name, setup.data.checksum),
        "encoder": setup.encoder_description,
        "settings": plain({"claim": claim, **setup.settings, "measure": dict(settings)}),
    }
    for seed in seeds:
        if seed in found:
            known = found[seed]
            data = (known.dataset, known.checksum)
            described = {"data": data, "encoder": known.encoder, "settings": known.settings}
            check_same(path, described, requested)
    for seed in seeds:
        if seed not in found:
            found[seed] = _measure(setup, claim, settings, seed, requested["settings"])
            add_measurements(path, found[seed])
    return MeasurementSet(tuple(found[seed] for seed in seeds))


def _measure(
    setup: Setup, claim: str, settings: Mapping[str, Any], seed: int, stored: dict[str, Any]
) -> Measurements:
    from attnknn.research.experiments.measures import MEASURES

    embedded = setup.embed(Corruption(), seed)
    setup.progress(f"{setup.data.name}: {claim}, seed {seed}")
    clock = Stopwatch()
    found = MEASURES[claim](Workspace(embedded), settings)
    return Measurements(
        claim=claim,
        dataset=setup.data.name,
        checksum=setup.data.checksum,
        encoder=embedded.encoder,
        seed=seed,
        settings=stored,
        versions=protocol.environment(),
        rows=found.rows,
        notes=found.notes,
        seconds=round(clock.lap(), 2),
    )


def methods_that_run(setup: Setup, cell: Cell) -> list[MethodSpec]:
    """The methods of a cell; logistic regression runs only where there is no CNN head."""
    left_out = (LOGISTIC,) if setup.trained is not None else OF_TRAINED
    return [spec for spec in cell.specs if spec.method not in left_out]


def check_cells(setup: Setup, cells: Sequence[Cell]) -> None:
    """Raise an error for the first cell that cannot be measured."""
    for cell in cells:
        if not methods_that_run(setup, cell):
            raise InvalidSettingError(
                f"{NEEDS[cell.specs[0].method]}, and no other method was requested on "
                f"{setup.data.name!r}."
            )
        _check_corruption(setup, cell)
        sizes = [
            k
            for spec in cell.specs
            for k in (spec.options.n_neighbors or 1, *(spec.options.sizes or ()))
        ]
        check_neighbors(max(sizes), setup.n_entries(cell.corruption) - 1, setup.data.name)


def check_measurements(setup: Setup, claim: str, settings: Mapping[str, Any]) -> None:
    """Raise an error for more neighbors than entries."""
    n_entries, sizes = setup.n_entries(Corruption()), settings["neighbors"]
    largest = n_entries - 1
    if claim == "theory":
        largest = max_neighbors_for(n_entries, is_trained=setup.trained is not None)
    check_neighbors(max(sizes) if isinstance(sizes, Sequence) else sizes, largest, setup.data.name)


def check_neighbors(n_neighbors: int, largest: int, name: str) -> None:
    """Raise an error for a K above the largest that is possible."""
    if n_neighbors > largest:
        raise InvalidSettingError(
            f"Of the training rows of {name!r} at most {largest:,} can be neighbors here, got "
            f"K = {n_neighbors:,}."
        )


def _check_corruption(setup: Setup, cell: Cell) -> None:
    """Raise an error for a corruption that the rows of a data set do not allow."""
    name, corruption = setup.data.name, cell.corruption
    if cell.shift.severity and setup.trained is None:
        raise InvalidSettingError(
            f"Only images that a network is trained on can be shifted, not the rows of {name!r}."
        )
    smallest = int(np.bincount(setup.rows.y_train).min())
    if corruption.kind in ("shots", "imbalance") and smallest < corruption.level:
        level = f"{corruption.level:g}"
        needed = f"{level} of each" if corruption.kind == "shots" else f"an imbalance of {level}"
        raise InvalidSettingError(
            f"A class of {name!r} has {smallest:,} training rows, too few for {needed}. Set lower "
            "`levels` in the settings."
        )
    if corruption.is_label_noise and has_noisy_labels(setup.data):
        raise InvalidSettingError(
            f"Some training labels of {name!r} are wrong already, so that a noise rate would not "
            "be the share of wrong labels. Measure 'main' on it."
        )
