"""Reads all reports below a folder: tables, sweeps and measurements."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnknn.errors import InvalidInputError
from attnknn.research.evaluation.error_analysis import ErrorAnalysis
from attnknn.research.evaluation.illustrations import Illustrations
from attnknn.research.evaluation.measurements import MeasurementSet
from attnknn.research.evaluation.report import REPORT, read_report
from attnknn.research.evaluation.table import Table
from attnknn.training.config import TrainResult

ON_AXIS = re.compile(r"(?P<word>(.*/)?[A-Za-z]+)-(?P<place>\d+(\.\d+)?)")


@dataclass(frozen=True, eq=False)
class Collected:
    """The content of all reports, by path below the folder."""

    tables: Mapping[str, Table] = field(default_factory=dict)
    # tables by their place on an axis; the path ends in the word for the axis
    sweeps: Mapping[str, Mapping[float, Table]] = field(default_factory=dict)
    measurements: Mapping[str, MeasurementSet] = field(default_factory=dict)
    # of the tables whose encoders were trained, by path and seed
    trainings: Mapping[str, TrainResult] = field(default_factory=dict)
    # of the tables that have them, by method, one for each seed
    error_analyses: Mapping[str, Mapping[str, list[ErrorAnalysis]]] = field(default_factory=dict)
    # of the tables that have them, with their seed
    illustrations: Mapping[str, tuple[int, Illustrations]] = field(default_factory=dict)
    unread: Sequence[str] = ()  # what could not be read, and why

    def __len__(self) -> int:
        return len(self.tables) + len(self.sweeps) + len(self.measurements)

    @property
    def n_runs(self) -> int:
        """Number of runs: methods on seeds."""
        swept = [table for sweep in self.sweeps.values() for table in sweep.values()]
        in_tables = sum(len(table.runs) for table in [*self.tables.values(), *swept])
        return in_tables + sum(len(found.by_seed) for found in self.measurements.values())


def collected(folder: str | Path) -> Collected:
    """Read every report below `folder`; what cannot be read is named in `unread`."""
    folder = Path(folder)
    paths = sorted(folder.rglob(REPORT))
    if not paths:
        raise InvalidInputError(f"There is no {REPORT} below {folder}.")
    tables: dict[str, Table] = {}
    measurements: dict[str, MeasurementSet] = {}
    trainings: dict[str, TrainResult] = {}
    error_analyses: dict[str, dict[str, list[ErrorAnalysis]]] = {}
    illustrations: dict[str, tuple[int, Illustrations]] = {}
    unread: list[str] = []
    for path in paths:
        name = _name(path.parent, folder)
        try:
            report = read_report(path)
            together = report.measurement_set
        except InvalidInputError as error:
            unread.append(f"{name}: {error}")
            continue
        if together is not None:
            measurements[name] = together
        for cell, table in report.tables.items():
            if table.runs:
                tables[_below(name, cell)] = table
            else:
                unread.append(f"{path} holds no runs. Remove it and run the experiment again.")
        for cell, by_seed in report.trainings.items():
            for seed, stored in by_seed.items():
                if "train_losses" in stored:
                    trainings[f"{_below(name, cell)}, seed {seed}"] = _outcome(stored)
        for cell, analyses in report.error_analyses.items():
            by_method = error_analyses.setdefault(_below(name, cell), {})
            for analysis in itertools.chain(*analyses.values()):
                by_method.setdefault(analysis.method, []).append(analysis)
        for cell, drawn in report.illustrations.items():
            illustrations[_below(name, cell)] = next(iter(drawn.items()))
    single, sweeps = _along_axes(tables)
    found = Collected(
        single, sweeps, measurements, trainings, error_analyses, illustrations, unread
    )
    if not len(found):
        raise InvalidInputError(f"Nothing below {folder} can be read. {' '.join(found.unread)}")
    return found


def _below(name: str, cell: str) -> str:
    return f"{name}/{cell}" if cell else name


def _along_axes(
    tables: Mapping[str, Table],
) -> tuple[dict[str, Table], dict[str, dict[float, Table]]]:
    """Separate single tables from sweeps: cells that are named by positions on an axis."""
    groups: dict[str, dict[str, float]] = {}
    for name in tables:
        match = ON_AXIS.fullmatch(name)
        if match is not None:
            groups.setdefault(match["word"], {})[name] = float(match["place"])
    sweeps = {
        word: {place: tables[name] for name, place in sorted(group.items(), key=lambda x: x[1])}
        for word, group in groups.items()
        if _is_axis(group, tables)
    }
    swept = {name for word in sweeps for name in groups[word]}
    return {name: table for name, table in tables.items() if name not in swept}, sweeps


def _is_axis(group: Mapping[str, float], tables: Mapping[str, Table]) -> bool:
    """Whether cells are different positions on an axis, with the same data."""
    data = {tables[name].checksum for name in group}
    return len(group) > 1 and len(set(group.values())) == len(group) and len(data) == 1


def _outcome(content: Mapping[str, Any]) -> TrainResult:
    return TrainResult(
        content["train_losses"],
        content["validation_losses"],
        seconds=content["seconds"],
        tolerance=content.get("tolerance", 0.0),
        components=content.get("components", {}),
    )


def _name(place: Path, folder: Path) -> str:
    return folder.resolve().name if place == folder else place.relative_to(folder).as_posix()
