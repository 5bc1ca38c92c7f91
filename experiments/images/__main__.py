"""`python -m experiments.images` trains an image encoder and compares votes with its CNN head.

A run that was stopped resumes from its last epoch. The report is written to
experiments/results/images/<data>-<width>[-<corruption>]/report.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from attnknn.errors import AttnKNNError
from experiments.images.measuring import measure
from experiments.images.recipe import CORRUPTIONS, DATA, Recipe

RESULTS = Path(__file__).parents[1] / "results" / "images"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.images", description=__doc__)
    parser.add_argument("--data", choices=DATA, default="cifar10")
    parser.add_argument("--width", choices=["wide", "narrow"], default="wide")
    parser.add_argument("--corruption", choices=list(CORRUPTIONS), default="none")
    parser.add_argument("--epochs", type=int, help="other than the settings say")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, help="number of training rows, for a quick try")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    if chosen.corruption == "worst" and chosen.data != "cifar10":
        parser.error("people's labels are known for cifar10 only")
    recipe = Recipe(chosen.data, chosen.width, chosen.epochs, chosen.rows, chosen.corruption)
    try:
        table = measure(recipe, [chosen.seed], chosen.results)
    except AttnKNNError as error:
        print(error, file=sys.stderr)
        return 1
    print(table.markdown(against="CNN head"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
