"""New classes by adding rows: their accuracy, and what the old classes lose.

    python -m experiments.new_classes                measure what has no report yet
    python -m experiments.new_classes page           write the table into docs/new-classes.md
    python -m experiments.new_classes bars           each threshold with the measured figure

A classifier is fitted on the training rows of 130 classes of CLINC150, as it is by default. Then 5
and 10 training rows of each of the other 20 classes are added, and nothing is fitted again. All 150
classes compete for every test row. The seed chooses the classes and their rows. Accuracies are
means over classes, which have 30 test rows each; intervals are drawn over classes and seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn import AttnKNNClassifier
from attnknn.records import Floats, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.intervals import Interval, mean_interval, paired_interval
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "new-classes"
PAGE = ROOT / "docs" / "new-classes.md"
DATASET = "clinc150"
N_NEW = 20
SHOTS = (5, 10)
COVERAGE = 0.9
ATTENTIONS = ("auto", "distance")
Reports = list[dict[str, Any]]


def measure(dataset: datasets.Dataset, n_new: int, seed: int, attention: str) -> dict[str, Any]:
    """Fit without some classes, add a few rows of each, and ask about all test rows."""
    new, rows = chosen_rows(dataset.y_train, n_new, max(SHOTS), seed)
    is_old = ~np.isin(dataset.y_train, new)
    clf = AttnKNNClassifier(attention=attention, random_state=seed)
    started = time.perf_counter()
    clf.fit(dataset.X_train[is_old], dataset.y_train[is_old])
    fit_seconds = time.perf_counter() - started
    report = {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "seed": seed,
        "attention": attention,
        "kept": clf.fit_report_.attention,
        "versions": environment(),
        "fit_seconds": round(fit_seconds, 2),
        "new_classes": new.tolist(),
        "before": answers_of(clf, dataset, new),
    }
    for known, shots in zip((0, *SHOTS), SHOTS, strict=False):
        added = rows[:, known:shots].ravel()
        clf.add(dataset.X_train[added], dataset.y_train[added])
        report[f"{shots} examples"] = answers_of(clf, dataset, new)
    report[f"{shots} examples"] |= sets_of(clf, dataset, new)
    return report


def chosen_rows(y: Integers, n_new: int, n_rows: int, seed: int) -> tuple[Integers, Integers]:
    """Which classes are new, and the rows (n_new, n_rows) that are added of each."""
    generator = np.random.default_rng(seed)
    new = np.sort(generator.choice(np.unique(y), n_new, replace=False))
    rows = [generator.permutation(np.flatnonzero(y == label))[:n_rows] for label in new]
    return new, np.array(rows)


def answers_of(
    clf: AttnKNNClassifier, dataset: datasets.Dataset, new: Integers
) -> dict[str, list[float]]:
    """The accuracy on the test rows of each class, new ones and old ones apart."""
    is_right = clf.predict(dataset.X_test) == dataset.y_test
    return {
        "new": by_class(is_right, dataset.y_test, new),
        "old": by_class(is_right, dataset.y_test, np.setdiff1d(dataset.y_test, new)),
    }


def sets_of(clf: AttnKNNClassifier, dataset: datasets.Dataset, new: Integers) -> dict[str, Any]:
    """How often sets by class hold the label, for each class, and how large they are."""
    members = clf.predict_set(dataset.X_test, coverage=COVERAGE, by_class=True).members
    own = np.searchsorted(clf.classes_, dataset.y_test)
    is_covered, size = members[np.arange(len(own)), own], members.sum(axis=1)
    old = np.setdiff1d(dataset.y_test, new)
    return {
        "new_covered": by_class(is_covered, dataset.y_test, new),
        "old_covered": by_class(is_covered, dataset.y_test, old),
        "new_size": by_class(size, dataset.y_test, new),
        "old_size": by_class(size, dataset.y_test, old),
    }


def by_class(values: NDArray[Any], y: Integers, classes: Integers) -> list[float]:
    """The mean of the values over the rows of each class."""
    return [round(float(values[y == label].mean()), 4) for label in classes]


def figures(reports: Reports, attention: str) -> dict[str, Interval]:
    """What was measured with one attention, over classes and seeds."""
    few, more = (f"{shots} examples" for shots in SHOTS)
    chosen = [report for report in reports if report["attention"] == attention]

    def stacked(step: str, name: str) -> Floats:
        return np.array([report[step][name] for report in chosen])

    found = {}
    for step in (few, more):
        found[f"{step}: new"] = mean_interval(stacked(step, "new"))
        found[f"{step}: old"] = mean_interval(stacked(step, "old"))
        lost = paired_interval(stacked("before", "old"), stacked(step, "old"))
        found[f"{step}: old lost"] = lost
    for name in ("new_covered", "old_covered", "new_size", "old_size"):
        found[f"{more}: {name}"] = mean_interval(stacked(more, name))
    return found


def bars(reports: Reports) -> Iterator[Bar]:
    """Thresholds of the means over all seeds."""
    few, more = (f"{shots} examples" for shots in SHOTS)
    for attention in _attentions(reports):
        found = figures(reports, attention)
        new, lost = found[f"{few}: new"], found[f"{few}: old lost"]
        covered = found[f"{more}: new_covered"]
        where = f"{attention}, {few}"
        yield Bar(f"{where}: accuracy of new classes ≥ 0.64", f"{new:.4f}", new.mean >= 0.64)
        what = f"{where}: accuracy lost on old classes ≤ 0.003"
        yield Bar(what, f"{lost:+.4f}", lost.mean <= 0.003)
        what = f"{attention}, {more}: {COVERAGE:.0%} sets by class cover new classes ≥ 0.85"
        yield Bar(what, f"{covered:.4f}", covered.mean >= 0.85)


def table(reports: Reports) -> str:
    """Markdown: a line for each attention and number of examples."""
    head = ["attention", "examples", "new classes", "old classes"]
    head += ["old ones lost", "sets cover new"]
    lines = []
    for attention in _attentions(reports):
        found = figures(reports, attention)
        for shots in SHOTS:
            step = f"{shots} examples"
            covered = found.get(f"{step}: new_covered")
            lines.append(
                [
                    attention,
                    str(shots),
                    f"{found[f'{step}: new']:.3f}",
                    f"{found[f'{step}: old'].mean:.3f}",
                    f"{found[f'{step}: old lost']:+.4f}",
                    "" if covered is None else f"{covered:.3f}",
                ]
            )
    return markdown(head, lines)


def _attentions(reports: Reports) -> list[str]:
    return [name for name in ATTENTIONS if any(r["attention"] == name for r in reports)]


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.new_classes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=datasets.names(), default=DATASET)
    parser.add_argument("--new", type=int, default=N_NEW, help="number of new classes")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--attention", choices=ATTENTIONS, help="one of the two")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (PAGE, "new-classes"), table, bars)


def _run(options: argparse.Namespace) -> None:
    dataset = datasets.load(options.only)
    for attention in [options.attention] if options.attention else ATTENTIONS:
        for seed in range(options.seeds):
            name = f"{dataset.name}-{attention}-{seed}"
            add_report(
                options.folder, name, partial(measure, dataset, options.new, seed, attention)
            )


if __name__ == "__main__":
    sys.exit(main())
