"""`python -m experiments.out_of_scope` measures novelty detection.

CLINC150 has questions that belong to none of its 150 intents. Each score ranks rows; its AUROC is
the probability that an out-of-scope row ranks above one in scope. Alternatives to the distance to
the nearest entry are compared without the test rows: on training rows, with whole classes held out
of the memory as novel ones, and on the calibration part with its hundred out-of-scope rows. Data is
looked for in ATTNKNN_DATA. Runs are resumable; `python -m experiments.out_of_scope bars` prints the
bars, `page` writes the table of docs/sets.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from attnknn import AttnKNNClassifier
from attnknn.records import Booleans, Floats, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "out_of_scope"
DATASET = "clinc150"
LEAST_AUROC = 0.965
N_RESAMPLES = 1000
NOVEL_CLASSES = 30  # kept out of memory where measures are compared on training rows
MEAN_OF = (2, 3, 5, 10)  # nearest distances
NOVELTY_LEVEL = (0.01, 0.05)
PARTS = {
    "test": "test rows",
    "calibration": "calibration part",
    "training": "classes kept out of training rows",
}


def measures(clf: AttnKNNClassifier, X: Any) -> dict[str, Floats]:
    """How strange each row is, by several measures; the library's own comes first."""
    distances, _ = clf.kneighbors(X, max(MEAN_OF))
    decisions, by_two = (clf.decide(X, novelty_level=0, n_nearest=n) for n in (1, 2))
    return {
        "nearest distance": distances[:, 0],
        **{f"mean of {k} distances": distances[:, :k].mean(axis=1) for k in MEAN_OF},
        "1 − confidence": 1 - decisions.confidence,
        "1 − novelty p-value": 1 - decisions.novelty_p_values,
        "1 − novelty p-value, n_nearest=2": 1 - by_two.novelty_p_values,
    }


def aurocs(known: dict[str, Floats], novel: dict[str, Floats], seed: int) -> dict[str, list[float]]:
    """For each measure its AUROC and a 95 % interval: both groups of rows are resampled."""
    rng = np.random.default_rng(seed)
    n_known, n_novel = len(known["nearest distance"]), len(novel["nearest distance"])
    is_novel = np.repeat([False, True], [n_known, n_novel])
    draws = [
        np.concatenate(
            [rng.integers(0, n_known, n_known), n_known + rng.integers(0, n_novel, n_novel)]
        )
        for _ in range(N_RESAMPLES)
    ]
    return {
        name: _with_interval(is_novel, np.concatenate([known[name], novel[name]]), draws)
        for name in known
    }


def _with_interval(is_novel: Booleans, values: Floats, draws: list[Integers]) -> list[float]:
    resampled = [auroc(is_novel, values[draw]) for draw in draws]
    ends = np.quantile(resampled, [0.025, 0.975])
    return [float(roc_auc_score(is_novel, values)), *map(float, ends)]


def auroc(is_novel: Booleans, values: Floats) -> float:
    """The same number as scikit-learn's, from ranks; quick enough for many resamples.

    >>> auroc(np.array([False, False, True]), np.array([0.1, 0.4, 0.3]))
    0.5
    """
    known, novel = np.sort(values[~is_novel]), values[is_novel]
    below = np.searchsorted(known, novel, side="left")
    as_far = np.searchsorted(known, novel, side="right")
    return float((below + as_far).mean() / 2 / len(known))


def measure(dataset: datasets.Dataset, seed: int) -> dict[str, Any]:
    """The measures on test rows against out-of-scope rows, and on training rows alone."""
    clf = AttnKNNClassifier(64, random_state=seed).fit(dataset.X_train, dataset.y_train)
    inside, outside = dataset.X_test, dataset.extras["x_out_of_scope_test"]
    others = [dataset.extras[f"x_{part}calibration"] for part in ("", "out_of_scope_")]
    decisions = clf.decide(inside), clf.decide(outside)
    return {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "seed": seed,
        "kept": clf.fit_report_.attention,
        "versions": environment(),
        "rows": [len(inside), len(outside)],
        "test": aurocs(measures(clf, inside), measures(clf, outside), seed),
        "calibration": aurocs(*(measures(clf, rows) for rows in others), seed),
        "refused": {
            str(most): [float((of.novelty_p_values <= most).mean()) for of in decisions]
            for most in NOVELTY_LEVEL
        },
        "training": on_training_rows(dataset.X_train, dataset.y_train, seed),
    }


def on_training_rows(X: Any, y: Integers, seed: int) -> dict[str, list[float]]:
    """AUROCs with some classes as novel ones and a fifth of the other rows as known queries.

    By distance attention: distances do not depend on the attention, and confidence little.
    """
    rng = np.random.default_rng(seed)
    novel = rng.permutation(np.unique(y))[:NOVEL_CLASSES]
    is_novel = np.isin(y, novel)
    is_asked = ~is_novel & (rng.random(len(y)) < 0.2)
    is_kept = ~is_novel & ~is_asked
    clf = AttnKNNClassifier(64, attention="distance", random_state=seed)
    clf.fit(X[is_kept], y[is_kept])
    return aurocs(measures(clf, X[is_asked]), measures(clf, X[is_novel]), seed)


def bars(reports: list[dict[str, Any]]) -> Iterator[Bar]:
    """The thresholds of each report."""
    for report in reports:
        where = f"{report['dataset']}, out-of-scope rows, seed {report['seed']}"
        for name in ("nearest distance", "mean of 2 distances"):
            value = report["test"][name]
            what = f"{where}: AUROC by the {name} ≥ {LEAST_AUROC}"
            yield Bar(what, _shown(value, 4), value[0] >= LEAST_AUROC)


def table(reports: list[dict[str, Any]]) -> str:
    """AUROC of each measure where it was measured, of the first seed, as Markdown."""
    first = reports[0]
    lines = [[name, *[_shown(first[part][name]) for part in PARTS]] for name in first["test"]]
    return markdown(["measure", *PARTS.values()], lines)


def _shown(value: list[float], digits: int = 3) -> str:
    return "{:.{n}f} [{:.{n}f}, {:.{n}f}]".format(*value, n=digits)


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.out_of_scope", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (ROOT / "docs" / "sets.md", "out-of-scope"), table, bars)


def _run(options: argparse.Namespace) -> None:
    for seed in range(options.seeds):
        make = partial(measure, datasets.load(DATASET), seed)
        add_report(options.folder, f"{DATASET}-{seed}", make)


if __name__ == "__main__":
    sys.exit(main())
