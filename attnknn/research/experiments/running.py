"""Runs the cells of a claim, a report for each seed; a seed that has one is not run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnknn.metrics import confusion_matrix, row_correct, row_nll, score_all
from attnknn.model import Answer
from attnknn.research.evaluation.error_analysis import (
    ErrorAnalysis,
    Mistake,
    describe_neighbors,
    worst_mistakes,
)
from attnknn.research.evaluation.measurements import Measurements, MeasurementSet
from attnknn.research.evaluation.report import (
    REPORT,
    add_measurements,
    add_table,
    read_report,
)
from attnknn.research.evaluation.table import Run, Table, joined
from attnknn.research.experiments.bench import Bench, surroundings
from attnknn.research.experiments.claims import Ask, Cell
from attnknn.research.experiments.clock import Clock
from attnknn.research.experiments.found import Found
from attnknn.research.experiments.kept import check_same_measurements, check_table, plain
from attnknn.research.experiments.methods import METHODS, Stage
from attnknn.research.experiments.possible import answering, check_cells, check_measurements
from attnknn.research.experiments.scenes import Scene
from attnknn.research.experiments.stresses import Stress
from attnknn.training.config import TrainResult

ANALYZED, N_MISTAKES = "attnknn", 10


def run_cells(
    bench: Bench, claim: str, cells: Sequence[Cell], seeds: Sequence[int]
) -> dict[float | None, Table]:
    """Every cell on every seed; what the report has already is read, if it has the same settings.

    Impossible cells and reports of something else are errors before anything runs.
    """
    check_cells(bench, cells)
    path = report_path(bench, claim)
    report = read_report(path)
    tables = {}
    for cell in cells:
        for seed in seeds:
            table = report.table(cell.name, seed)
            if table is not None:
                check_table(path, table, _asked(bench, claim, cell, seed))
                tables[cell.name, seed] = table
    for seed in seeds:
        missing = [cell for cell in cells if (cell.name, seed) not in tables]
        for group in _sharing(missing):
            stage = Stage(bench.scene(group[0].stress, seed, group[0].shift))
            for cell in group:
                tables[cell.name, seed] = _run_cell(bench, claim, stage, cell)
    return {cell.place: joined([tables[cell.name, seed] for seed in seeds]) for cell in cells}


def report_path(bench: Bench, claim: str) -> Path:
    """The report of a claim on the data set of a bench."""
    return bench.folder / claim / bench.data.name / REPORT


def _settings(bench: Bench, claim: str, cell: Cell) -> dict[str, Any]:
    """What a report holds beside the choices of its methods."""
    return plain({"claim": claim, **bench.settings, **cell.settings})


def _asked(bench: Bench, claim: str, cell: Cell, seed: int) -> dict[str, Any]:
    return {
        "data": (bench.data.name, bench.data.checksum),
        "seeds": [seed],
        "damage": bench.damage(cell.stress, cell.shift),
        "encoder": bench.encoder_words,
        "methods": cell.methods(answering(bench, cell)),
        "settings": _settings(bench, claim, cell),
    }


def _run_cell(bench: Bench, claim: str, stage: Stage, cell: Cell) -> Table:
    """Run the methods of a cell, and add what they predicted to the report."""
    scene = stage.scene
    found, analysis = [], None
    for ask in answering(bench, cell):
        where = f", {cell.name}" if cell.name else ""
        bench.progress(f"{scene.data.name}{where}: {ask.name or ask.method}, seed {scene.seed}")
        for answers in METHODS[ask.method](stage, ask.choices):
            if answers.method == ANALYZED and answers.answer is not None and not cell.name:
                analysis = error_analysis_of(scene, answers, answers.answer)
            found.append(_named(ask, answers))
    training = None
    if scene.training is not None:
        training = {"encoder": scene.encoder, **losses_of(scene.training)}
    table = table_of(scene, found, _settings(bench, claim, cell))
    path = report_path(bench, claim)
    add_table(path, table, cell.name, training=training, error_analysis=analysis)
    return table


def table_of(
    scene: Scene, found: Sequence[Found], settings: Mapping[str, Any] | None = None
) -> Table:
    """The answers of all methods of a scene, judged against the clean labels."""
    return Table(
        dataset=scene.data.name,
        checksum=scene.data.checksum,
        n_train=len(scene.codes),
        n_test=len(scene.truth),
        corruption=scene.damage,
        encoder=scene.encoder,
        versions=surroundings(),
        runs=tuple(_run(scene, answers) for answers in found),
        settings=plain(settings or {}),
    )


def error_analysis_of(scene: Scene, found: Found, answer: Answer) -> ErrorAnalysis:
    """Where a vote was wrong, and whose say made its most confident mistakes."""
    classes = tuple(str(name) for name in scene.data.classes)
    mistakes = []
    for row in worst_mistakes(scene.truth, found.probabilities, N_MISTAKES).tolist():
        voters = answer.neighbors.rows(row)
        names = [f"row {position}" for position in voters.positions[voters.mask]]
        labels = [classes[code] for code in voters.labels[voters.mask]]
        weights = answer.weights.neighbors[row][voters.mask]
        sure = found.probabilities[row]
        mistakes.append(
            Mistake(
                str(row),
                classes[scene.truth[row]],
                classes[int(sure.argmax())],
                float(sure.max()),
                describe_neighbors(names, labels, weights.tolist()),
            )
        )
    matrix = confusion_matrix(scene.truth, found.probabilities)
    return ErrorAnalysis(found.method, scene.seed, classes, matrix, tuple(mistakes))


def _run(scene: Scene, found: Found) -> Run:
    return Run(
        method=found.method,
        seed=scene.seed,
        scores=score_all(scene.truth, found.probabilities),
        row_nll=row_nll(scene.truth, found.probabilities),
        row_correct=row_correct(scene.truth, found.probabilities),
        row_confidence=found.probabilities.max(axis=1),
        fit_seconds=round(found.fit_seconds, 4),
        predict_seconds=round(found.predict_seconds, 4),
        settings=dict(found.settings),
        chosen={**found.chosen, **_encoder_seconds(scene)},
    )


def _encoder_seconds(scene: Scene) -> dict[str, float]:
    """What the training of the encoder took, which all methods of a scene share."""
    if scene.training is None:
        return {}
    return {"encoder_seconds": round(scene.training.seconds, 1)}


def _named(ask: Ask, found: Found) -> Found:
    """An answer under the name that the claim gives it, with the choices it was made by."""
    choices = {name: repr(value) for name, value in vars(ask.choices).items()}
    settings = {"asked": ask.name or ask.method, **choices}
    name = found.method if ask.name is None else found.method.replace("learned", ask.name, 1)
    return replace(found, method=name, settings=settings, answer=None)  # it is large


def _sharing(cells: Sequence[Cell]) -> Iterable[list[Cell]]:
    """Cells that can share a scene; damage that does nothing is none."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.damage, []).append(cell)
    return groups.values()


