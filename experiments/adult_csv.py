"""`python -m experiments.adult_csv`: the Adult table by the command line alone.

Writes the two CSV files with a header line, without the dots behind the test labels, runs
`attnknn fit adult-train.csv --target income` and `attnknn evaluate`, and prints what they print.
Run nothing else meanwhile: it measures time.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attnknn.research import datasets
from attnknn.research.datasets.files import find_all

REPORT = Path(__file__).parent / "results" / "adult_csv.json"
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
        seconds = time.perf_counter() - started
        print(f"{'fit took':<17} {seconds:.0f} s", flush=True)
        output = subprocess.run(
            [*attnknn, "evaluate", "adult-train-model", "adult-test.csv", "--format", "json"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    metrics = json.loads(output)["scores"]
    scores = {name: metrics[name] for name in ("accuracy", "nll")}
    for name, value in metrics.items():
        print(f"{name:<17} {value:.4f}")
    REPORT.write_text(json.dumps({"fit_seconds": round(seconds, 1), **scores}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
