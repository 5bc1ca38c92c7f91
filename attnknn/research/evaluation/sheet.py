"""Measured numbers that are no answers to test rows: times, recalls, norms; one sheet per seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.research.evaluation.report_files import readable, write_whole

Row = dict[str, float | str]


@dataclass(frozen=True, eq=False)
class Sheet:
    """The numbers of one claim on one data set and seed.

    Parameters
    ----------
    settings : of the claim and of what embedded the rows, as JSON keeps them
    versions : of Python and the packages, and the number of threads
    rows : each with a name in its first column, `what`, and numbers in the others
    notes : what the columns mean, and how they were measured
    seconds : what measuring took, without the training of an encoder
    """

    claim: str
    dataset: str
    checksum: str
    encoder: str
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def columns(self) -> list[str]:
        """The columns of numbers, in the order in which they come up."""
        return list(dict.fromkeys(name for row in self.rows for name in row if name != "what"))

    def to_json(self, path: Path) -> None:
        """Write the sheet whole or not at all."""
        write_whole(path, {"sheet": asdict(self)})

    @classmethod
    def from_json(cls, path: Path) -> Self:
        """Read what `to_json` wrote."""
        with readable(path, "sheet of an experiment"):
            content = json.loads(path.read_text(encoding="utf-8"))["sheet"]
            rows, notes = tuple(content["rows"]), tuple(content["notes"])
            return cls(**{**content, "rows": rows, "notes": notes})


@dataclass(frozen=True, eq=False)
class Sheets:
    """Sheets of one claim and data set, one for each seed."""

    sheets: tuple[Sheet, ...]

    def __post_init__(self) -> None:
        first = self.sheets[0]
        for sheet in self.sheets[1:]:
            for name in ("claim", "dataset", "checksum", "encoder", "settings"):
                if getattr(sheet, name) != getattr(first, name):
                    raise InvalidInputError(f"Sheets to join must have the same `{name}`.")

    @property
    def first(self) -> Sheet:
        return self.sheets[0]

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return list(dict.fromkeys(str(row["what"]) for s in self.sheets for row in s.rows))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for sheet in self.sheets for name in sheet.columns))

    @property
    def seeds(self) -> list[int]:
        return [sheet.seed for sheet in self.sheets]

    def values(self, what: str, column: str) -> list[float]:
        """A number on each seed that has it."""
        return [
            float(row[column])
            for sheet in self.sheets
            for row in sheet.rows
            if row["what"] == what and column in row
        ]

    def mean(self, what: str, column: str) -> float:
        return float(np.mean(self.values(what, column)))

    def cell(self, what: str, column: str) -> str:
        """The mean over seeds, with the least and the largest where they differ; '' for none."""
        values = self.values(what, column)
        if not values:
            return ""
        ends = f" [{min(values):.4g}, {max(values):.4g}]" if min(values) < max(values) else ""
        return f"{np.mean(values):.4g}{ends}"

    def caption(self) -> str:
        """What was measured, on what."""
        seeds = ", ".join(map(str, self.seeds))
        about = f"{self.first.dataset}, encoder {self.first.encoder}, seeds {seeds}."
        ranges = "In brackets the least and the largest over seeds."
        return " ".join([about, *self.first.notes, ranges])

    def markdown(self) -> str:
        """The table for people."""
        lines: list[Sequence[str]] = [["", *self.columns], ["---", *["--:"] * len(self.columns)]]
        lines += [[what, *(self.cell(what, c) for c in self.columns)] for what in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{self.caption()}\n"
