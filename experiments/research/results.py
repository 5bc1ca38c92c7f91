"""What the studies left, by claim and data set."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnknn.errors import InvalidInputError
from attnknn.evaluation.sheet import Sheets
from attnknn.evaluation.table import Table
from attnknn.experiments.study import Study
from attnknn.reports.collecting import Collected, collected

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "research"


def studies(folder: Path = RESULTS) -> Iterator[Study]:
    """Everything that is to be measured, in order."""
    for asked in tomllib.loads((HERE / "studies.toml").read_text())["study"]:
        for claim in asked["claims"]:
            yield Study(claim, asked["dataset"], folder, asked["seeds"], preset=asked.get("preset"))


@dataclass(frozen=True)
class Results:
    """Reports below a folder; None where something was not measured yet."""

    folder: Path = RESULTS

    def table(self, claim: str, dataset: str, preset: str | None = None) -> Table | None:
        """The table of a claim that has one."""
        found = self._found(claim, dataset, preset)
        return None if found is None else next(iter(found.tables.values()), None)

    def sweep(self, claim: str, dataset: str, preset: str | None = None) -> dict[float, Table]:
        """The tables of a claim along its axis."""
        found = self._found(claim, dataset, preset)
        if found is None or not found.sweeps:
            return {}
        return dict(next(iter(found.sweeps.values())))

    def sheets(self, claim: str, dataset: str) -> Sheets | None:
        """The numbers of a claim."""
        found = self._found(claim, dataset, None)
        return None if found is None else next(iter(found.sheets.values()), None)

    def _found(self, claim: str, dataset: str, preset: str | None) -> Collected | None:
        place = Study(claim, dataset, self.folder, preset=preset).place
        try:
            return collected(place)
        except InvalidInputError:
            return None
