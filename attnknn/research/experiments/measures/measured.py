"""Numbers that were measured, with what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from attnknn.research.evaluation.measurements import Row


@dataclass(frozen=True, eq=False)
class Measured:
    """The rows of a measured_, and notes on its columns and on how they were measured."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
