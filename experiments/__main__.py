"""`python -m experiments run CLAIM` measures a claim; `python -m experiments tables` writes pages.

Runs are resumable: a seed that has a report is not run again. Data is looked for in ATTNKNN_DATA
and the user's cache; what is missing is named.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from attnknn import datasets
from attnknn.errors import AttnKNNError
from attnknn.evaluation.protocol import run
from attnknn.evaluation.stress import LabelNoise
from attnknn.evaluation.table import Table
from experiments.bars import bars
from experiments.image_bars import image_bars
from experiments.methods import METHODS, TABLE_METHODS
from experiments.pages import measured, write_pages
from experiments.table_bars import table_bars

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def settings() -> dict[str, dict[str, Any]]:
    """The claims of settings.toml."""
    return tomllib.loads((HERE / "settings.toml").read_text())


def measure(claim: str, name: str, chosen: dict[str, Any]) -> Table:
    """Run one data set of a claim, or read what an earlier run left."""
    if chosen.get("kind") == "images":
        from experiments.images.measuring import measure_named

        return measure_named(name, chosen["seeds"], RESULTS / chosen["folder"])
    if chosen.get("kind") == "vit":
        from experiments.vit.measuring import measure_vits

        return measure_vits(name, chosen["seeds"], RESULTS / claim)
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


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    claims = settings()
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="measure a claim, or print it if measured")
    running.add_argument("claim", choices=sorted(claims))
    running.add_argument("--only", metavar="DATASET", help="one data set of the claim")
    commands.add_parser("tables", help="write docs/results.md and the README's table from reports")
    commands.add_parser("bars", help="print every bar with the figure that was measured")
    options = parser.parse_args(arguments)
    if options.command == "tables":
        write_pages(claims, RESULTS)
        return 0
    if options.command == "bars":
        tables = {claim: measured(claim, chosen, RESULTS) for claim, chosen in claims.items()}
        found = [*bars(tables), *table_bars(tables["tables"]), *image_bars(tables["images"])]
        for bar in found:
            print(bar)
        return 0
    chosen = claims[options.claim]
    for name in [options.only] if options.only else chosen["datasets"]:
        try:
            table = measure(options.claim, name, chosen)
        except AttnKNNError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(f"\n### {chosen['title']}: {name}\n\n{table.markdown(against=chosen['against'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
