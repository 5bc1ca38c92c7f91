"""What experiments left in a folder: tables, tables along an axis, and sheets of numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnknn.errors import InvalidInputError
from attnknn.evaluation.close_up import CloseUp
from attnknn.evaluation.sheet import Sheet, Sheets
from attnknn.evaluation.table import Table, joined
from attnknn.learning.course import Outcome

REPORT, TRAINING, CLOSE_UP = "report.json", "training.json", "close-up.json"
ON_AXIS = re.compile(r"(?P<word>[A-Za-z]+)-(?P<place>\d+(\.\d+)?)")


@dataclass(frozen=True, eq=False)
class Collected:
    """All that was found, each by its path below the folder.

    Parameters
    ----------
    sweeps : tables by their place on an axis; the path ends in the word for the axis
    trainings : of the tables whose encoders were trained, by path and seed
    close_ups : of the tables that have them, one for each seed
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    sweeps: Mapping[str, Mapping[float, Table]] = field(default_factory=dict)
    sheets: Mapping[str, Sheets] = field(default_factory=dict)
    trainings: Mapping[str, Outcome] = field(default_factory=dict)
    close_ups: Mapping[str, list[CloseUp]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tables) + len(self.sweeps) + len(self.sheets)

    @property
    def n_runs(self) -> int:
        """How many methods ran on how many seeds, in all."""
        swept = [table for sweep in self.sweeps.values() for table in sweep.values()]
        in_tables = sum(len(table.runs) for table in [*self.tables.values(), *swept])
        return in_tables + sum(len(sheets.sheets) for sheets in self.sheets.values())


def collected(folder: str | Path) -> Collected:
    """Every report below `folder`; seeds of one experiment are one table."""
    folder = Path(folder)
    tables: dict[str, Table] = {}
    sheets: dict[str, Sheets] = {}
    trainings: dict[str, Outcome] = {}
    close_ups: dict[str, list[CloseUp]] = {}
    for place, paths in _by_experiment(folder).items():
        name = _name(place, folder)
        if "sheet" in _content(paths[0]):
            sheets[name] = Sheets(tuple(Sheet.from_json(path) for path in paths))
            continue
        tables[name] = joined([_read(path) for path in paths])
        for path in paths:
            training = path.with_name(TRAINING)
            if training.exists():
                trainings[f"{name}, seed {path.parent.name}"] = _training(training)
            close_up = path.with_name(CLOSE_UP)
            if close_up.exists():
                close_ups.setdefault(name, []).append(CloseUp.from_json(close_up))
    single, sweeps = _along_axes(tables)
    return Collected(single, sweeps, sheets, trainings, close_ups)


def _by_experiment(folder: Path) -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob(REPORT)):
        is_seed = path.parent.name.isdecimal() and path.parent != folder
        found.setdefault(path.parent.parent if is_seed else path.parent, []).append(path)
    if not found:
        raise InvalidInputError(f"There is no {REPORT} below {folder}.")
    return {place: sorted(paths, key=_seed) for place, paths in found.items()}


def with_shared_methods(tables: Mapping[float, Table]) -> dict[float, Table]:
    """The same tables without methods that some of them lack."""
    shared = set.intersection(*(set(table.methods) for table in tables.values()))
    return {
        place: replace(table, runs=tuple(run for run in table.runs if run.method in shared))
        for place, table in tables.items()
    }


def _along_axes(
    tables: Mapping[str, Table],
) -> tuple[dict[str, Table], dict[str, dict[float, Table]]]:
    """Tables by themselves, and those whose folders are places on one axis, in its order."""
    groups: dict[str, dict[float, Table]] = {}
    single = {}
    for name, table in tables.items():
        above, _, last = name.rpartition("/")
        match = ON_AXIS.fullmatch(last)
        if match is None:
            single[name] = table
        else:
            word = f"{above}/{match['word']}" if above else match["word"]
            groups.setdefault(word, {})[float(match["place"])] = table
    sweeps = {}
    for word, group in groups.items():
        if len(group) > 1:
            sweeps[word] = with_shared_methods(dict(sorted(group.items())))
        else:
            single |= {f"{word}-{place:g}": table for place, table in group.items()}
    return single, sweeps


def _content(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is no report of an experiment: {error}") from error
    return content if isinstance(content, dict) else {}


def _read(path: Path) -> Table:
    try:
        return Table.from_json(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is no report of an experiment: {error}") from error


def _training(path: Path) -> Outcome:
    """The losses of a training by epoch."""
    content: Any = _content(path)
    try:
        return Outcome(
            content["train losses"],
            content["judged losses"],
            seconds=content["seconds"],
            tolerance=content.get("tolerance", 0.0),
        )
    except KeyError as error:
        raise InvalidInputError(f"{path} does not tell of a training: {error}") from error


def _name(place: Path, folder: Path) -> str:
    return folder.resolve().name if place == folder else place.relative_to(folder).as_posix()


def _seed(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name), name) if name.isdecimal() else (0, name)
