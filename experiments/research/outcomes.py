"""Rules that turn measured differences and ranges into the outcome for one part of a claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from attnknn.research.evaluation.intervals import Interval

HOLDS, FAILS, PARTLY, MIXED = "holds", "does not hold", "holds in part", "mixed"
SAME, UNDECIDED = "no difference is seen", "not decided"


@dataclass(frozen=True)
class Part:
    """One part of a claim: its subject, its outcome, and how many figures support it."""

    about: str
    outcome: str
    counts: str

    def __str__(self) -> str:
        return f"{self.about}: {self.counts}"


@dataclass(frozen=True)
class Region:
    """The range in which a figure must lie for a claim to be true."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, figure: Interval) -> bool:
        """Whether the whole interval lies inside."""
        return self.low <= figure.lower and figure.upper <= self.high

    def misses(self, figure: Interval) -> bool:
        """Whether the whole interval lies outside, on one side."""
        return figure.upper < self.low or figure.lower > self.high


def by_signs(about: str, gaps: Sequence[Interval], *, better: int) -> Part:
    """Outcome of "it is better": differences count if their intervals exclude zero.

    It holds if some are better and none is worse, and fails if some are worse and none is better.

    >>> by_signs("log-loss", [Interval(-0.2, -0.3, -0.1), Interval(0.0, -0.1, 0.1)], better=-1)
    Part(about='log-loss', outcome='holds', counts='better on 1, worse on 0, level on 1 of 2')
    """
    sides = [better * _side(gap) for gap in gaps]
    n_better, n_worse, n_level = (sides.count(side) for side in (1, -1, 0))
    outcome = {
        (True, True): MIXED,
        (True, False): HOLDS,
        (False, True): FAILS,
        (False, False): SAME,
    }[n_better > 0, n_worse > 0]
    counts = f"better on {n_better}, worse on {n_worse}, level on {n_level} of {len(gaps)}"
    return Part(about, outcome, counts)


def by_region(about: str, figures: Sequence[Interval], region: Region) -> Part:
    """Outcome of "it lies in the region": it holds if all intervals lie inside.

    It fails if some lie outside and none inside; an interval across a border decides nothing.

    >>> by_region("gap", [Interval(0.07, 0.06, 0.08)], Region(0.05, 0.09))
    Part(about='gap', outcome='holds', counts='true of 1, false of 0, not decided on 0 of 1')
    >>> by_region("gap", [Interval(0.01, 0.0, 0.02)], Region(0.05, 0.09)).counts
    'true of 0, false of 1 (below), not decided on 0 of 1'
    """
    n_true = sum(region.holds(figure) for figure in figures)
    n_false = sum(region.misses(figure) for figure in figures)
    n_open = len(figures) - n_true - n_false
    where = _where(figures, region)
    counts = (
        f"true of {n_true}, false of {n_false}{where}, not decided on {n_open} of {len(figures)}"
    )
    if n_false:
        return Part(about, MIXED if n_true else FAILS, counts)
    return Part(about, HOLDS if n_true and not n_open else UNDECIDED, counts)


def _where(figures: Sequence[Interval], region: Region) -> str:
    """The sides of the region on which figures miss it."""
    sides = {
        "below": any(figure.upper < region.low for figure in figures),
        "above": any(figure.lower > region.high for figure in figures),
    }
    found = " and ".join(side for side, is_there in sides.items() if is_there)
    return f" ({found})" if found else ""


def combined_outcome(parts: Sequence[Part]) -> str:
    """The outcome of a claim from those of its parts."""
    found = {part.outcome for part in parts}
    if len(found) == 1:
        return found.pop()
    if HOLDS in found:
        return PARTLY
    return next(outcome for outcome in (MIXED, FAILS, UNDECIDED) if outcome in found)


def _side(gap: Interval) -> int:
    if not gap.excludes_zero():
        return 0
    return 1 if gap.mean > 0 else -1
