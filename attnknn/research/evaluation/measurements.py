"""Measured numbers that are not predictions of test rows: times, recalls, norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from attnknn._escape import markdown_text
from attnknn.errors import InvalidInputError

Row = dict[str, float | str]


@dataclass(frozen=True, eq=False)
class Measurements:
    """The measurements of one claim on one data set and seed."""

    claim: str
    dataset: str
    checksum: str
    encoder: str
    seed: int
    settings: dict[str, Any]  # settings of the claim and of the encoder, as JSON stores them
    versions: dict[str, str]  # versions of Python and packages, and the number of threads
    rows: tuple[Row, ...]  # each has a name in the column `what`, and numbers in the others
    notes: tuple[str, ...] = ()  # what the columns mean, and how they were measured
    seconds: float = 0.0  # time of the measurements, without the training of an encoder

    @property
    def columns(self) -> list[str]:
        """Names of the columns with numbers, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row if name != "what"))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore measurements from the dictionary that JSON stores."""
        return cls(**{**stored, "rows": tuple(stored["rows"]), "notes": tuple(stored["notes"])})


@dataclass(frozen=True, eq=False)
class MeasurementSet:
    """Measurements of one claim and data set on several seeds."""

    by_seed: tuple[Measurements, ...]

    def __post_init__(self) -> None:
        first = self.by_seed[0]
        for one in self.by_seed[1:]:
            for name in ("claim", "dataset", "checksum", "encoder", "settings"):
                if getattr(one, name) != getattr(first, name):
                    raise InvalidInputError(f"Measurements to join must have the same `{name}`.")

    @property
    def first(self) -> Measurements:
        return self.by_seed[0]

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return list(dict.fromkeys(str(row["what"]) for m in self.by_seed for row in m.rows))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.by_seed for name in one.columns))

    @property
    def seeds(self) -> list[int]:
        return [one.seed for one in self.by_seed]

    def values(self, what: str, column: str) -> list[float]:
        """A number on each seed that has it."""
        return [
            float(row[column])
            for one in self.by_seed
            for row in one.rows
            if row["what"] == what and column in row
        ]

    def mean(self, what: str, column: str) -> float:
        return float(np.mean(self.values(what, column)))

    def cell(self, what: str, column: str) -> str:
        """The mean over seeds, with minimum and maximum where they differ; '' without values."""
        values = self.values(what, column)
        if not values:
            return ""
        ends = f" [{min(values):.4g}, {max(values):.4g}]" if min(values) < max(values) else ""
        return f"{np.mean(values):.4g}{ends}"

    def caption(self) -> str:
        """Data, encoder and seeds, and what the columns mean."""
        seeds = ", ".join(map(str, self.seeds))
        about = f"{self.first.dataset}, encoder {self.first.encoder}, seeds {seeds}."
        ranges = "In brackets the least and the largest over seeds."
        return " ".join([about, *self.first.notes, ranges])

    def markdown(self) -> str:
        """The table as Markdown, with its caption."""
        lines: list[Sequence[str]] = [["", *self.columns], ["---", *["--:"] * len(self.columns)]]
        lines += [[what, *(self.cell(what, c) for c in self.columns)] for what in self.rows]
        body = "\n".join(f"| {' | '.join(map(markdown_text, line))} |" for line in lines)
        return f"{body}\n\n{markdown_text(self.caption())}\n"
