"""Which rows to label next: the accuracy of suggested labels against random ones and other tools.

    python -m experiments.suggest run                measure what has no report yet
    python -m experiments.suggest table              write the table into docs/suggest.md
    python -m experiments.suggest bars               each threshold with the measured figure

The training rows are the pool. Two random rows of each class are labeled at first. Then 20 labels
at a time are added, as the strategy asks, up to 1,300 (2,000 for random rows), and the model is
refitted at stated numbers of labels, where the test rows are predicted. Distance attention is used,
so that all of it takes minutes; on one seed the default classifier is fitted on the same labels.
The form and the constants of the strategy were chosen on training rows of CLINC150, satimage and
digits alone. modAL and scikit-activeml (extra `experiments`) choose by the same probabilities.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from attnknn import AttnKNNClassifier
from attnknn.encoders import make_encoder
from attnknn.insight import Pool, suggest
from attnknn.records import Floats, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "suggest"
PAGE = ROOT / "docs" / "suggest.md"
DATASETS = ("banking77", "letter")
BATCH, PER_CLASS = 20, 2
SIZES, SHOWN, N_RANDOM = (300, 500, 700, 900, 1100, 1300), (300, 500, 900, 1300), 2000
RANDOM, OURS = "random", "suggest"
NOTE = """Test accuracy in percent after so many labels, mean over seeds, with distance attention. \
*Against random* is the accuracy with 1,300 labels minus that of 2,000 random ones, with its 95 % \
interval over seeds; *labels needed* is where the strategy reaches the latter, between measured \
numbers of labels by interpolation. *Default* is the default classifier, fitted on the last \
labels of seed 0. *Estimate* is the expected accuracy on the rest of the pool minus the true one, \
in points (`python -m experiments.suggest run`, then `table`)."""

Choose = Callable[["Run", int], Integers]


class Run:
    """A pool of which labels become known, and the classifier of these."""

    def __init__(self, dataset: datasets.Dataset, seed: int) -> None:
        encoder = make_encoder("tabular" if dataset.kind == "table" else "identity")
        rows = encoder.fit(dataset.X_train, dataset.y_train).transform(dataset.X_train)
        self.X, self.y = np.asarray(rows), dataset.y_train
        self.test = np.asarray(encoder.transform(dataset.X_test)), dataset.y_test
        self.seed, self.generator = seed, np.random.default_rng(seed)
        classes = np.unique(self.y)
        drawn = [
            self.generator.choice(np.flatnonzero(self.y == label), PER_CLASS, replace=False)
            for label in classes
        ]
        self.labeled: list[int] = np.concatenate(drawn).tolist()
        self.clf = AttnKNNClassifier(attention="distance", random_state=seed)
        self.clf.fit(self.X[self.labeled], self.y[self.labeled])
        self.pool = Pool(self.X)

    @property
    def rest(self) -> Integers:
        """Positions of the rows whose labels are not known."""
        return np.setdiff1d(np.arange(len(self.y)), self.labeled)

    @property
    def probabilities(self) -> Floats:
        """What the classifier says about the rows of the pool."""
        return self.pool.probabilities(self.clf)

    def label(self, rows: Integers) -> None:
        """Tell the classifier the labels of some rows."""
        self.clf.add(self.X[rows], self.y[rows])
        self.labeled += rows.tolist()

    def accuracy(self, clf: AttnKNNClassifier) -> float:
        """Share of the test rows that are right."""
        return float((clf.predict(self.test[0]) == self.test[1]).mean())


def choose_random(run: Run, n: int) -> Integers:
    """Rows at random."""
    return np.sort(run.generator.choice(run.rest, n, replace=False))


def choose_ours(run: Run, n: int) -> Integers:
    """The default of `suggest`."""
    return suggest(run.clf, run.pool, n, skip=run.labeled).rows


class _Known:
    """What modAL asks of a learner: the probabilities of the candidates, which are known."""

    def __init__(self, probabilities: Floats) -> None:
        self._probabilities = probabilities

    def predict_proba(self, X: Any, **_: Any) -> Floats:
        assert len(X) == len(self._probabilities)
        return self._probabilities


def choose_by_modal(run: Run, n: int) -> Integers:
    """modAL's margin sampling."""
    from modAL.uncertainty import margin_sampling

    rest = run.rest
    learner = _Known(run.probabilities[rest])
    return rest[margin_sampling(learner, run.X[rest], n_instances=n)[0]]