def losses_of(training: TrainResult) -> dict[str, Any]:
    """How a training went, as its file tells it."""
    return {
        "seconds": round(training.seconds, 1),
        "train_losses": training.train_losses,
        "validation_losses": training.validation_losses,
        "tolerance": training.tolerance,
    }


def run_measurements(
    bench: Bench, claim: str, settings: Mapping[str, Any], seeds: Sequence[int]
) -> MeasurementSet:
    """The numbers of a claim on every seed; seeds that the report has are not measured again."""
    check_measurements(bench, claim, settings)
    path = report_path(bench, claim)
    known = read_report(path).measurements
    asked = {
        "data": (bench.data.name, bench.data.checksum),
        "encoder": bench.encoder_words,
        "settings": plain({"claim": claim, **bench.settings, "measure": dict(settings)}),
    }
    for seed in seeds:
        if seed in known:
            check_same_measurements(path, known[seed], asked)
    missing = {
        seed: _measure_seed(bench, claim, settings, seed) for seed in seeds if seed not in known
    }
    return MeasurementSet(tuple({**known, **missing}[seed] for seed in seeds))


def _measure_seed(bench: Bench, claim: str, settings: Mapping[str, Any], seed: int) -> Measurements:
    from attnknn.research.experiments.measures import MEASURES

    scene = bench.scene(Stress(), seed)
    bench.progress(f"{bench.data.name}: {claim}, seed {seed}")
    clock = Clock()
    found = MEASURES[claim](Stage(scene), settings)
    measurements = Measurements(
        claim=claim,
        dataset=bench.data.name,
        checksum=bench.data.checksum,
        encoder=scene.encoder,
        seed=seed,
        settings=plain({"claim": claim, **bench.settings, "measure": dict(settings)}),
        versions=surroundings(),
        rows=found.rows,
        notes=found.notes,
        seconds=round(clock.lap(), 2),
    )
    add_measurements(report_path(bench, claim), measurements)
    return measurements
