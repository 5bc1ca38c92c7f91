"""Writes docs/claims.md: claim, what the documents said, what was measured, outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnknn.research.experiments.study import Study
from experiments.research.claims import CLAIMS, Claim, ClaimResult
from experiments.research.results import hours, missing, missing_words, size_words, studies, words

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
INTRODUCTION = (Path(__file__).parent / "introduction.md").read_text()
TABLE = "| claim | outcome | rests on |\n|---|---|---|\n"


@dataclass(frozen=True)
class Entry:
    """A claim on the page.

    Parameters
    ----------
    left_out : by the studies that are complete; None where none is
    rests_on : those studies, with rows and seeds
    lacking : the studies that are not complete
    """

    claim: Claim
    left_out: ClaimResult | None
    rests_on: list[str]
    lacking: list[Study]

    @property
    def outcome(self) -> str:
        """In words; there is none before every study is complete."""
        if self.left_out is None:
            return "not measured yet"
        if self.lacking:
            return f"measured in part; missing: {', '.join(map(words, self.lacking))}"
        return self.left_out.outcome

    @property
    def row(self) -> str:
        """The line of the table."""
        return f"| {self.claim.title} | {self.outcome} | {', '.join(self.rests_on)} |\n"

    @property
    def section(self) -> str:
        """What was said and what was measured; '' for nothing measured."""
        if self.left_out is None:
            return ""
        lines = "\n".join(f"- {line}" for line in self.left_out.lines)
        return (
            f"\n## {self.claim.title}\n\n**The documents**: {self.claim.said}\n\n"
            f"**Measured** on {', '.join(self.rests_on)}:\n\n{lines}\n\n"
            f"**Verdict**: {self.outcome}.\n"
        )


def write_page(asked: Sequence[Study] | None = None, path: Path = PAGE) -> None:
    """The page of all claims that were measured, and a list of what is missing."""
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
        claim.judge(found) if found else None,
        [size_words(study, found[study.dataset]) for study in needed if study.dataset in found],
        [study for study in needed if study.dataset not in found],
    )
