"""Runs the cells of a claim, a report for each seed; a seed that has one is not run again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnknn.datasets import Dataset
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.evaluation.close_up import CloseUp, Mistake, deciding, worst_mistakes
from attnknn.evaluation.protocol import versions
from attnknn.evaluation.sheet import Sheet, Sheets
from attnknn.evaluation.table import Run, Table, joined
from attnknn.experiments.claims import Ask, Cell
from attnknn.experiments.found import Found
from attnknn.experiments.methods import METHODS, Stage
from attnknn.experiments.networks import Network
from attnknn.experiments.pictures import is_pictures
from attnknn.experiments.scenes import Scene, fixed_scene, fixed_words, image_scene, network_words
from attnknn.experiments.stresses import NO_SHIFT, Shift, Stress
from attnknn.learning.course import Outcome
from attnknn.metrics import confusion_matrix, row_correct, row_nll, score_all
from attnknn.pipeline import Answer

Progress = Callable[[str], None]
REPORT, CLOSE_UP = "report.json", "close-up.json"
LOOKED_AT, SHOWN_MISTAKES = "attnknn", 10
HEAD, STANDS_IN = "head", "logistic"


@dataclass(frozen=True)
class Bench:
    """Where and on what experiments run.

    Parameters
    ----------
    folder : of all claims; trained encoders are kept in its `trainings`, which claims share
    network : for images; None embeds rows as they are
    n_rows : take only the first so many training rows
    encoder : of tables and vectors
    """

    data: Dataset
    folder: Path
    network: Network | None = None
    n_rows: int | None = None
    encoder: str = "auto"
    progress: Progress = field(default=lambda _: None)

    @property
    def encoder_words(self) -> str:
        """What the reports of this bench say of their encoder."""
        if self._trained is None:
            return fixed_words(self.data, self.encoder, self.n_rows)
        return network_words(self._trained, self.n_rows)

    def answers(self, ask: Ask) -> bool:
        """Whether a method answers: where there is no head, logistic regression stands in."""
        is_trained = self._trained is not None
        return {HEAD: is_trained, STANDS_IN: not is_trained}.get(ask.method, True)

    @property
    def _trained(self) -> Network | None:
        return self.network if is_pictures(self.data) else None

    def scene(self, stress: Stress, seed: int, shift: Shift = NO_SHIFT) -> Scene:
        """Rows damaged and embedded; images after the training of their encoder."""
        if self._trained is None:
            if shift.severity:
                raise InvalidSettingError(
                    f"Only images that a network is trained on can be shifted, not the rows of "
                    f"{self.data.name!r}."
                )
            return fixed_scene(self.data, stress, seed, encoder=self.encoder, n_rows=self.n_rows)
        words = f", {stress.words}" if stress.words else ""
        self.progress(f"{self.data.name}{words}: encoder, seed {seed}")
        return image_scene(
            self.data,
            stress,
            seed,
            self._trained,
            self.training_folder(stress, seed),
            n_rows=self.n_rows,
            shift=shift,
        )

    def training_folder(self, stress: Stress, seed: int) -> Path:
        """The checkpoint of a training is here."""
        assert self.network is not None
        rows = [str(self.n_rows)] if self.n_rows else []
        parts = [self.data.name, self.network.name, *rows, *filter(None, [stress.name])]
        return self.folder / "trainings" / "-".join(parts) / str(seed)


def run_cells(
    bench: Bench, claim: str, cells: Sequence[Cell], seeds: Sequence[int]
) -> dict[float | None, Table]:
    """Every cell on every seed; what has a report is read instead, if it says the same."""
    places = {cell.name: bench.folder / claim / bench.data.name / cell.name for cell in cells}
    for seed in seeds:
        missing = [c for c in cells if not (places[c.name] / str(seed) / REPORT).exists()]
        for group in _sharing(missing):
            stage = Stage(bench.scene(group[0].stress, seed, group[0].shift))
            for cell in group:
                _run_cell(bench, stage, cell, places[cell.name] / str(seed))
    return {
        cell.place: joined(
            [_read(bench, cell, places[cell.name] / str(seed) / REPORT) for seed in seeds]
        )
        for cell in cells
    }


def _run_cell(bench: Bench, stage: Stage, cell: Cell, folder: Path) -> None:
    scene = stage.scene
    found = []
    for ask in cell.asks:
        where = f", {cell.name}" if cell.name else ""
        bench.progress(f"{scene.data.name}{where}: {ask.name or ask.method}, seed {scene.seed}")
        for answers in METHODS[ask.method](stage, ask.choices):
            if answers.method == LOOKED_AT and answers.answer is not None and not cell.name:
                folder.mkdir(parents=True, exist_ok=True)
                close_up_of(scene, answers, answers.answer).to_json(folder / CLOSE_UP)
            found.append(_named(ask, answers))
    table_of(scene, found).to_json(folder / REPORT)
    if scene.training is not None:
        story = {"encoder": scene.encoder, **losses_of(scene.training)}
        (folder / "training.json").write_text(json.dumps(story, indent=1) + "\n")


def table_of(scene: Scene, found: Sequence[Found]) -> Table:
    """The answers of all methods of a scene, judged against the clean labels."""
    return Table(
        dataset=scene.data.name,
        checksum=scene.data.checksum,
        n_train=len(scene.codes),
        n_test=len(scene.truth),
        corruption=scene.damage,
        encoder=scene.encoder,
        versions=versions(),
        runs=tuple(_run(scene, answers) for answers in found),
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


def _read(bench: Bench, cell: Cell, path: Path) -> Table:
    """A report that is there, if it is one of what is asked for."""
    table = Table.from_json(path)
    asked = {
        "data": (bench.data.name, bench.data.checksum),
        "damage": cell.words,
        "encoder": bench.encoder_words,
        "methods": [ask.name or ask.method for ask in cell.asks if bench.answers(ask)],
        "choices": {repr(ask.choices) for ask in cell.asks},
    }
    found = {
        "data": (table.dataset, table.checksum),
        "damage": table.corruption,
        "encoder": table.encoder,
        "methods": list(dict.fromkeys(run.settings.get("asked") for run in table.runs)),
        "choices": {_choices(run.settings) for run in table.runs},
    }
    for name, value in asked.items():
        if found[name] != value:
            raise InvalidInputError(
                f"{path} was made with other {name}: {found[name]}, asked for {value}. "
                "Remove it to run again, or choose another folder."
            )
    return table


def _choices(settings: Mapping[str, str]) -> str:
    choices = (f"{name}={value}" for name, value in settings.items() if name != "asked")
    return f"Choices({', '.join(choices)})"


def _sharing(cells: Sequence[Cell]) -> Iterable[list[Cell]]:
    """Cells that can share a scene; damage that does nothing is none."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.words, []).append(cell)
    return groups.values()


