"""Texts told apart by their words: votes of neighbors beside TF-IDF and logistic regression.

    python -m experiments.texts                      measure what has no report yet
    python -m experiments.texts bars                 print every bar with the figure measured
    python -m experiments.texts page                 write the tables into docs/encoders.md

Each seed draws 8,000 training rows; the test set is the canonical one. Predictions of rows go to
`build/experiments`, by data set and method, so that a run is resumable; scores and paired intervals
go to `reports.json`. banking77-texts and sst2 are for development: choices were made on their
training rows. clinc150-texts only tests.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline

from attnknn import AttnKNNClassifier
from attnknn.research import datasets
from attnknn.research.evaluation.protocol import Method, run
from attnknn.research.evaluation.report import write_json
from attnknn.research.evaluation.table import merged
from experiments.bars import Bar
from experiments.pages import REPORTS, ROOT, Report, markdown, read_reports, run_command
from experiments.small_tables import difference, numbers, score, summary

RESULTS = Path(__file__).parent / "results" / "texts"
ROWS = ROOT / "build" / "experiments"
PAGE = ROOT / "docs" / "encoders.md"
DATASETS = ("banking77-texts", "sst2", "clinc150-texts")
SEEDS = (0, 1, 2)
RIVAL = "TF-IDF, logistic regression"
OURS = "attnknn, ngrams"


def logistic_regression(seed: int) -> Any:
    """The usual two lines; the strength is chosen by the log-loss of five folds."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = LogisticRegressionCV(
        Cs=np.logspace(-1, 3, 9),
        cv=5,
        scoring="neg_log_loss",
        max_iter=500,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
        random_state=seed,
    )
    return make_pipeline(words, model)


METHODS = (
    Method(RIVAL, logistic_regression),
    Method("attnknn, tfidf", lambda seed: AttnKNNClassifier(encoder="tfidf", random_state=seed)),
    Method(OURS, lambda seed: AttnKNNClassifier(encoder="ngrams", random_state=seed)),
)


def measure(name: str, folder: Path, rows: Path = ROWS) -> None:
    """Run the methods of one data set that were not run yet, and store its scores."""
    dataset = datasets.load(name)
    tables = [
        run(
            dataset,
            [method],
            SEEDS,
            encoder=None,
            folder=rows / name / re.sub(r"\W+", "-", method.name),
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
        for method in METHODS
    ]
    known = {report["dataset"]: report for report in read_reports(folder)}
    write_json(folder / REPORTS, {**known, name: summary(merged(tables), RIVAL)})


def table(reports: list[Report]) -> str:
    """Accuracy and log-loss of all methods, and paired differences to logistic regression."""
    head = ["data", "method", "accuracy", "log-loss", "accuracy − LR", "log-loss − LR", "fit s"]
    lines = [
        [report["dataset"], method, *_cells(report, method)]
        for report in sorted(reports, key=lambda report: DATASETS.index(report["dataset"]))
        for method in report["methods"]
    ]
    return markdown(head, lines)


def _cells(report: Report, method: str) -> list[str]:
    accuracy = f"{100 * (1 - score(report, 'error', method)):.1f} %"
    loss = f"{score(report, 'nll', method):.3f}"
    seconds = f"{numbers(report['methods'][method]['seconds'])[0]:.0f}"
    if method == RIVAL:
        return [accuracy, loss, "", "", seconds]
    error, gap = (difference(report, metric, method) for metric in ("error", "nll"))
    gain = f"{-100 * error.mean:+.1f} [{-100 * error.upper:+.1f}, {-100 * error.lower:+.1f}]"
    return [accuracy, loss, gain, f"{gap:+.3f}", seconds]


def bars(reports: list[Report]) -> Iterator[Bar]:
    """Better beyond the interval on at least two data sets, and behind it on none."""
    for metric, word in (("error", "error"), ("nll", "log-loss")):
        gaps = {report["dataset"]: difference(report, metric, OURS) for report in reports}
        better = [name for name, gap in gaps.items() if gap.upper < 0]
        worse = [name for name, gap in gaps.items() if gap.lower > 0]
        shown = "; ".join(f"{name} {gap:+.4f}" for name, gap in gaps.items())
        what = f"{word} below {RIVAL} beyond the interval on two data sets, above on none"
        yield Bar(what, shown, len(better) >= 2 and not worse)


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.texts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=DATASETS)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (PAGE, "texts"), table, bars)


def _run(options: argparse.Namespace) -> None:
    for name in [options.only] if options.only else DATASETS:
        measure(name, options.folder)


if __name__ == "__main__":
    sys.exit(main())
