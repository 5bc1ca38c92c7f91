"""`python -m experiments.adult_csv`: the Adult table as a user has it, by the command line alone.

Writes the two CSV files with a header line, without the dots behind the test labels, runs
`attnknn fit adult-train.csv --target income` and `attnknn evaluate`, and prints what they print.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attnknn import datasets
from attnknn.datasets.folders import find_all

COLUMNS = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)


def write_tables(folder: Path) -> None:
    """adult-train.csv and adult-test.csv, as a person would make them from the raw files."""
    for path in find_all(datasets.SOURCES["adult"]):
        lines = [
            line.strip().rstrip(".")
            for line in gzip.decompress(path.read_bytes()).decode().splitlines()
        ]
        rows = [line for line in lines if line.count(",") == COLUMNS.count(",")]
        name = path.name.removesuffix(".gz")
        (folder / name).write_text("\n".join([COLUMNS, *rows]) + "\n")


def main() -> int:
    """Fit, evaluate, print."""
    attnknn = [sys.executable, "-m", "attnknn"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        started = time.perf_counter()
        subprocess.run(
            [*attnknn, "fit", "adult-train.csv", "--target", "income"], cwd=folder, check=True
        )
        print(f"{'fit took':<17} {time.perf_counter() - started:.0f} s", flush=True)
        subprocess.run(
            [*attnknn, "evaluate", "adult-train-model", "adult-test.csv"], cwd=folder, check=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