def losses_of(training: Outcome) -> dict[str, Any]:
    """How a training went, as its file tells it."""
    return {
        "seconds": round(training.seconds, 1),
        "train losses": training.train_losses,
        "judged losses": training.judged_losses,
        "tolerance": training.tolerance,
    }


def run_sheets(
    bench: Bench, claim: str, settings: Mapping[str, Any], seeds: Sequence[int]
) -> Sheets:
    """The numbers of a claim on every seed; a seed that has a sheet is not measured again."""
    from attnknn.experiments.measures import MEASURES

    measure, notes = MEASURES[claim]
    sheets = []
    for seed in seeds:
        path = bench.folder / claim / bench.data.name / str(seed) / REPORT
        written = {name: repr(value) for name, value in settings.items()}
        if not path.exists():
            scene = bench.scene(Stress(), seed)
            bench.progress(f"{bench.data.name}: {claim}, seed {seed}")
            rows = tuple(measure(Stage(scene), settings))
            Sheet(
                claim,
                bench.data.name,
                bench.data.checksum,
                scene.encoder,
                seed,
                written,
                versions(),
                rows,
                notes,
            ).to_json(path)
        sheets.append(_read_sheet(path, bench, written))
    return Sheets(tuple(sheets))


def _read_sheet(path: Path, bench: Bench, settings: dict[str, str]) -> Sheet:
    sheet = Sheet.from_json(path)
    asked = bench.data.checksum, bench.encoder_words, settings
    found = sheet.checksum, sheet.encoder, sheet.settings
    if found != asked:
        raise InvalidInputError(
            f"{path} was made with other data, another encoder or other settings: {found[1:]}, "
            f"asked for {asked[1:]}. Remove it to run again, or choose another folder."
        )
    return sheet
