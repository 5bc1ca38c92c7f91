"""What experiments left in a folder: tables, tables along an axis, and sheets of numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from attnknn.errors import InvalidInputError
from attnknn.research.evaluation.close_up import CloseUp
from attnknn.research.evaluation.sheet import Sheet, Sheets
from attnknn.research.evaluation.table import UNREADABLE, Table, joined
from attnknn.training.config import TrainResult

REPORT, TRAINING, CLOSE_UP = "report.json", "training.json", "close-up.json"
T = TypeVar("T")
ON_AXIS = re.compile(r"(?P<word>(.*/)?[A-Za-z]+)-(?P<place>\d+(\.\d+)?)")


@dataclass(frozen=True, eq=False)
class Collected:
    """All that was found, each by its path below the folder.

    Parameters
    ----------
    sweeps : tables by their place on an axis; the path ends in the word for the axis
    trainings : of the tables whose encoders were trained, by path and seed
    close_ups : of the tables that have them, one for each seed
    unread : what could not be read, and why
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    sweeps: Mapping[str, Mapping[float, Table]] = field(default_factory=dict)
    sheets: Mapping[str, Sheets] = field(default_factory=dict)
    trainings: Mapping[str, TrainResult] = field(default_factory=dict)
    close_ups: Mapping[str, list[CloseUp]] = field(default_factory=dict)
    unread: Sequence[str] = ()

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
    basket = _Basket()
    for place, paths in _by_experiment(folder).items():
        name = _name(place, folder)
        with basket.noting(name):
            basket.take(name, paths)
    single, sweeps = _along_axes(basket.tables)
    found = Collected(
        single, sweeps, basket.sheets, basket.trainings, basket.close_ups, basket.unread
    )
    if not len(found):
        raise InvalidInputError(f"Nothing below {folder} can be read. {' '.join(found.unread)}")
    return found


@dataclass
class _Basket:
    """What is read while it is read."""

    tables: dict[str, Table] = field(default_factory=dict)
    sheets: dict[str, Sheets] = field(default_factory=dict)
    trainings: dict[str, TrainResult] = field(default_factory=dict)
    close_ups: dict[str, list[CloseUp]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self, name: str = "") -> Iterator[None]:
        """What cannot be read is noted, and the rest goes on."""
        try:
            yield
        except InvalidInputError as error:
            self.unread.append(f"{name}: {error}" if name else str(error))

    def take(self, name: str, paths: Sequence[Path]) -> None:
        tables: dict[Path, Table] = {}
        sheets: list[Sheet] = []
        for path in paths:
            with self.noting():
                if "sheet" in _content(path):
                    sheets.append(_read(path, Sheet.from_json))
                else:
                    tables[path] = _table(path)
        if sheets:
            self.sheets[name] = Sheets(tuple(sheets))
        if tables:
            self.tables[name] = joined(tables.values())
        for path in tables:
            self._take_beside(name, path)

    def _take_beside(self, name: str, path: Path) -> None:
        """The training and the close-up that lie beside a report."""
        training, close_up = path.with_name(TRAINING), path.with_name(CLOSE_UP)
        if training.exists():
            with self.noting():
                self.trainings[f"{name}, seed {path.parent.name}"] = _training(training)
        if close_up.exists():
            with self.noting():
                self.close_ups.setdefault(name, []).append(_close_up(close_up))


def _by_experiment(folder: Path) -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob(REPORT)):
        is_seed = path.parent.name.isdecimal() and path.parent != folder
        found.setdefault(path.parent.parent if is_seed else path.parent, []).append(path)
    if not found:
        raise InvalidInputError(f"There is no {REPORT} below {folder}.")
    return {place: sorted(paths, key=_seed) for place, paths in found.items()}


def _along_axes(
    tables: Mapping[str, Table],
) -> tuple[dict[str, Table], dict[str, dict[float, Table]]]:
    """Tables by themselves, and those whose folders are places on one axis, in its order."""
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
    """Whether folders are places on an axis: several, all different, of the same data."""
    data = {tables[name].checksum for name in group}
    return len(group) > 1 and len(set(group.values())) == len(group) and len(data) == 1


def _content(path: Path) -> dict[str, Any]:
    content = _read(path, lambda path: json.loads(path.read_text(encoding="utf-8")))
    return content if isinstance(content, dict) else {}


def _read(path: Path, read: Callable[[Path], T]) -> T:
    """What a file holds, or an error that names it."""
    try:
        return read(path)
    except InvalidInputError:
        raise
    except UNREADABLE as error:
        raise InvalidInputError(
            f"{path} is damaged, or no file of an experiment ({type(error).__name__}: {error}). "
            "Remove it and run the experiment again."
        ) from error


def _table(path: Path) -> Table:
    table = _read(path, Table.from_json)
    if not table.runs:
        raise InvalidInputError(
            f"{path} holds no runs: nothing was measured. Remove it and run the experiment again."
        )
    return table


def _close_up(path: Path) -> CloseUp:
    found = _read(path, CloseUp.from_json)
    n_classes = len(found.classes)
    if found.confusions.shape != (n_classes, n_classes):
        raise InvalidInputError(
            f"{path} must count {n_classes} x {n_classes} confusions, got the shape "
            f"{found.confusions.shape}. Remove it and run the experiment again."
        )
    return found


def _training(path: Path) -> TrainResult:
    """The losses of a training by epoch."""
    return _read(path, lambda path: _outcome(_content(path)))


def _outcome(content: Mapping[str, Any]) -> TrainResult:
    return TrainResult(
        content["train losses"],
        content["judged losses"],
        seconds=content["seconds"],
        tolerance=content.get("tolerance", 0.0),
    )


def _name(place: Path, folder: Path) -> str:
    return folder.resolve().name if place == folder else place.relative_to(folder).as_posix()


def _seed(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name), name) if name.isdecimal() else (0, name)
