"""Reports that are there: read, and taken only for what they are of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnknn.errors import InvalidInputError
from attnknn.research.evaluation.measurements import Measurements
from attnknn.research.evaluation.table import Table


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON gives them back.

    >>> plain({"widths": (8, 16)})
    {'widths': [8, 16]}
    """
    back: dict[str, Any] = json.loads(json.dumps(settings))
    return back


def check_table(path: Path, table: Table, asked: Mapping[str, Any]) -> None:
    """An error for a table that was made with other settings than asked for."""
    found = {
        "data": (table.dataset, table.checksum),
        "seeds": table.seeds,
        "damage": table.corruption,
        "encoder": table.encoder,
        "methods": methods_of(table),
        "settings": table.settings,
    }
    _check_same(path, found, asked)


def methods_of(table: Table) -> dict[str, str]:
    """The choices that each of the methods of a table was asked for with."""
    return {run.settings.get("asked", run.method): _choices(run.settings) for run in table.runs}


def check_same_measurements(
    path: Path, measurements: Measurements, asked: Mapping[str, Any]
) -> None:
    """An error for measurements that were made with other settings than asked for."""
    found = {
        "data": (measurements.dataset, measurements.checksum),
        "encoder": measurements.encoder,
        "settings": measurements.settings,
    }
    _check_same(path, found, asked)


def _check_same(path: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    for name, value in asked.items():
        if found[name] != value:
            raise InvalidInputError(
                f"{path} was made with other {name}: {_told(found[name], value)}. "
                "Remove it to run again, or choose another folder."
            )


def _told(found: Any, asked: Any) -> str:
    """What differs; of settings only those that do."""
    if not isinstance(asked, Mapping):
        return f"{found}, asked for {asked}"
    ours, theirs = _by_path(asked), _by_path(found)
    return "; ".join(
        f"{name} {theirs.get(name, 'not told')}, asked for {ours.get(name, 'none')}"
        for name in dict.fromkeys([*ours, *theirs])
        if name not in ours or name not in theirs or ours[name] != theirs[name]
    )


def _by_path(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by names with dots."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inside = _by_path(value, f"{above}{name}.") if isinstance(value, Mapping) else {}
        found |= inside or {f"{above}{name}": value}
    return found


def _choices(settings: Mapping[str, str]) -> str:
    choices = (f"{name}={value}" for name, value in settings.items() if name != "asked")
    return f"Choices({', '.join(choices)})"
