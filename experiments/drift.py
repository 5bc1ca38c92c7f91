"""`python -m experiments.drift` measures the drift monitor, with and without drift.

Rows are split at random into entries and a stream, so that nothing drifts unless it is changed.
Each stream is watched in several orders for false alarms, and once for each kind of change, which
comes after 300 rows. Normally distributed rows, without a classifier, show the effect of ranking
among leave-one-out scores of entries instead of scores of separate rows. Runs are resumable.
`python -m experiments.drift table` prints the tables and writes them into docs/drift.md. Data is
looked for in ATTNKNN_DATA.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from attnknn import AttnKNNClassifier
from attnknn.insight import DriftMonitor, DriftReport
from attnknn.insight.martingale import ScoreStream
from attnknn.records import Floats, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.research.evaluation.protocol import environment
from experiments.pages import (
    ROOT,
    add_report,
    markdown,
    read_reports,
    replace_between,
    run_or_report_error,
)

RESULTS = Path(__file__).parent / "results" / "drift"
PAGE = ROOT / "docs" / "drift.md"
ENTRIES = {"digits": 1000, "banking77": 3000, "iris": 60}
SEEDS = {"digits": 20, "banking77": 10, "iris": 1}
MOST_ROWS = 3000  # of a stream
ORDERS = 5
BEFORE = 300  # rows before a change
NEW_CLASSES, NOISE, FLIPPED = 0.2, 0.5, 0.2
CASES = ((1, 100), (2, 100), (10, 100), (2, 1000))  # columns and entries of normal rows
TRIALS, NORMAL_ROWS = 200, 500
LEVELS = (10, 20)  # martingale that at most 10 % and 5 % may ever reach without drift

Rows = tuple[Any, Integers]
Change = Callable[[Any, Integers, np.random.Generator], Rows]


def noisy(X: Any, y: Integers, generator: np.random.Generator) -> Rows:
    """Noise of half the spread of each column."""
    return X + NOISE * X.std(axis=0) * generator.normal(size=X.shape), y


def mislabeled(X: Any, y: Integers, generator: np.random.Generator) -> Rows:
    """A fifth of the labels replaced by others."""
    seed = int(generator.integers(2**31))
    return X, symmetric_noise(y, FLIPPED, random_state=seed, n_classes=int(y.max()) + 1)


CHANGES: dict[str, Change] = {"noise": noisy, "wrong labels": mislabeled}


def measure(dataset: datasets.Dataset, seed: int) -> dict[str, Any]:
    """False alarms over one split of the rows, and the delay after each kind of change."""
    generator = np.random.default_rng(seed)
    X = np.concatenate([dataset.X_train, dataset.X_test])
    y = np.concatenate([dataset.y_train, dataset.y_test])
    order = generator.permutation(len(X))
    X, y, n = X[order], y[order], ENTRIES[dataset.name]
    clf = _fitted(X[:n], y[:n], seed)
    X_later, y_later = X[n : n + MOST_ROWS], y[n : n + MOST_ROWS]
    before = min(BEFORE, len(X_later) // 3)
    found = {
        name: _delay(clf, (X_later[:before], y_later[:before]), changed, seed)
        for name, change in CHANGES.items()
        for changed in [change(X_later[before:], y_later[before:], generator)]
    }
    return {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "seed": seed,
        "versions": environment(),
        "entries": n,
        "rows": len(X_later),
        "quiet": [_quiet(clf, X_later, y_later, seed, turn) for turn in range(ORDERS)],
        "changes": {**found, "new classes": _new_classes(X, y, n, before, seed)},
    }


def _fitted(X: Any, y: Integers, seed: int) -> AttnKNNClassifier:
    return AttnKNNClassifier(attention="distance", random_state=seed).fit(X, y)


def _quiet(
    clf: AttnKNNClassifier, X: Any, y: Integers, seed: int, turn: int
) -> dict[str, float | bool]:
    """The maximum of the martingale over one order of a stream without drift."""
    generator = np.random.default_rng([seed, turn])
    order = generator.permutation(len(X))
    monitor = DriftMonitor(clf, random_state=int(generator.integers(2**31)))
    seen = monitor.watch(X[order], y[order])
    return {
        "alarm": seen.alarm is not None,
        "rows": float(seen.rows.log_martingale.max()),
        "labels": float(seen.labels.log_martingale.max()),
    }


def _delay(
    clf: AttnKNNClassifier, before: Rows, after: Rows, seed: int
) -> dict[str, int | bool | None]:
    """How many rows after a change each kind of alarm was raised; None for never."""
    monitor = DriftMonitor(clf, random_state=seed)
    is_early = monitor.watch(*before).alarm is not None
    seen: DriftReport = monitor.watch(*after)
    return {"early": is_early, "rows": seen.rows.alarm, "labels": seen.labels.alarm}


def _new_classes(
    X: Any, y: Integers, n: int, before: int, seed: int
) -> dict[str, int | bool | None]:
    """A fifth of the classes is not remembered, and comes only after the change."""
    generator = np.random.default_rng([seed, 99])
    classes = np.unique(y)
    new = generator.choice(classes, max(1, round(NEW_CLASSES * len(classes))), replace=False)
    is_new = np.isin(y, new)
    known = np.flatnonzero(~is_new)
    remembered, first = known[known < n], known[known >= n][:before]
    later = np.arange(first.max() + 1, min(len(X), n + MOST_ROWS))
    clf = _fitted(X[remembered], y[remembered], seed)
    return _delay(clf, (X[first], y[first]), (X[later], y[later]), seed)


def measure_normal(n_columns: int, n_entries: int, trials: int) -> dict[str, Any]:
    """The maximum of the martingale, ranked among entries and among separate rows."""
    most: dict[str, list[float]] = {"entries": [], "own rows": []}
    for seed in range(trials):
        generator = np.random.default_rng([seed, n_columns, n_entries])
        remembered, own, later = (
            generator.normal(size=(n, n_columns)) for n in (n_entries, n_entries, NORMAL_ROWS)
        )
        index = NearestNeighbors().fit(remembered)
        stream = _nearest(index, later, 1)
        for name, known in (
            ("entries", _nearest(index, remembered, 2)),  # the nearest entry is the entry itself
            ("own rows", _nearest(index, own, 1)),
        ):
            seen = ScoreStream(known, 100.0, seed).watch(stream)
            most[name].append(float(seen.log_martingale.max()))
    sizes = {"columns": n_columns, "entries": n_entries, "rows": NORMAL_ROWS}
    return {"dataset": "normal", "versions": environment(), **sizes, "most": most}


def _nearest(index: NearestNeighbors, rows: Floats, k: int) -> Floats:
    return np.asarray(index.kneighbors(rows, k)[0][:, -1])


def tables(reports: list[dict[str, Any]]) -> dict[str, str]:
    """The tables of docs/drift.md, by the name of their place there."""
    normal = [report for report in reports if report["dataset"] == "normal"]
    names = dict.fromkeys(r["dataset"] for r in reports if r["dataset"] != "normal")
    of_data = {name: [r for r in reports if r["dataset"] == name] for name in names}
    return {
        "quiet": markdown(
            ["data", "entries", "streams", "rows each", "alarms"]
            + [f"{kind} reached {level}" for level in LEVELS for kind in ("rows", "labels")],
            [_quiet_line(name, found) for name, found in of_data.items()],
        ),
        "delays": markdown(
            ["data", "change", "streams", "alarm by rows, after", "alarm by labels, after"],
            [line for name, found in of_data.items() for line in _delay_lines(name, found)],
        ),
        "normal": markdown(
            ["columns", "entries"]
            + [
                f"{among}, reached {level}" for level in LEVELS for among in ("entries", "own rows")
            ],
            [_normal_line(report) for report in normal],
        ),
    }


def _quiet_line(name: str, reports: list[dict[str, Any]]) -> list[str]:
    streams = [stream for report in reports for stream in report["quiet"]]
    alarms = sum(stream["alarm"] for stream in streams)
    shares = [
        _share([stream[kind] for stream in streams], level)
        for level in LEVELS
        for kind in ("rows", "labels")
    ]
    sizes = [f"{reports[0]['entries']:,}", f"{len(streams)}", f"{reports[0]['rows']:,}"]
    return [name, *sizes, str(alarms), *shares]


def _delay_lines(name: str, reports: list[dict[str, Any]]) -> Iterator[list[str]]:
    for change in reports[0]["changes"]:
        found = [report["changes"][change] for report in reports]
        counted = [one for one in found if not one["early"]]
        cells = [_median([one[kind] for one in counted]) for kind in ("rows", "labels")]
        yield [name, change, str(len(counted)), *cells]


def _normal_line(report: dict[str, Any]) -> list[str]:
    shares = [_share(report["most"][a], level) for level in LEVELS for a in report["most"]]
    return [str(report["columns"]), f"{report['entries']:,}", *shares]


def _median(delays: list[int | None]) -> str:
    """The median and largest number of rows, and how many streams raised the alarm at all."""
    known = [delay + 1 for delay in delays if delay is not None]
    if not known:
        return "never"
    share = "" if len(known) == len(delays) else f", {len(known)} of {len(delays)}"
    return f"{np.median(known):.0f} rows (at most {max(known)}{share})"


def _share(most: list[float], level: int) -> str:
    return f"{np.mean(np.array(most) >= np.log(level)):.1%}"


def ordered_reports(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The reports that runs left, smaller data first."""
    found = read_reports(folder)
    return sorted(found, key=lambda r: (r["entries"], r.get("columns", 0), r.get("seed", 0)))


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.drift", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["run", "table"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=[*ENTRIES, "normal"])
    parser.add_argument("--seeds", type=int, help="number of seeds, from 0")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.command == "run" and not run_or_report_error(lambda: _run(options)):
        return 1
    for name, table in tables(ordered_reports(options.folder)).items():
        print(f"{name}\n{table}\n")
        if options.folder == RESULTS:
            replace_between(PAGE, name, table)
    return 0


def _run(options: argparse.Namespace) -> None:
    for name in [options.only] if options.only else ["digits", "banking77", "normal"]:
        if name == "normal":
            for columns, n in CASES:
                trials = TRIALS if options.seeds is None else options.seeds
                stem = f"normal-{columns}-{n}"
                add_report(options.folder, stem, partial(measure_normal, columns, n, trials))
            continue
        dataset = datasets.load(name)
        for seed in range(options.seeds or SEEDS[name]):
            stem = f"{name}-{seed}"
            add_report(options.folder, stem, partial(measure, dataset, seed))


if __name__ == "__main__":
    sys.exit(main())
