"""Tasks of few rows: attention that was meta-trained on other classes, beside what needs none.

    python -m experiments.few_shot          measure what has no report yet
    python -m experiments.few_shot page     write the table of docs/few-shot.md

The classes of a labeled set are split by the seed. On most of them attention is meta-trained, and
the other methods choose their temperature or regularization there; the test classes, which no
method has seen, give tasks of `way` classes with `shot` rows each. Every method answers the same
rows of the same tasks. Data is looked for in ATTNKNN_DATA; sets that are missing are skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from attnknn import AttnKNNClassifier, MetaLearnedAttention, meta_train
from attnknn.attention.meta_learned import MetaWeights
from attnknn.errors import MissingDataError
from attnknn.records import Floats, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.intervals import mean_interval, paired_interval
from attnknn.research.evaluation.protocol import environment
from attnknn.training import TrainConfig
from experiments.pages import ROOT, Report, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "few-shot"
SEEDS = (0, 1, 2, 3, 4)
TASKS, CHOOSING, QUERIES = 40, 10, 10  # tasks a seed to test and to choose on; rows of each class
OURS, CENTROID, DISTANCE = "meta-learned attention", "nearest centroid", "distance attention"
FITTED, LOGISTIC = "distance attention, fitted in the task", "logistic regression"
METHODS = (OURS, CENTROID, DISTANCE, FITTED, LOGISTIC)
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0)  # temperatures, of the typical squared distance
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # C of logistic regression
# Numbers of test classes, and tasks (way, shot).
SETS = {
    "digits": (3, ((3, 1), (3, 5))),
    "letter": (8, ((5, 1), (5, 5))),
    "clinc150": (40, ((5, 1), (5, 5), (20, 5))),
    "banking77": (22, ((5, 1), (5, 5), (20, 5))),
}
NOTE = """Accuracy in % and log-loss on classes that were not trained on, means over five splits \
of the classes with 40 tasks each, with 95 % intervals. Bold: better than each of the others \
beyond the interval of the paired difference."""

Vote = Callable[[Floats, Integers, Floats], Floats]


@dataclass(frozen=True)
class Task:
    """Rows that vote with their labels, and other rows of the same classes."""

    X: Floats
    y: Integers
    queries: Floats
    truth: Integers


def rows_of(name: str) -> tuple[Floats, Integers]:
    """All rows of a set with their labels."""
    if name == "digits":
        rows, labels = load_digits(return_X_y=True)
        return rows, labels
    known = datasets.load(name)
    rows = np.concatenate([np.asarray(known.X_train), np.asarray(known.X_test)]).astype(np.float64)
    return rows, np.concatenate([known.y_train, known.y_test])


def drawn(
    X: Floats, y: Integers, way: int, shot: int, generator: np.random.Generator, n: int
) -> list[Task]:
    """Tasks of some of the classes of `y`."""
    tasks = []
    for _ in range(n):
        classes = generator.choice(np.unique(y), way, replace=False)
        rows = [generator.permutation(np.flatnonzero(y == c))[: shot + QUERIES] for c in classes]
        votes = np.concatenate([of_class[:shot] for of_class in rows])
        asked = np.concatenate([of_class[shot:] for of_class in rows])
        codes = np.arange(way)
        tasks.append(Task(X[votes], codes.repeat(shot), X[asked], codes.repeat(QUERIES)))
    return tasks


def by_attention(attention: MetaLearnedAttention) -> Vote:
    """The vote of an attention whose numbers are kept."""
    return partial(
        _predicted,
        AttnKNNClassifier(
            128, encoder="identity", attention=attention, calibration=None, label_noise=None
        ),
    )


def plain(mixing: float, factor: float, X: Floats) -> Vote:
    """Without a learned projection: entries (mixing 0) or centroids (1) by distance."""
    attention = MetaLearnedAttention()
    unit = np.eye(X.shape[1], dtype=np.float32)
    spread = 2.0 * float(X.var(axis=0).sum())
    attention.meta_weights_ = MetaWeights(unit, factor * spread, mixing, -50.0)
    return by_attention(attention)


def _predicted(model: AttnKNNClassifier, X: Floats, y: Integers, queries: Floats) -> Floats:
    return model.fit(X, y).predict_proba(queries)


def logistic(C: float, X: Floats, y: Integers, queries: Floats) -> Floats:
    """Probabilities by logistic regression on the rows of the task."""
    model = LogisticRegression(C=C, max_iter=300).fit(X, y)
    found: Floats = model.predict_proba(queries)
    return found


def measured_on(vote: Vote, tasks: list[Task]) -> tuple[list[float], list[float]]:
    """Error and log-loss of each task."""
    errors, losses = [], []
    for task in tasks:
        found = vote(task.X, task.y, task.queries)
        own = found[np.arange(len(found)), task.truth]
        errors.append(float((found.argmax(axis=1) != task.truth).mean()))
        losses.append(float(-np.log(np.maximum(own, 1e-12)).mean()))
    return errors, losses


def best_of(votes: list[Vote], tasks: list[Task]) -> Vote:
    """The vote with the lowest log-loss."""
    losses = [np.mean(measured_on(vote, tasks)[1]) for vote in votes]
    return votes[int(np.argmin(losses))]


def measure(name: str, seed: int, training: TrainConfig | None = None) -> Report:
    """Errors and log-losses of all methods in all tasks of one split of the classes."""
    n_test, shapes = SETS[name]
    X, y = rows_of(name)
    generator = np.random.default_rng(seed)
    classes = generator.permutation(np.unique(y))
    is_test = np.isin(y, classes[:n_test])
    if name in ("letter", "digits"):  # columns of different spread
        X = (X - X[~is_test].mean(axis=0)) / np.maximum(X[~is_test].std(axis=0), 1e-3)
    known, labels = X[~is_test], y[~is_test]
    way = shapes[0][0]
    meta = meta_train(known, labels, n_way=way, training=training, random_state=seed)
    ours, found = by_attention(meta), {}
    for way, shot in shapes:
        way_known = min(way, len(classes) - n_test)
        choosing = drawn(known, labels, way_known, shot, generator, CHOOSING)
        votes = {
            OURS: ours,
            CENTROID: best_of([plain(1.0, f, known) for f in FACTORS], choosing),
            DISTANCE: best_of([plain(0.0, f, known) for f in FACTORS], choosing),
            FITTED: partial(
                _predicted, AttnKNNClassifier(encoder="identity", attention="distance")
            ),
            LOGISTIC: best_of([partial(logistic, C) for C in STRENGTHS], choosing),
        }
        tasks = drawn(X[is_test], y[is_test], way, shot, generator, TASKS)
        found[f"{way}-way {shot}-shot"] = {
            method: measured_on(vote, tasks) for method, vote in votes.items()
        }
    learned = meta.meta_weights_
    return {
        "dataset": name,
        "seed": seed,
        "versions": environment(),
        "class_mixing": round(learned.class_mixing, 3),
        "tasks": found,
    }


def table(reports: list[Report], n_splits: int = len(SEEDS)) -> str:
    """A line for each kind of task of the sets with all splits, a column for each method."""
    lines = []
    for name, (_, shapes) in SETS.items():
        of_set = [report for report in reports if report["dataset"] == name]
        for way, shot in shapes if len(of_set) >= n_splits else ():
            kind = f"{way}-way {shot}-shot"
            values = {
                method: np.array([report["tasks"][kind][method] for report in of_set])
                for method in METHODS
            }
            lines.append([f"{name}, {kind}", *(_cell(values, method) for method in METHODS)])
    return f"{NOTE}\n\n{markdown(['set, task', *METHODS], lines)}"


def _cell(values: dict[str, Floats], method: str) -> str:
    """Accuracy and log-loss of a method (S, 2, n), bold where they beat every other one."""
    shown = []
    for part, scale in ((0, 100.0), (1, 1.0)):
        own = scale * values[method][:, part]
        found = mean_interval(own)
        half = (found.upper - found.lower) / 2
        text = (
            f"{100 - found.mean:.1f} ± {half:.1f}"
            if part == 0
            else f"{found.mean:.3f} ± {half:.3f}"
        )
        others = [scale * other[:, part] for name, other in values.items() if name != method]
        is_best = all(paired_interval(own, other).upper < 0 for other in others)
        shown.append(f"**{text}**" if is_best else text)
    return " / ".join(shown)


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.few_shot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["run", "page"], default="run")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--only", choices=list(SETS), help="one set of rows")
    options = parser.parse_args(arguments)
    return run_command(options, _run, (ROOT / "docs" / "few-shot.md", "few-shot"), table)


def _run(options: argparse.Namespace) -> None:
    for name in [options.only] if options.only else SETS:
        try:
            rows_of(name)
        except MissingDataError as error:
            print(f"{name} is not measured: {error}", file=sys.stderr)
            continue
        for seed in SEEDS:
            add_report(options.folder, f"{name}-{seed}", partial(measure, name, seed))


if __name__ == "__main__":
    sys.exit(main())
