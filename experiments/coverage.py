"""`python -m experiments.coverage` measures prediction sets on test rows, before and after edits.

Some training rows are held back and 100 get a wrong label before anything is fitted. Then the
classifier is edited a thousand times: 500 rows are added, 400 entries are forgotten, the 100 wrong
labels are corrected (`--wrong` for another number). Test rows keep their labels, so coverage is
that of true labels. The test rows of clinc150 differ from its training rows, so it is measured a
second time with both shuffled, and a third time with its own validation rows and `method="split"`.
Runs are resumable. `python -m experiments.coverage bars` prints
the thresholds, `page` writes the table of docs/sets.md. Data is looked for in ATTNKNN_DATA.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from attnknn import AttnKNNClassifier
from attnknn.encoders import make_encoder
from attnknn.metrics import set_coverage, set_size
from attnknn.records import Booleans, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "coverage"
SHUFFLED, SPLIT = ", shuffled", ", split"
DATASETS = (
    "banking77",
    "clinc150",
    f"clinc150{SHUFFLED}",
    f"clinc150{SPLIT}",
    "letter",
    "adult",
    "fashion-mnist-pca64",
)
COVERAGES = (0.9, 0.95, 0.99)
SCORES = ("lac", "aps")
N_EDITS, N_FORGOTTEN, N_WRONG = 1000, 400, 100
N_ROUNDS = 10  # of edits, each with its share of all three kinds
STATES = ("before", "after")
Way = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Places among the training rows: what is remembered first, and what edits will change.

    Parameters
    ----------
    remembered : all rows but those that are kept back to be added
    added, forgotten, wrong : no row in two of them
    observed : labels of all training rows, those of `wrong` replaced by another class
    """

    remembered: Integers
    added: Integers
    forgotten: Integers
    wrong: Integers
    observed: Integers


