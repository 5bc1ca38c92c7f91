"""`python -m experiments run CLAIM` measures a claim, `research` those of the research.

`python -m experiments tables` writes the pages of what was measured, `bars` prints the bars. Runs
are resumable: a seed that has a report is not run again. Data is looked for in ATTNKNN_DATA and the
user's cache; what is missing is named.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from attnknn.errors import AttnKNNError
from attnknn.research import datasets
from attnknn.research.evaluation.corruption import LabelNoise
from attnknn.research.evaluation.protocol import run
from attnknn.research.evaluation.table import Table
from attnknn.research.experiments.study import measure as measure_claim
from experiments.bars import bars, command_bars, image_bars, table_bars
from experiments.methods import METHODS, TABLE_METHODS
from experiments.pages import measured, write_pages
from experiments.research.page import write_page as write_claims
from experiments.research.results import studies
from experiments.small_tables import chapter, data_table, short_chapter, study_bars
from experiments.small_tables import measure as measure_scores

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def settings() -> dict[str, dict[str, Any]]:
    """The claims of settings.toml."""
    return tomllib.loads((HERE / "settings.toml").read_text())


SCORES = "small tables"  # the kind of a claim of which only scores are stored


def markdown_of(claim: str, name: str, chosen: dict[str, Any]) -> str:
    """Run one data set of a claim, and give its table."""
    if chosen.get("kind") == SCORES:
        return data_table(measure_scores(name, chosen, RESULTS / claim), chosen)
    return f"### {name}\n\n{measure(claim, name, chosen).markdown(against=chosen['against'])}"


def measure(claim: str, name: str, chosen: dict[str, Any]) -> Table:
    """Run one data set of a claim, or read what an earlier run left."""
    if chosen.get("kind") == "images":
        from experiments.images.measuring import Recipe
        from experiments.images.measuring import measure as measure_images

        return measure_images(Recipe.named(name), chosen["seeds"], RESULTS / chosen["folder"])
    if chosen.get("kind") == "vit":
        from experiments.vit.measuring import LAYERS
        from experiments.vit.measuring import measure as measure_layers

        return measure_layers(list(LAYERS), chosen["seeds"], RESULTS / claim / name)
    has_raw_rows = chosen.get("rows") == "raw"
    known = TABLE_METHODS if has_raw_rows else METHODS
    return run(
        datasets.load(name),
        [known[method] for method in chosen["methods"]],
        chosen["seeds"],
        encoder=None if has_raw_rows else "auto",
        corrupt=LabelNoise(**chosen["noise"]) if "noise" in chosen else None,
        folder=RESULTS / claim / name,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )


def measure_research(only: str | None = None) -> int:
    """Run every study of the research that has no reports yet; 1 if one could not be run."""
    failed = 0
    for study in studies():
        if only not in (None, study.dataset):
            continue
        try:
            measure_claim(study, lambda text: print(text, file=sys.stderr, flush=True))
        except AttnKNNError as error:
            print(f"{study.claim}, {study.dataset}: {error}", file=sys.stderr)
            failed = 1
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    claims = settings()
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="measure a claim, or print it if measured")
    running.add_argument("claim", choices=sorted(claims))
    running.add_argument("--only", metavar="DATASET", help="one data set of the claim")
    research = commands.add_parser("research", help="measure the tables of the research")
    research.add_argument("--only", metavar="DATASET", help="the studies of one data set")
    commands.add_parser("tables", help="write docs/results.md, docs/claims.md and README's tables")
    commands.add_parser("bars", help="print every bar with the figure that was measured")
    options = parser.parse_args(arguments)
    of_scores = [claim for claim, chosen in claims.items() if chosen.get("kind") == SCORES]
    if options.command == "tables":
        written = {c: chapter(claims[c], RESULTS / c) for c in of_scores}
        in_readme = [c for c in of_scores if claims[c].get("shown")]
        shown = {c: short_chapter(claims[c], RESULTS / c) for c in in_readme}
        write_pages(claims, RESULTS, written, shown)
        write_claims()
        return 0
    if options.command == "research":
        return measure_research(options.only)
    if options.command == "bars":
        tables = {claim: measured(claim, chosen, RESULTS) for claim, chosen in claims.items()}
        found = [
            *bars(tables),
            *table_bars(tables["tables"]),
            *command_bars(RESULTS / "adult_csv.json"),
            *image_bars(tables["images"]),
            *(bar for c in of_scores for bar in study_bars(claims[c], RESULTS / c)),
        ]
        for bar in found:
            print(bar)
        return 0
    chosen = claims[options.claim]
    for name in [options.only] if options.only else chosen["datasets"]:
        try:
            shown = markdown_of(options.claim, name, chosen)
        except AttnKNNError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(f"\n## {chosen['title']}\n\n{shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
