"""Runs the cells of a claim, a report for each seed; a seed that has one is not run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnknn.metrics import confusion_matrix, row_correct, row_nll, score_all
from attnknn.pipeline import Answer
from attnknn.research.evaluation.close_up import CloseUp, Mistake, deciding, worst_mistakes
from attnknn.research.evaluation.report_files import write_whole
from attnknn.research.evaluation.sheet import Sheet, Sheets
from attnknn.research.evaluation.table import Run, Table, joined
from attnknn.research.experiments.bench import Bench, surroundings
from attnknn.research.experiments.claims import Ask, Cell
from attnknn.research.experiments.clock import Clock
from attnknn.research.experiments.found import Found
from attnknn.research.experiments.kept import plain, sheet_there, table_there
from attnknn.research.experiments.methods import METHODS, Stage
from attnknn.research.experiments.possible import answering, check_cells, check_sheet
from attnknn.research.experiments.scenes import Scene
from attnknn.research.experiments.stresses import Stress
from attnknn.training.config import TrainResult

REPORT, CLOSE_UP, TRAINING = "report.json", "close-up.json", "training.json"
LOOKED_AT, SHOWN_MISTAKES = "attnknn", 10


def run_cells(
    bench: Bench, claim: str, cells: Sequence[Cell], seeds: Sequence[int]
) -> dict[float | None, Table]:
    """Every cell on every seed; what has a report is read instead, if it says the same.

    What cannot be, and reports of something else, are said before anything runs.
    """
    check_cells(bench, cells)
    tables = {
        (cell.name, seed): _table_there(bench, claim, cell, seed)
        for cell in cells
        for seed in seeds
        if _path(bench, claim, cell, seed).exists()
    }
    for seed in seeds:
        missing = [cell for cell in cells if (cell.name, seed) not in tables]
        for group in _sharing(missing):
            stage = Stage(bench.scene(group[0].stress, seed, group[0].shift))
            for cell in group:
                _run_cell(bench, claim, stage, cell)
                tables[cell.name, seed] = _table_there(bench, claim, cell, seed)
    return {cell.place: joined([tables[cell.name, seed] for seed in seeds]) for cell in cells}


def _path(bench: Bench, claim: str, cell: Cell, seed: int) -> Path:
    return bench.folder / claim / bench.data.name / cell.name / str(seed) / REPORT


def _settings(bench: Bench, claim: str, cell: Cell) -> dict[str, Any]:
    """What a report holds beside the choices of its methods."""
    return plain({"claim": claim, **bench.settings, **cell.settings})


def _table_there(bench: Bench, claim: str, cell: Cell, seed: int) -> Table:
    asked = {
        "data": (bench.data.name, bench.data.checksum),
        "seeds": [seed],
        "damage": bench.damage(cell.stress, cell.shift),
        "encoder": bench.encoder_words,
        "methods": cell.methods(answering(bench, cell)),
        "settings": _settings(bench, claim, cell),
    }
    return table_there(_path(bench, claim, cell, seed), asked)


def _run_cell(bench: Bench, claim: str, stage: Stage, cell: Cell) -> None:
    """Leaves a report; the files beside it come first, so that none is missing beside a report."""
    scene = stage.scene
    path = _path(bench, claim, cell, scene.seed)
    found = []
    for ask in answering(bench, cell):
        where = f", {cell.name}" if cell.name else ""
        bench.progress(f"{scene.data.name}{where}: {ask.name or ask.method}, seed {scene.seed}")
        for answers in METHODS[ask.method](stage, ask.choices):
            if answers.method == LOOKED_AT and answers.answer is not None and not cell.name:
                close_up_of(scene, answers, answers.answer).to_json(path.with_name(CLOSE_UP))
            found.append(_named(ask, answers))
    if scene.training is not None:
        story = {"encoder": scene.encoder, **losses_of(scene.training)}
        write_whole(path.with_name(TRAINING), story)
    table_of(scene, found, _settings(bench, claim, cell)).to_json(path)


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


def close_up_of(scene: Scene, found: Found, answer: Answer) -> CloseUp:
    """Where a vote was wrong, and whose say made its most confident mistakes."""
    classes = tuple(str(name) for name in scene.data.classes)
    mistakes = []
    for row in worst_mistakes(scene.truth, found.probabilities, SHOWN_MISTAKES).tolist():
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
                deciding(names, labels, weights.tolist()),
            )
        )
    matrix = confusion_matrix(scene.truth, found.probabilities)
    return CloseUp(found.method, scene.seed, classes, matrix, tuple(mistakes))


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
        "train losses": training.train_losses,
        "judged losses": training.validation_losses,
        "tolerance": training.tolerance,
    }


def run_sheets(
    bench: Bench, claim: str, settings: Mapping[str, Any], seeds: Sequence[int]
) -> Sheets:
    """The numbers of a claim on every seed; a seed that has a sheet is not measured again."""
    check_sheet(bench, claim, settings)
    sheets = {
        seed: _sheet_there(bench, claim, settings, seed)
        for seed in seeds
        if _sheet_path(bench, claim, seed).exists()
    }
    for seed in seeds:
        if seed not in sheets:
            _run_sheet(bench, claim, settings, seed)
            sheets[seed] = _sheet_there(bench, claim, settings, seed)
    return Sheets(tuple(sheets[seed] for seed in seeds))


def _sheet_path(bench: Bench, claim: str, seed: int) -> Path:
    return bench.folder / claim / bench.data.name / str(seed) / REPORT


def _sheet_settings(bench: Bench, claim: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return plain({"claim": claim, **bench.settings, "measure": dict(settings)})


def _sheet_there(bench: Bench, claim: str, settings: Mapping[str, Any], seed: int) -> Sheet:
    asked = {
        "data": (bench.data.name, bench.data.checksum),
        "seeds": [seed],
        "encoder": bench.encoder_words,
        "settings": _sheet_settings(bench, claim, settings),
    }
    return sheet_there(_sheet_path(bench, claim, seed), asked)


def _run_sheet(bench: Bench, claim: str, settings: Mapping[str, Any], seed: int) -> None:
    from attnknn.research.experiments.measures import MEASURES

    scene = bench.scene(Stress(), seed)
    bench.progress(f"{bench.data.name}: {claim}, seed {seed}")
    clock = Clock()
    found = MEASURES[claim](Stage(scene), settings)
    sheet = Sheet(
        claim=claim,
        dataset=bench.data.name,
        checksum=bench.data.checksum,
        encoder=scene.encoder,
        seed=seed,
        settings=_sheet_settings(bench, claim, settings),
        versions=surroundings(),
        rows=found.rows,
        notes=found.notes,
        seconds=round(clock.lap(), 2),
    )
    sheet.to_json(_sheet_path(bench, claim, seed))
