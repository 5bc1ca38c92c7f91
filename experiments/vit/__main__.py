"""`python -m experiments.vit --layer NAME --seed S` runs one model of the comparison.

Two of them side by side use two cores better than one after the other. A run that was stopped goes
on from its last epoch; `python -m experiments run vit` runs what is left and prints the table.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from attnknn.errors import AttnKNNError
from experiments.vit.measuring import LAYERS, measure

RESULTS = Path(__file__).parents[1] / "results" / "vit" / "cifar10-vit"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.vit", description=__doc__)
    parser.add_argument("--layer", choices=list(LAYERS), action="append")
    parser.add_argument("--seed", type=int, action="append")
    chosen = parser.parse_args(arguments)
    try:
        for seed in chosen.seed or [0, 1, 2]:
            for layer in chosen.layer or LAYERS:
                table = measure([layer], [seed], RESULTS)
                print(f"{layer}, seed {seed}: accuracy {table.mean('accuracy', layer):.4f}")
    except AttnKNNError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
