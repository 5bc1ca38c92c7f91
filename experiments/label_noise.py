"""`python -m experiments.label_noise` measures the estimate of label noise on known wrong labels.

A share of the training labels is replaced at random by other classes before anything is fitted.
Then the estimated share, the calibration on clean test labels and the number of wrong labels that
`audit` expects are compared with what was put in. Of large data sets `N_ROWS` training rows are
used, the same ones in every run. The estimator was developed on breast-cancer, churn, letter and
wine-white; adult, banking77 and magic were only measured. Runs are resumable. `bars` prints the
thresholds, `page` writes the table of docs/calibration.md. Data is looked for in ATTNKNN_DATA.
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
from sklearn.metrics import roc_auc_score
from sklearn.utils import _safe_indexing

from attnknn import AttnKNNClassifier
from attnknn.insight import audit
from attnknn.metrics import debiased_ece, nll
from attnknn.records import Integers
from attnknn.research import datasets
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "label-noise"
DATASETS = ("breast-cancer", "churn", "letter", "wine-white", "adult", "banking77", "magic")
RATES = (0.0, 0.05, 0.15, 0.3)
N_SEEDS = 3
N_ROWS = 4000  # training rows at most
METHODS: dict[str, dict[str, Any]] = {"default": {}}  # settings by name
MAX_OFF, MAX_ECE, MAX_SHARE_OFF = 0.03, 0.03, 0.15
NOTE = f"""Means over seeds; at most {N_ROWS:,} training rows. *Put in*: share of labels made \
wrong. *Estimate*: `label_noise_` ± its standard error, with the number of runs that found no \
noise (*none*) or could not estimate it (*n. e.*) and are not in the mean. *ECE* is debiased, on \
clean test labels. *Expected*: the wrong labels that `audit` expects as a share of those put in. \
*AUROC* of the label-error score for wrong labels (`python -m experiments.label_noise`, then \
`page`)."""
Report = dict[str, Any]


def measure(name: str, rate: float, seed: int, method: str) -> Report:
    """Make labels wrong, fit, compare."""
    dataset = datasets.load(name)
    rows = training_rows(len(dataset.y_train))
    true, X = dataset.y_train[rows], _safe_indexing(dataset.X_train, rows)
    observed = symmetric_noise(true, rate, random_state=seed, n_classes=len(dataset.classes))
    started = time.perf_counter()
    clf = AttnKNNClassifier(random_state=seed, **METHODS[method])
    clf.fit(X, observed)
    seconds = time.perf_counter() - started
    found, is_wrong = audit(clf), observed != true
    own = np.searchsorted(clf.classes_, dataset.y_test)
    probabilities = clf.predict_proba(dataset.X_test)
    return {
        "dataset": name,
        "checksum": dataset.checksum,
        "rate": rate,
        "seed": seed,
        "method": method,
        "versions": environment(),
        "rows": len(rows),
        "wrong": int(is_wrong.sum()),
        "label_noise": _or_none(clf.label_noise_),
        "error": clf.fit_report_.label_noise_error,
        "no_estimate": clf.fit_report_.no_estimate,
        "attention": clf.fit_report_.attention,
        "exponent": clf.fit_report_.exponent,
        "accuracy": float((probabilities.argmax(axis=1) == own).mean()),
        "nll": nll(own, probabilities),
        "debiased_ece": debiased_ece(own, probabilities),
        "expected_wrong": _or_none(found.expected_wrong),
        "auroc": float(roc_auc_score(is_wrong, found.label_error_score)) if rate else None,
        "fit_seconds": round(seconds, 2),
    }


def training_rows(n_rows: int) -> Integers:
    """Positions of the training rows that are used: all, or a fixed random part."""
    if n_rows <= N_ROWS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, N_ROWS, replace=False))


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def cells(reports: list[Report]) -> dict[tuple[str, float, str], list[Report]]:
    """Reports of all seeds by data set, rate and method, in the order of the page."""
    keys = [(d, r, m) for d in DATASETS for r in RATES for m in METHODS]
    found = {
        key: [run for run in reports if (run["dataset"], run["rate"], run["method"]) == key]
        for key in keys
    }
    return {key: runs for key, runs in found.items() if runs}


def bars(reports: list[Report]) -> Iterator[Bar]:
    """The thresholds of each data set, rate and method."""
    for (name, rate, method), runs in cells(reports).items():
        where = f"{name}, {rate:.0%} noise, {method}"
        shown = ", ".join(_words(run) for run in runs)
        what = f"{where}: estimates within {MAX_OFF} + 2 standard errors"
        yield Bar(what, shown, all(_is_near(run) for run in runs))
        error = float(np.mean([run["debiased_ece"] for run in runs]))
        yield Bar(f"{where}: debiased ECE ≤ {MAX_ECE}", f"{error:.4f}", error <= MAX_ECE)
        if rate:
            shares = [_share_expected(run) for run in runs]
            shown = ", ".join("none given" if s is None else f"{s:.0%}" for s in shares)
            is_met = all(s is not None and abs(s - 1) <= MAX_SHARE_OFF for s in shares)
            what = f"{where}: expected wrong labels within {MAX_SHARE_OFF:.0%}"
            yield Bar(what, shown, is_met)


def _words(run: Report) -> str:
    if run["label_noise"] is None:
        return "not estimable"
    return f"{run['label_noise']:.3f} ± {run['error']:.3f}"


def _is_near(run: Report) -> bool:
    if run["label_noise"] is None:
        return False
    true = run["wrong"] / run["rows"]
    return bool(abs(run["label_noise"] - true) <= MAX_OFF + 2 * run["error"])


def _share_expected(run: Report) -> float | None:
    return None if run["expected_wrong"] is None else run["expected_wrong"] / run["wrong"]


def table(reports: list[Report]) -> str:
    """Estimates, calibration and audit as Markdown; means over seeds."""
    head = ["data, method", "put in", "estimate", "ECE", "log-loss", "expected", "AUROC"]
    lines = [
        [
            f"{name}, {method}",
            f"{np.mean([run['wrong'] / run['rows'] for run in runs]):.3f}",
            _estimate(runs),
            f"{np.mean([run['debiased_ece'] for run in runs]):.3f}",
            f"{np.mean([run['nll'] for run in runs]):.3f}",
            _mean([_share_expected(run) for run in runs] if rate else [], "{:.0%}"),
            _mean([run["auroc"] for run in runs], "{:.3f}"),
        ]
        for (name, rate, method), runs in cells(reports).items()
    ]
    return f"{NOTE}\n\n{markdown(head, lines)}"


def _estimate(runs: list[Report]) -> str:
    found = [run for run in runs if run["label_noise"]]
    n_unknown = sum(run["label_noise"] is None for run in runs)
    n_none = len(runs) - len(found) - n_unknown
    parts = []
    if found:
        rate, error = (np.mean([run[key] for run in found]) for key in ("label_noise", "error"))
        parts.append(f"{rate:.3f} ± {error:.3f}")
    parts += [f"{n_none} none"] if n_none else []
    parts += [f"{n_unknown} n. e."] if n_unknown else []
    return ", ".join(parts)


def _mean(values: list[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(np.mean(known)) if known else ""


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.label_noise", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=datasets.names())
    parser.add_argument("--method", choices=list(METHODS), help="one of them")
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="number of seeds, from 0")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    place = (ROOT / "docs" / "calibration.md", "label-noise")
    return run_command(options, _run, place, table, bars)


def _run(options: argparse.Namespace) -> None:
    for seed in range(options.seeds):
        for name in [options.only] if options.only else DATASETS:
            for rate in RATES:
                for method in [options.method] if options.method else METHODS:
                    stem = f"{name}-{100 * rate:02.0f}-{method}-{seed}"
                    add_report(options.folder, stem, partial(measure, name, rate, seed, method))


if __name__ == "__main__":
    sys.exit(main())
