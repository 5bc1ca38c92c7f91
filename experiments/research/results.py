"""What is asked for, whether all of it was measured, and what the reports say."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from attnknn.errors import InvalidInputError
from attnknn.research.datasets import SOURCES
from attnknn.research.evaluation.sheet import Sheet, Sheets
from attnknn.research.evaluation.table import Table, joined
from attnknn.research.experiments.claims import SHEETS, Cell, cells_of, settings_of
from attnknn.research.experiments.kept import methods_of, plain
from attnknn.research.experiments.measures.index import QUERIES
from attnknn.research.experiments.methods import Choices
from attnknn.research.experiments.presets import SEEDS, preset_of
from attnknn.research.experiments.study import Study, network_for

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "research"
ASKED: list[dict[str, Any]] = tomllib.loads((HERE / "studies.toml").read_text())["study"]
DAMAGE = (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile)
ASKED_ROWS = {
    "index": f"{QUERIES} queries",
    "overhead": "{queries} queries",
    "theory": "all test rows",
}
STAND_INS = {"head", "logistic"}  # one of them answers, the other does not

Tables = Mapping[float | None, Table]
Found = Tables | Sheets


def studies(folder: Path = RESULTS) -> Iterator[Study]:
    """Everything that is to be measured, in order."""
    for asked in ASKED:
        for claim in asked["claims"]:
            yield Study(
                claim,
                asked["dataset"],
                folder,
                asked["seeds"],
                preset=asked.get("preset"),
                changes=asked.get("settings", {}),
            )


def hours() -> float:
    """The time that one core is estimated to need for everything."""
    return sum(asked["minutes"] for asked in ASKED) / 60


def words(study: Study) -> str:
    """The name of a study for people."""
    return " ".join(filter(None, [study.preset, study.claim, study.dataset]))


def missing(study: Study) -> list[Path]:
    """The reports of a study that are not there: one is asked for of every cell and seed."""
    return [path for paths in _paths(study).values() for path in paths if not path.exists()]


def missing_words(study: Study) -> str:
    """The name of a study that is not measured, and how much of it is missing."""
    n_asked = sum(len(paths) for paths in _paths(study).values())
    return f"{words(study)} ({len(missing(study))} of {n_asked} reports missing)"


def read(study: Study) -> Found:
    """The reports of a study that is measured; damaged ones are errors."""
    paths = _paths(study)
    if study.claim in SHEETS:
        sheets = [_sheet(study, path) for path in paths[""]]
        return _together(study.place, lambda: Sheets(tuple(sheets)))
    found = {}
    for cell in _cells(study):
        tables = [_table(study, cell, path) for path in paths[cell.name]]
        found[cell.place] = _together(study.place / cell.name, partial(joined, tables))
    return found


def size_words(study: Study, found: Found) -> str:
    """What a verdict rests on: data, rows, seeds."""
    if isinstance(found, Sheets):
        rows, seeds = ASKED_ROWS[study.claim].format(**found.first.settings["measure"]), found.seeds
    else:
        table = next(iter(found.values()))
        rows, seeds = f"{table.n_test:,} test rows", table.seeds
    return f"{study.dataset} ({rows}, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'})"


def _settings(study: Study) -> dict[str, Any]:
    return settings_of(study.claim, study.changes)


def _cells(study: Study) -> list[Cell]:
    choices = Choices() if study.preset is None else preset_of(study.preset).choices
    return cells_of(study.claim, _settings(study), choices)


def _asked(study: Study) -> dict[str, Any]:
    """What every report of a study was told, as far as it does not need the data."""
    network = network_for(study, SOURCES[study.dataset])
    n_rows = study.n_rows if study.preset is None else preset_of(study.preset).n_rows
    told = {"claim": study.claim, "preset": study.preset, "rows": n_rows}
    return plain({**told, "network": None if network is None else network.settings})


def _paths(study: Study) -> dict[str, list[Path]]:
    """Where the reports of each cell are, or will be."""
    names = [""] if study.claim in SHEETS else [cell.name for cell in _cells(study)]
    seeds = study.seeds or SEEDS
    return {
        name: [study.place / name / str(seed) / "report.json" for seed in seeds] for name in names
    }


def _together(place: Path, join: Callable[[], Any]) -> Any:
    try:
        return join()
    except InvalidInputError as error:
        raise InvalidInputError(f"The seeds below {place} do not go together: {error}") from error


def _table(study: Study, cell: Cell, path: Path) -> Table:
    try:
        table = Table.from_json(path)
        found = methods_of(table)
    except DAMAGE as error:
        raise _damaged(path, error) from error
    methods = cell.methods()
    same = found.items() <= methods.items() and methods.keys() - found.keys() <= STAND_INS
    asked = _asked(study) | plain(cell.settings)
    return table if same and _holds(table.settings, asked) else _refuse(path)


def _sheet(study: Study, path: Path) -> Sheet:
    try:
        sheet = Sheet.from_json(path)
    except DAMAGE as error:
        raise _damaged(path, error) from error
    asked = _asked(study) | plain({"measure": _settings(study)})
    return sheet if _holds(sheet.settings, asked) else _refuse(path)


def _holds(settings: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    return all(name in settings and settings[name] == value for name, value in asked.items())


def _refuse(path: Path) -> Any:
    raise InvalidInputError(
        f"{path} was made with other settings than studies.toml asks for. Remove it, and measure "
        "again."
    )


def _damaged(path: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{path} is damaged ({error}). Remove it, and measure again.")