def plan_edits(y: Integers, n_classes: int, seed: int, n_wrong: int = N_WRONG) -> Plan:
    """Rows for a thousand edits; in small data sets for fewer, a fifth of the rows in all."""
    rng = np.random.default_rng(seed)
    share = min(1.0, len(y) / 5 / N_EDITS)
    numbers = (N_EDITS - N_FORGOTTEN - n_wrong, N_FORGOTTEN, n_wrong)
    ends = np.cumsum([int(share * number) for number in numbers])
    added, forgotten, wrong, others = np.split(rng.permutation(len(y)), ends)
    observed = y.copy()
    observed[wrong] = (y[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    remembered = np.sort(np.concatenate([forgotten, wrong, others]))
    return Plan(remembered, added, forgotten, wrong, observed)


def load(name: str, seed: int) -> datasets.Dataset:
    """A data set by name; shuffled, its training and test rows are mixed and drawn again."""
    dataset = datasets.load(name.removesuffix(SHUFFLED).removesuffix(SPLIT))
    if not name.endswith(SHUFFLED):
        return replace(dataset, name=name)
    X = np.concatenate([dataset.X_train, dataset.X_test])
    y = np.concatenate([dataset.y_train, dataset.y_test])
    train, test = np.split(np.random.default_rng(seed).permutation(len(y)), [len(dataset.y_train)])
    return replace(
        dataset, name=name, X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test]
    )


def measure(
    dataset: datasets.Dataset, seed: int, attention: str, n_wrong: int = N_WRONG
) -> dict[str, Any]:
    """Fit with some wrong labels, measure, edit, measure again."""
    plan = plan_edits(dataset.y_train, len(dataset.classes), seed, n_wrong)
    train, test = _embedded(dataset, plan)
    started = time.perf_counter()
    clf = AttnKNNClassifier(64, attention=attention, random_state=seed)
    clf.fit(train[plan.remembered], plan.observed[plan.remembered])
    fitted = time.perf_counter()
    way = _way(dataset)
    before = sets_of(clf, test, dataset.y_test, seed, way)
    measured = time.perf_counter()
    edit(clf, train, dataset.y_train, plan)
    edited = time.perf_counter()
    return {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "seed": seed,
        "attention": attention,
        "kept": clf.fit_report_.attention,
        "versions": environment(),
        "test_rows": len(dataset.y_test),
        "edits": {
            "add": len(plan.added),
            "forget": len(plan.forgotten),
            "relabel": len(plan.wrong),
        },
        "fit_seconds": round(fitted - started, 2),
        "edit_seconds": round(edited - measured, 2),
        "before": before,
        "after": sets_of(clf, test, dataset.y_test, seed, way),
    }


def _way(dataset: datasets.Dataset) -> Way:
    """How sets come about: leave-one-out, or by the validation rows of the data set."""
    if not dataset.name.endswith(SPLIT):
        return {}
    rows = (dataset.extras["x_calibration"], dataset.extras["y_calibration"])
    return {"method": "split", "calibration_rows": rows}


def _embedded(dataset: datasets.Dataset, plan: Plan) -> tuple[Any, Any]:
    """All training rows and the test rows, by an encoder fitted on what is remembered first."""
    if dataset.kind != "table":
        return dataset.X_train, dataset.X_test
    encoder = make_encoder("tabular")
    encoder.fit(dataset.X_train.iloc[plan.remembered], plan.observed[plan.remembered])
    return tuple(np.asarray(encoder.transform(X)) for X in (dataset.X_train, dataset.X_test))


def edit(clf: AttnKNNClassifier, rows: Any, labels: Integers, plan: Plan) -> None:
    """Add, forget and relabel in turns, a part of each in every round."""
    parts = [np.array_split(which, N_ROUNDS) for which in (plan.added, plan.forgotten, plan.wrong)]
    for added, forgotten, wrong in zip(*parts, strict=True):
        clf.add(rows[added], labels[added])
        clf.forget(np.searchsorted(plan.remembered, forgotten))
        clf.relabel(np.searchsorted(plan.remembered, wrong), labels[wrong])


def sets_of(clf: AttnKNNClassifier, X: Any, y: Integers, seed: int, way: Way) -> dict[str, Any]:
    """How often sets hold the label, and how large they are; APS randomized."""
    return {
        "entries": len(clf.memory_),
        "held_out": int(clf.held_out_.sum()),
        "label_noise": clf.calibration_.label_noise,
        "accuracy": float(np.mean(clf.predict(X) == y)),
        **{
            score: {
                "all": [_over_all(clf, X, y, coverage, score, seed, way) for coverage in COVERAGES],
                "by_class": _by_class(clf, X, y, score, seed, way),
            }
            for score in SCORES
        },
    }


def _over_all(
    clf: AttnKNNClassifier, X: Any, y: Integers, asked: float, score: str, seed: int, way: Way
) -> dict[str, float]:
    inside = clf.predict_set(X, asked, score=score, random_state=seed, **way).members
    return {"asked": asked, "coverage": set_coverage(y, inside), "size": set_size(inside)}


def _by_class(
    clf: AttnKNNClassifier, X: Any, y: Integers, score: str, seed: int, way: Way
) -> dict[str, float]:
    asked = COVERAGES[0]
    chosen = {"by_class": True, "score": score, "random_state": seed, **way}
    inside = clf.predict_set(X, asked, **chosen).members
    is_held = inside[np.arange(len(y)), y]
    of_class = np.array([is_held[y == c].mean() for c in np.unique(y)])
    return {
        "asked": asked,
        "coverage": float(of_class.mean()),
        "size": set_size(inside),
        "worst": float(of_class.min()),
        "share_below": float(below_quantile(is_held, y, asked).mean()),
    }


def below_quantile(is_held: Booleans, y: Integers, asked: float) -> Booleans:
    """Which classes (C,) are covered less often than all but 1 % of binomial counts would be.

    >>> y = np.repeat([0, 1], 100)
    >>> below_quantile(np.arange(200) % 100 < np.where(y == 0, 83, 82), y, 0.9).tolist()
    [False, True]
    """
    counts = [(int(is_held[y == c].sum()), int((y == c).sum())) for c in np.unique(y)]
    return np.array([held < binom.ppf(0.01, n, asked) for held, n in counts])


def bars(reports: list[dict[str, Any]]) -> Iterator[Bar]:
    """The thresholds of each report."""
    for report in reports:
        for state in STATES:
            wrong = f"{report['edits']['relabel']} wrong labels"
            where = f"{report['dataset']}, {wrong}, seed {report['seed']}, {state} edits"
            for score in SCORES:
                found = report[state][score]
                for cell in found["all"]:
                    yield _near_what_was_asked(f"{where}, {score}", cell, report["test_rows"])
                yield from _class_bars(f"{where}, {score} by class", found["by_class"])


def _near_what_was_asked(where: str, cell: dict[str, float], n: int) -> Bar:
    asked, found = cell["asked"], cell["coverage"]
    allowed = allowance(asked, n)
    what = f"{where}: coverage within {100 * allowed:.1f} points of {asked:.0%}"
    return Bar(what, f"{found:.2%}", abs(found - asked) <= allowed)


def allowance(asked: float, n: int) -> float:
    """One point and two binomial standard errors of `n` rows.

    >>> round(allowance(0.9, 900), 3)
    0.03
    """
    return float(0.01 + 2 * np.sqrt(asked * (1 - asked) / n))


def _class_bars(where: str, cell: dict[str, float]) -> Iterator[Bar]:
    found, share = cell["coverage"], cell["share_below"]
    what = f"{where}: mean coverage of classes between 89 % and 92 %"
    yield Bar(what, f"{found:.2%}", 0.89 <= found <= 0.92)
    what = f"{where}: at most 3 % of classes below their 1 % quantile"
    yield Bar(what, f"{share:.1%}", share <= 0.03)


def table(reports: list[dict[str, Any]]) -> str:
    """Coverage and size of sets by data set and state, means over seeds, as Markdown."""
    asked = [f"{score.upper()} {coverage:.0%}" for score in SCORES for coverage in COVERAGES]
    by_class = [f"{score.upper()} 90% by class" for score in SCORES]
    head = ["data, seeds", "wrong labels", "accuracy", *asked, *by_class]
    lines: list[list[str]] = []
    for wrong in sorted({report["edits"]["relabel"] for report in reports}):
        for name in DATASETS:
            chosen = [
                report
                for report in reports
                if report["dataset"] == name and report["edits"]["relabel"] == wrong
            ]
            lines += [_table_row(name, state, wrong, chosen) for state in STATES if chosen]
    return markdown(head, lines)


def _table_row(name: str, state: str, wrong: int, reports: list[dict[str, Any]]) -> list[str]:
    found = [report[state] for report in reports]
    cells = [[sets[score]["all"][i] for sets in found] for score in SCORES for i in range(3)]
    cells += [[sets[score]["by_class"] for sets in found] for score in SCORES]
    labels = f"{wrong} of {found[0]['entries']:,}" if state == "before" else "corrected"
    accuracy = f"{100 * np.mean([sets['accuracy'] for sets in found]):.1f}"
    return [f"{name}, {len(found)}", labels, accuracy, *map(_table_cell, cells)]


def _table_cell(cells: list[dict[str, float]]) -> str:
    coverage = np.mean([cell["coverage"] for cell in cells])
    return f"{100 * coverage:.1f} / {np.mean([cell['size'] for cell in cells]):.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.coverage", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--only", metavar="DATASET", help="one data set, known or of the list")
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds, from 0")
    parser.add_argument("--wrong", type=int, default=N_WRONG, help="labels to correct")
    parser.add_argument("--attention", default="auto", help="what the classifier takes")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (ROOT / "docs" / "sets.md", "coverage"), table, bars)


def _run(options: argparse.Namespace) -> None:
    for seed in range(options.seeds):
        for name in [options.only] if options.only else DATASETS:
            stem = f"{name.replace(', ', '-')}-{options.wrong}-{options.attention}-{seed}"
            make = partial(_measured, name, seed, options)
            add_report(options.folder, stem, make)


def _measured(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    return measure(load(name, seed), seed, options.attention, options.wrong)


if __name__ == "__main__":
    sys.exit(main())
