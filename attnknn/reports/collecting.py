"""The tables that experiments left in a folder."""

from __future__ import annotations

from pathlib import Path

from attnknn.errors import InvalidInputError
from attnknn.evaluation.table import Table, joined

REPORT = "report.json"


def tables_below(folder: str | Path) -> dict[str, Table]:
    """Every table below `folder`, by its path there; seeds of one experiment are one table."""
    folder = Path(folder)
    found: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob(REPORT)):
        is_seed = path.parent.name.isdecimal() and path.parent != folder
        found.setdefault(path.parent.parent if is_seed else path.parent, []).append(path)
    if not found:
        raise InvalidInputError(f"There is no {REPORT} below {folder}.")
    return {
        _name(place, folder): joined([_read(path) for path in sorted(paths, key=_seed)])
        for place, paths in found.items()
    }


def _read(path: Path) -> Table:
    try:
        return Table.from_json(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is no report of an experiment: {error}") from error


def _name(place: Path, folder: Path) -> str:
    return folder.resolve().name if place == folder else place.relative_to(folder).as_posix()


def _seed(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name), name) if name.isdecimal() else (0, name)