def choose_by_clue(run: Run, n: int) -> Integers:
    """scikit-activeml's CLUE: clusters of the embeddings, weighted by uncertainty."""
    from skactiveml.pool import Clue

    classifier = _known_classifier(run)
    labels = np.full(len(run.y), np.nan)
    labels[run.labeled] = run.y[run.labeled]
    query = Clue(method="margin_sampling", random_state=run.seed)
    chosen = query.query(run.X, labels, classifier, fit_estimator=False, batch_size=n)
    return np.asarray(chosen, dtype=np.int64)


def _known_classifier(run: Run) -> Any:
    """A classifier of scikit-activeml that gives the probabilities which are known."""
    from skactiveml.base import SkactivemlClassifier

    probabilities, rest = run.probabilities, run.rest

    class Known(SkactivemlClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: ARG002
            return self

        def predict_proba(self, X: Any) -> Floats:
            return probabilities if len(X) == len(probabilities) else probabilities[rest]

    return Known(classes=np.unique(run.y), missing_label=np.nan)


STRATEGIES: dict[str, Choose] = {
    RANDOM: choose_random,
    OURS: choose_ours,
    "modAL, margin": choose_by_modal,
    "scikit-activeml, CLUE": choose_by_clue,
}


def measure(dataset: datasets.Dataset, strategy: str, seed: int) -> dict[str, Any]:
    """Label by a strategy, and measure the accuracy on the way."""
    run, choose = Run(dataset, seed), STRATEGIES[strategy]
    sizes = [*SIZES, *([N_RANDOM] if strategy == RANDOM else [])]
    found, seconds = {}, []
    for size in sizes:
        while len(run.labeled) < size:
            started = time.perf_counter()
            rows = choose(run, min(BATCH, size - len(run.labeled)))
            seconds.append(time.perf_counter() - started)
            run.label(rows)
        run.clf.refit()
        found[str(size)] = _scores(run)
    return {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "strategy": strategy,
        "seed": seed,
        "versions": environment(),
        "sizes": found,
        **({"default_accuracy": _default_accuracy(run)} if seed == 0 else {}),
        "median_seconds": round(float(np.median(seconds)), 3),
    }


def _default_accuracy(run: Run) -> float:
    """Accuracy of the default classifier on the same labels."""
    clf = AttnKNNClassifier(random_state=run.seed)
    return round(run.accuracy(clf.fit(run.X[run.labeled], run.y[run.labeled])), 5)


def _scores(run: Run) -> dict[str, float]:
    """Accuracy on the test rows, and on the rest of the pool with its estimate."""
    rest = np.isin(np.arange(len(run.y)), run.rest)
    predicted = run.clf.classes_[run.probabilities[rest].argmax(axis=1)]
    return {
        "accuracy": round(run.accuracy(run.clf), 5),
        "rest_accuracy": round(float((predicted == run.y[rest]).mean()), 5),
        "expected_accuracy": round(run.pool.expected_accuracy(run.clf, rest), 5),
    }


Reports = list[dict[str, Any]]


def table(reports: Reports) -> str:
    """Accuracy by number of labels as Markdown; a line for each data set and strategy."""
    head = ["data, labels", *(f"{size:,}" for size in SHOWN), f"{N_RANDOM:,}", "against random"]
    head += ["labels needed", "default", "estimate"]
    lines = []
    for name in dict.fromkeys(report["dataset"] for report in reports):
        for strategy in STRATEGIES:
            runs = _of(reports, name, strategy)
            if not runs:
                continue
            errors = [
                at["expected_accuracy"] - at["rest_accuracy"]
                for one in runs
                for at in one["sizes"].values()
            ]
            lines.append(
                [
                    f"{name}, {strategy}, {len(runs)} {'seed' if len(runs) == 1 else 'seeds'}",
                    *(
                        _percent([one["sizes"][str(size)]["accuracy"] for one in runs])
                        for size in SHOWN
                    ),
                    _percent([one["sizes"][str(N_RANDOM)]["accuracy"] for one in runs])
                    if strategy == RANDOM
                    else "",
                    "" if strategy == RANDOM else _interval(differences(reports, name, strategy)),
                    f"{N_RANDOM:,}" if strategy == RANDOM else _needed(reports, name, strategy),
                    _percent([r["default_accuracy"] for r in runs if "default_accuracy" in r]),
                    f"{100 * np.mean(errors):+.1f}",
                ]
            )
    return f"{NOTE}\n\n{markdown(head, lines)}"


def _of(reports: Reports, name: str, strategy: str) -> Reports:
    return [r for r in reports if r["dataset"] == name and r["strategy"] == strategy]


def _percent(values: list[float]) -> str:
    return f"{100 * np.mean(values):.1f}" if values else ""


def _pairs(reports: Reports, name: str, strategy: str) -> Iterator[tuple[Any, float]]:
    """Each run of a strategy with the accuracy of 2,000 random labels on its seed."""
    goals = {
        one["seed"]: one["sizes"][str(N_RANDOM)]["accuracy"] for one in _of(reports, name, RANDOM)
    }
    for one in _of(reports, name, strategy):
        if one["seed"] in goals:
            yield one, goals[one["seed"]]


def differences(reports: Reports, name: str, strategy: str) -> Floats:
    """By how much 1,300 labels of a strategy are better than 2,000 random ones, by seed."""
    pairs = _pairs(reports, name, strategy)
    return np.array([one["sizes"][str(SIZES[-1])]["accuracy"] - goal for one, goal in pairs])


def _interval(values: Floats) -> str:
    if not len(values):  # random labels of these seeds are not measured yet
        return ""
    mean, low, high = interval(values)
    if len(values) < 2:
        return f"{100 * mean:+.1f}"
    return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def interval(values: Floats) -> tuple[float, float, float]:
    """Mean and 95 % interval by Student's distribution.

    >>> [round(value, 2) for value in interval(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.48, 4.48]
    """
    mean = float(values.mean())
    if len(values) < 2:
        return mean, -np.inf, np.inf
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return mean, mean - float(half), mean + float(half)


def labels_needed(run: dict[str, Any], goal: float) -> float:
    """Labels after which a run reaches an accuracy, interpolated; infinite if it does not.

    >>> labels_needed({"sizes": {"100": {"accuracy": 0.5}, "200": {"accuracy": 0.7}}}, 0.6)
    150.0
    """
    sizes = [int(size) for size in run["sizes"]]
    reached = [at["accuracy"] for at in run["sizes"].values()]
    for place, accuracy in enumerate(reached):
        if accuracy >= goal:
            if place == 0:
                return float(sizes[0])
            last = reached[place - 1]
            share = (goal - last) / (accuracy - last)
            return round(sizes[place - 1] + share * (sizes[place] - sizes[place - 1]), 6)
    return float("inf")


def _needed(reports: Reports, name: str, strategy: str) -> str:
    found = [labels_needed(one, goal) for one, goal in _pairs(reports, name, strategy)]
    if not found:
        return ""
    if not np.isfinite(found).all():
        return f"> {SIZES[-1]:,}"
    return f"{np.mean(found):,.0f} [{min(found):,.0f}, {max(found):,.0f}]"


def bars(reports: Reports) -> Iterator[Bar]:
    """Suggested labels reach the accuracy of 2,000 random ones with at most 1,300."""
    for name in dict.fromkeys(report["dataset"] for report in reports):
        gaps = differences(reports, name, OURS)
        if len(gaps):
            what = f"{name}: {SIZES[-1]:,} suggested labels not below {N_RANDOM:,} random ones"
            yield Bar(what, _interval(gaps), interval(gaps)[1] >= 0)


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.suggest", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["run", "bars", "table"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=datasets.names())
    parser.add_argument("--strategy", choices=STRATEGIES, help="one of the strategies")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.command == "table":
        options.command = "page"
    return run_command(options, _run, (PAGE, "suggest"), table, bars)


def _run(options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")  # of other tools
    for name in [options.only] if options.only else DATASETS:
        dataset = datasets.load(name)
        for seed in range(options.seeds):
            for strategy in [options.strategy] if options.strategy else STRATEGIES:
                stem = f"{name}-{seed}-{strategy}"
                add_report(options.folder, stem, partial(measure, dataset, strategy, seed))


if __name__ == "__main__":
    sys.exit(main())
