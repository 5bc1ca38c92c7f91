"""How soon the first answer comes, beside an earlier commit: `python -m benchmarks.first_answer`.

The earlier commit is exported from git to a temporary folder. Both versions run in turns, each time
in a new process. Times are processor seconds, which other programs change little.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.search import machine, show

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "first_answer.json"
BASELINE = "fda1bf0"
BEFORE, NOW = "before", "now"
COMMANDS = {
    "attnknn --help": ["--help"],
    "attnknn predict, 3 rows": ["predict", "model", "few.csv"],
    "attnknn predict, 150 rows": ["predict", "model", "rows.csv"],
    "attnknn predict --sets, 3 rows": ["predict", "model", "few.csv", "--sets", "0.9"],
    "attnknn explain, 3 rows": ["explain", "model", "few.csv"],
    "attnknn fit, 150 rows": ["fit", "train.csv", "--target", "target", "-o", "new", "--force"],
}
START = """
import os, time, warnings
import numpy as np, pandas as pd
from sklearn.datasets import load_iris, make_classification
from attnknn import AttnKNNClassifier
warnings.simplefilter("ignore")
import attnknn
assert attnknn.__file__.startswith(os.environ["PYTHONPATH"] + os.sep), attnknn.__file__

def seconds(work, repeats=1):
    started = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - started) / repeats

def mixed_table(n_rows=500):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({f"n{i}": rng.normal(size=n_rows) for i in range(9)})
    for i in range(6):
        table[f"c{i}"] = rng.choice(list("abcdef"), n_rows)
    score = table["n0"] + table["n1"] * table["n2"] + 1.5 * (table["c0"] == "a")
    return table, (score + 0.5 * rng.normal(size=n_rows) > 0.3).astype(int)

def seconds_of_one_row(clf, row):
    clf.predict_proba(row)
    return seconds(lambda: clf.predict_proba(row), 200)

def fit_iris():
    return AttnKNNClassifier(random_state=0).fit(*load_iris(return_X_y=True))
"""
WORK = {
    "first fit in a process, 150 rows": "print(seconds(fit_iris))",
    "next fit, 150 rows": "fit_iris(); print(seconds(fit_iris, 5))",
    "predict_proba of one row, 15 columns of numbers and texts, attention='distance'": """
table, y = mixed_table()
clf = AttnKNNClassifier(encoder="tabular", attention="distance", random_state=0).fit(table, y)
print(seconds_of_one_row(clf, table.iloc[[0]]))
""",
    "predict_proba of one row, 15 columns of numbers and texts, default attention": """
table, y = mixed_table()
clf = AttnKNNClassifier(encoder="tabular", random_state=0).fit(table, y)
print(seconds_of_one_row(clf, table.iloc[[0]]))
""",
    "predict_proba of one row, 15 columns of numbers, default attention": """
X, y = make_classification(500, 15, n_informative=8, n_classes=3, random_state=0)
print(seconds_of_one_row(AttnKNNClassifier(random_state=0).fit(X, y), X[:1]))
""",
}
LONG = {  # measured once
    "fit of 400 rows of 3,000 columns": """
X, y = make_classification(400, 3000, n_informative=30, random_state=0)
print(seconds(lambda: AttnKNNClassifier(random_state=0).fit(X, y)))
""",
    "fit of 4,000 rows, encoder='learned-tabular'": """
X, y = make_classification(4000, 16, n_informative=8, n_classes=3, random_state=0)
clf = AttnKNNClassifier(encoder="learned-tabular", random_state=0)
print(seconds(lambda: clf.fit(X, y)))
""",
}
BUSY = "next fit, 150 rows"


def main() -> None:
    """Measure both versions, print the ratios, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--baseline", default=BASELINE, help="commit to compare with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="commands and small tables only")
    options = parser.parse_args(sys.argv[1:] if __name__ == "__main__" else [])
    report: dict[str, Any] = {"machine": machine(), "repeats": options.repeats}
    with tempfile.TemporaryDirectory() as scratch:
        sources = {BEFORE: exported(options.baseline, Path(scratch) / "before"), NOW: HERE.parent}
        folders = {
            source: prepare(source, Path(scratch) / f"rows {name}")
            for name, source in sources.items()
        }
        for title, arguments in COMMANDS.items():
            measure = partial(command, arguments=arguments, folders=folders)
            compare(report, title, sources, options.repeats, measure)
        for title, code in WORK.items():
            compare(report, title, sources, options.repeats, partial(work, code=code))
        for title, code in () if options.quick else LONG.items():
            compare(report, title, sources, 1, partial(work, code=code))
        with busy_cores():
            title = f"{BUSY}, while all cores are busy"
            compare(report, title, sources, options.repeats, partial(work, code=WORK[BUSY]))
    if not options.quick:
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def compare(
    report: dict[str, Any],
    title: str,
    sources: dict[str, Path],
    repeats: int,
    measure: Callable[[Path], float],
) -> None:
    """Measure the versions in turns, so that both meet the same load."""
    found: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(repeats):
        for name, source in sources.items():
            found[name].append(measure(source))
    report[title] = show(title, found, BEFORE)


def exported(commit: str, folder: Path) -> Path:
    """The package as it was at a commit."""
    packed = subprocess.run(
        ["git", "-C", str(HERE.parent), "archive", commit, "attnknn"],
        capture_output=True,
        check=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def prepare(source: Path, folder: Path) -> Path:
    """A folder with files of rows, and the model of 150 rows that a version fits by default."""
    from sklearn.datasets import load_iris

    folder.mkdir()
    table = load_iris(as_frame=True).frame
    table.to_csv(folder / "train.csv", index=False)
    rows = table.drop(columns="target")
    rows.to_csv(folder / "rows.csv", index=False)
    rows[:3].to_csv(folder / "few.csv", index=False)
    _run(source, ["fit", "train.csv", "--target", "target", "-o", "model"], folder)
    return folder


def command(source: Path, arguments: list[str], folders: dict[Path, Path]) -> float:
    """Processor seconds of a command, from start to end."""
    before = _of_children()
    _run(source, arguments, folders[source])
    return _of_children() - before


def _run(source: Path, arguments: list[str], folder: Path) -> None:
    run = [sys.executable, "-m", "attnknn", *arguments]
    subprocess.run(run, cwd=folder, env=_environment(source), capture_output=True, check=True)


def work(source: Path, code: str) -> float:
    """Processor seconds that code measures itself and prints."""
    done = subprocess.run(
        [sys.executable, "-c", START + code],
        cwd=source.anchor,  # Python would import from the working directory first
        env=_environment(source),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process on each core that never waits."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source.resolve())}


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
