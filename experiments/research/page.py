"""Writes docs/claims.md: claim, what the documents said, what was measured, verdict."""

from __future__ import annotations

from pathlib import Path

from experiments.research.claims import CLAIMS, Claim, Judged
from experiments.research.results import Results, studies

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
INTRODUCTION = (Path(__file__).parent / "introduction.md").read_text()
TABLE = "| claim | verdict |\n|---|---|\n"


def write_page(results: Results | None = None, path: Path = PAGE) -> None:
    """The page of all claims that were measured, and a list of what is missing."""
    results = results or Results()
    judged = [(claim, claim.judge(results)) for claim in CLAIMS]
    rows = "".join(
        f"| {claim.title} | {found.verdict if found else 'not measured yet'} |\n"
        for claim, found in judged
    )
    sections = "\n".join(_section(claim, found) for claim, found in judged if found)
    missing = sorted(
        {
            " ".join(filter(None, [study.preset, study.claim, study.dataset]))
            for study in studies(results.folder)
            if not study.place.exists()
        }
    )
    left = f"\nNot measured yet: {', '.join(missing)}.\n" if missing else ""
    path.write_text(f"{INTRODUCTION}\n{TABLE}{rows}{left}\n{sections}")


def _section(claim: Claim, found: Judged) -> str:
    lines = "\n".join(f"- {line}" for line in found.lines)
    return (
        f"## {claim.title}\n\n**The documents**: {claim.said}\n\n**Measured**:\n\n{lines}\n\n"
        f"**Verdict**: {found.verdict}.\n"
    )
