"""What the erasure of a person costs: `python -m benchmarks.erasing`.

Prints processor seconds, with those of the process that searches the files, and the time on the
clock, which waits for the disk.
"""

from __future__ import annotations

import argparse
import os
import time
from tempfile import TemporaryDirectory

import numpy as np

from attnknn import AttnKNNClassifier, open_for_editing
from benchmarks.search import drawn

WIDTH, N_THEIRS, N_PEOPLE = 16, 500, 3


def main() -> None:
    """Erase a few people, each with 500 entries that have texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=200_000, help="entries")
    n = parser.parse_args().n
    people = [f"person-{row // N_THEIRS}" for row in range(n)]
    texts = [f"report {row} of {name}: nothing in particular" for row, name in enumerate(people)]
    clf = AttnKNNClassifier(attention="distance", calibration=None, random_state=0)
    clf.fit(drawn(n, WIDTH), np.arange(n) % 50, subjects=people, payloads=texts)
    with TemporaryDirectory() as folder:
        clf.save(f"{folder}/model")
        with open_for_editing(f"{folder}/model") as model:
            model.snapshot("before")  # creates the store
            for turn in range(N_PEOPLE):
                before, started = sum(os.times()[:4]), time.perf_counter()
                receipt = model.forget(subject=f"person-{7 * turn}")
                spent, wall = sum(os.times()[:4]) - before, time.perf_counter() - started
                print(
                    f"{len(receipt.ids)} of {n:,} entries erased, complete: {receipt.is_complete}; "
                    f"{spent:.2f} processor seconds, {wall:.2f} s on the clock",
                    flush=True,
                )


if __name__ == "__main__":
    main()
