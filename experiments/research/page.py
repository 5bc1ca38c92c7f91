"""Writes docs/claims.md: for each claim the statement, what was measured, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnknn.research.experiments.study import Study
from experiments.research.claims import CLAIMS, Claim, ClaimResult
from experiments.research.results import hours, missing, missing_words, size_words, studies, words

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
INTRODUCTION = (Path(__file__).parent / "introduction.md").read_text()
TABLE = "| claim | outcome | data |\n|---|---|---|\n"


@dataclass(frozen=True)
class Entry:
    """A claim on the page.

    Parameters
    ----------
    result : ClaimResult or None
        From the complete studies; None if there is no complete one.
    data : list of str
        Data sets of these studies, with rows and seeds.
    incomplete : list of Study
        The other studies.
    """

    claim: Claim
    result: ClaimResult | None
    data: list[str]
    incomplete: list[Study]

    @property
    def outcome(self) -> str:
        """The outcome, once every study is complete."""
        if self.result is None:
            return "not measured yet"
        if self.incomplete:
            return f"measured in part; missing: {', '.join(map(words, self.incomplete))}"
        return self.result.outcome

    @property
    def row(self) -> str:
        """The row of the table."""
        return f"| {self.claim.title} | {self.outcome} | {', '.join(self.data)} |\n"

    @property
    def section(self) -> str:
        """The statement and what was measured; '' before any study is complete."""
        if self.result is None:
            return ""
        lines = "\n".join(f"- {line}" for line in self.result.lines)
        return (
            f"\n## {self.claim.title}\n\n**The documents**: {self.claim.statement}\n\n"
            f"**Measured** on {', '.join(self.data)}:\n\n{lines}\n\n"
            f"**Outcome**: {self.outcome}.\n"
        )


def write_page(asked: Sequence[Study] | None = None, path: Path = PAGE) -> None:
    """Write the page of all claims, with a list of studies that are not complete."""
    asked = list(studies()) if asked is None else asked
    entries = [_entry(claim, asked) for claim in CLAIMS]
    rows = "".join(entry.row for entry in entries)
    lacking = sorted(missing_words(study) for study in asked if missing(study))
    left = f"\nNot measured yet: {', '.join(lacking)}.\n" if lacking else ""
    sections = "".join(entry.section for entry in entries)
    time = f"Everything on this page is estimated to take {hours():.1f} hours of one core.\n"
    path.write_text(f"{INTRODUCTION}\n{time}\n{TABLE}{rows}{left}{sections}")


def _entry(claim: Claim, asked: Sequence[Study]) -> Entry:
    needed = claim.needs(asked)
    found = claim.found(asked)
    return Entry(
        claim,
        claim.evaluate(found) if found else None,
        [size_words(study, found[study.dataset]) for study in needed if study.dataset in found],
        [study for study in needed if study.dataset not in found],
    )
