"""The studies of `studies.toml`: which are complete, and what their reports hold."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attnknn.errors import InvalidInputError
from attnknn.research.datasets import SOURCES
from attnknn.research.evaluation.measurements import MeasurementSet
from attnknn.research.evaluation.protocol import method_settings
from attnknn.research.evaluation.report import REPORT, Report, read_report
from attnknn.research.evaluation.table import Table
from attnknn.research.experiments.claims import MEASURED, Cell, cells_of, settings_of
from attnknn.research.experiments.measures import QUERIES
from attnknn.research.experiments.methods import MethodSettings
from attnknn.research.experiments.networks import Network
from attnknn.research.experiments.presets import SEEDS, preset_of
from attnknn.research.experiments.running import plain
from attnknn.research.experiments.study import Study, network_for

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "research"
ASKED: list[dict[str, Any]] = tomllib.loads((HERE / "studies.toml").read_text())["study"]
ASKED_ROWS = {
    "index": f"{QUERIES} queries",
    "overhead": "{queries} queries",
    "theory": "all test rows",
}
ALTERNATIVES = {"head", "logistic"}  # only one of them runs
USUAL = Network("", epochs=1)

Tables = Mapping[float | None, Table]
Found = Tables | MeasurementSet


def studies(folder: Path = RESULTS) -> Iterator[Study]:
    """All studies, in order."""
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
    """Estimated hours of one core for all studies."""
    return sum(asked["minutes"] for asked in ASKED) / 60


def words(study: Study) -> str:
    """The name of a study."""
    return " ".join(filter(None, [study.preset, study.claim, study.dataset]))


def missing(study: Study) -> list[tuple[str, int]]:
    """The cells and seeds of a study that its report does not have."""
    report = _report(study)
    if study.claim in MEASURED:
        return [("", seed) for seed in _seeds(study) if seed not in report.measurements]
    return [
        (cell.name, seed)
        for cell in _cells(study)
        for seed in _seeds(study)
        if report.table(cell.name, seed) is None
    ]


def missing_words(study: Study) -> str:
    """The name of an incomplete study, and how much of it is missing."""
    n_cells = 1 if study.claim in MEASURED else len(_cells(study))
    n_asked = n_cells * len(_seeds(study))
    return f"{words(study)} ({len(missing(study))} of {n_asked} reports missing)"


def read(study: Study) -> Found:
    """What a complete study measured; settings other than asked for are errors."""
    report, path = _report(study), study.place / REPORT
    if study.claim in MEASURED:
        asked = _asked(study) | plain({"measure": _settings(study)})
        found = [report.measurements[seed] for seed in _seeds(study)]
        for one in found:
            _check_settings(path, one.settings, asked)
        return MeasurementSet(tuple(found))
    tables = {}
    for cell in _cells(study):
        table = report.tables[cell.name].with_seeds(_seeds(study))
        _check_table(study, cell, table)
        tables[cell.place] = table
    return tables


def size_words(study: Study, found: Found) -> str:
    """Data set, rows and seeds of a study."""
    if isinstance(found, MeasurementSet):
        rows, seeds = ASKED_ROWS[study.claim].format(**found.first.settings["measure"]), found.seeds
    else:
        table = next(iter(found.values()))
        rows, seeds = f"{table.n_test:,} test rows", table.seeds
    return f"{study.dataset} ({rows}, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'})"


def _settings(study: Study) -> dict[str, Any]:
    return settings_of(study.claim, study.changes)


def _cells(study: Study) -> list[Cell]:
    options = MethodSettings() if study.preset is None else preset_of(study.preset).options
    return cells_of(study.claim, _settings(study), options)


def _asked(study: Study) -> dict[str, Any]:
    """Settings that every report of a study must have, as far as they need no data."""
    network = network_for(study, SOURCES[study.dataset])
    n_rows = study.n_rows if study.preset is None else preset_of(study.preset).n_rows
    settings = {"claim": study.claim, "preset": study.preset, "rows": n_rows}
    return plain({**settings, "network": None if network is None else network.settings})


def _seeds(study: Study) -> list[int]:
    return list(study.seeds or SEEDS)


@cache
def _read_once(path: Path, _changed: int) -> Report:
    return read_report(path)


def _report(study: Study) -> Report:
    path = study.place / REPORT
    return _read_once(path, path.stat().st_mtime_ns) if path.exists() else Report()


def _check_table(study: Study, cell: Cell, table: Table) -> None:
    found, methods = method_settings(table), cell.methods()
    path = study.place / REPORT
    is_same = found.items() <= methods.items() and methods.keys() - found.keys() <= ALTERNATIVES
    asked = _asked(study) | plain(cell.settings)
    _check_settings(path, table.settings, asked, is_same=is_same)


def _filled(stored: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings with the usual values of those that did not exist when they were stored.

    >>> _filled({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}, "d": 4})
    {'a': {'b': 1, 'c': 3}, 'd': 4}
    """
    nested = {k: _filled(v, usual[k]) for k, v in stored.items() if isinstance(usual.get(k), dict)}
    return {**usual, **stored, **nested}


def _network(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored settings of a network, as they would be stored now."""
    known = {name: value for name, value in stored.items() if name != "cut" or value}
    return _filled(known, plain(USUAL.settings))  # `cut` described presets, and is empty elsewhere


def _check_settings(
    path: Path, settings: Mapping[str, Any], asked: Mapping[str, Any], *, is_same: bool = True
) -> None:
    if settings.get("network"):
        settings = {**settings, "network": _network(settings["network"])}
    holds = all(name in settings and settings[name] == value for name, value in asked.items())
    if not (is_same and holds):
        raise InvalidInputError(
            f"{path} was made with other settings than studies.toml asks for. Remove it, and "
            "measure again."
        )
