"""`python -m experiments.audit` measures the audit on labels that were made wrong on purpose.

A share of the training labels is replaced at random before anything is fitted. Then the
probabilities that labels are wrong are compared with which ones are. Runs are resumable.
`python -m experiments.audit bars` prints the thresholds, `page` writes the table of docs/audit.md.
Data is looked for in ATTNKNN_DATA. If cleanlab is installed (2.9 or later), it ranks the same
entries by the same probabilities.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from attnknn import AttnKNNClassifier
from attnknn.encoders import make_encoder
from attnknn.insight import Audit, audit
from attnknn.metrics import ece_by_class
from attnknn.records import Booleans, Floats, Integers
from attnknn.research import datasets
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.research.evaluation.protocol import environment
from experiments.bars import Bar
from experiments.pages import ROOT, add_report, markdown, run_command

RESULTS = Path(__file__).parent / "results" / "audit"
PAGE = ROOT / "docs" / "audit.md"
DATASETS = ("banking77", "letter")
RATES = (0.05, 0.2, 0.3)
ATTENTIONS = ("auto", "distance")
NOTE = """Means over seeds. *Wrong* labels were put in, *expected* is the sum of the probabilities \
to be wrong, *ECE* the calibration error of these probabilities. *AUROC* is the probability that a \
wrong label ranks above a right one, beside the best of cleanlab's three rankings by the same \
probabilities. *Suggested*: wrong labels whose suggestion is the true one \
(`python -m experiments.audit`, then `page`)."""
RANKINGS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def measure(dataset: datasets.Dataset, rate: float, seed: int, attention: str) -> dict[str, Any]:
    """Make labels wrong, fit, audit, compare."""
    observed = symmetric_noise(
        dataset.y_train, rate, random_state=seed, n_classes=len(dataset.classes)
    )
    encoder = make_encoder("tabular" if dataset.kind == "table" else "identity")
    rows = np.asarray(encoder.fit(dataset.X_train, observed).transform(dataset.X_train))
    started = time.perf_counter()
    clf = AttnKNNClassifier(64, attention=attention, random_state=seed).fit(rows, observed)
    fitted = time.perf_counter()
    found = audit(clf)
    audited = time.perf_counter()
    is_wrong = observed != dataset.y_train
    return {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "rate": rate,
        "seed": seed,
        "attention": attention,
        "kept": clf.fit_report_.attention,
        "versions": environment(),
        "fit_seconds": round(fitted - started, 2),
        "audit_seconds": round(audited - fitted, 2),
        "all": scores_of(found, is_wrong, dataset.y_train, slice(None)),
        **_by_held_out(found, is_wrong, dataset.y_train),
        "cleanlab_auroc": cleanlab_scores(clf.leave_one_out_proba(), observed, is_wrong),
    }


def scores_of(
    found: Audit, is_wrong: Booleans, true: Integers, chosen: slice | Booleans
) -> dict[str, float]:
    """How well an audit knows which labels are wrong, over some of the entries."""
    wrong, truth = found.wrong[chosen], is_wrong[chosen]
    bad = np.flatnonzero(truth)
    return {
        "entries": len(truth),
        "wrong": int(truth.sum()),
        "expected_wrong": float(wrong.sum()),
        "label_noise": found.label_noise,
        "ece": float(ece_by_class(truth.astype(int), np.column_stack([1 - wrong, wrong]))[1]),
        "auroc": float(roc_auc_score(truth, wrong)),
        "label_error_auroc": float(roc_auc_score(truth, found.label_error_score[chosen])),
        "value_auroc": float(roc_auc_score(truth, -found.value[chosen])),
        "suggested_right": float(np.mean(found.suggested[chosen][bad] == true[chosen][bad])),
    }


def _by_held_out(found: Audit, is_wrong: Booleans, true: Integers) -> dict[str, Any]:
    """The same for entries that learned attention was trained on, and for the others."""
    if found.held_out.all():
        return {}
    return {
        "held_out": scores_of(found, is_wrong, true, found.held_out),
        "trained_on": scores_of(found, is_wrong, true, ~found.held_out),
    }


def cleanlab_scores(
    probabilities: Floats, observed: Integers, is_wrong: Booleans
) -> dict[str, float]:
    """AUROC of cleanlab's rankings by the same probabilities; empty where it is not installed."""
    if importlib.util.find_spec("cleanlab") is None:
        return {}
    from cleanlab.rank import get_label_quality_scores

    return {
        way: float(
            roc_auc_score(is_wrong, -get_label_quality_scores(observed, probabilities, method=way))
        )
        for way in RANKINGS
    }


def bars(reports: list[dict[str, Any]]) -> Iterator[Bar]:
    """The thresholds of each report."""
    for report in reports:
        found = report["all"]
        where = (
            f"{report['dataset']}, {report['rate']:.0%} noise, {report['attention']}, "
            f"seed {report['seed']}"
        )
        ece, auroc = found["ece"], found["auroc"]
        yield Bar(f"{where}: ECE of P(wrong) ≤ 0.03", f"{ece:.4f}", ece <= 0.03)
        off = found["expected_wrong"] / found["wrong"] - 1
        shown = f"{found['expected_wrong']:.0f} of {found['wrong']} ({off:+.1%})"
        yield Bar(f"{where}: expected errors within 10 %", shown, abs(off) <= 0.10)
        if report["dataset"] == "banking77" and report["rate"] == 0.2:
            yield Bar(f"{where}: AUROC ≥ 0.985", f"{auroc:.4f}", auroc >= 0.985)
        if report["cleanlab_auroc"]:
            best = max(report["cleanlab_auroc"].values())
            shown = f"{auroc:.4f} against {best:.4f}"
            yield Bar(f"{where}: AUROC ≥ cleanlab's − 0.002", shown, auroc >= best - 0.002)


def table(reports: list[dict[str, Any]]) -> str:
    """Expected errors, calibration and ranking as Markdown; means over seeds."""
    head = [
        "data, attention",
        "seeds",
        "wrong",
        "expected",
        "ECE",
        "AUROC",
        "cleanlab's",
        "suggested",
    ]
    kinds: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for report in reports:
        kind = (report["dataset"], report["rate"], report["attention"])
        kinds.setdefault(kind, []).append(report)
    lines = []
    for (name, rate, attention), runs in sorted(kinds.items()):
        mean = {key: np.mean([run["all"][key] for run in runs]) for key in runs[0]["all"]}
        best = [max(run["cleanlab_auroc"].values(), default=np.nan) for run in runs]
        lines.append(
            [
                f"{name}, {attention}, {rate:.0%}",
                str(len(runs)),
                f"{mean['wrong']:,.0f}",
                f"{mean['expected_wrong']:,.0f}",
                f"{mean['ece']:.4f}",
                f"{mean['auroc']:.4f}",
                f"{np.mean(best):.4f}",
                f"{mean['suggested_right']:.1%}",
            ]
        )
    return f"{NOTE}\n\n{markdown(head, lines)}"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.audit", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["run", "bars", "page"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=datasets.names())
    parser.add_argument("--rate", type=float, help=f"one of {RATES}, or another")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--attention", choices=ATTENTIONS, help="one of the two")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (PAGE, "audit"), table, bars)


def _run(options: argparse.Namespace) -> None:
    for name in [options.only] if options.only else DATASETS:
        dataset = datasets.load(name)
        for rate in [options.rate] if options.rate is not None else RATES:
            for attention in [options.attention] if options.attention else ATTENTIONS:
                for seed in range(options.seeds):
                    stem = f"{name}-{round(100 * rate)}-{attention}-{seed}"
                    asked = (dataset, rate, seed, attention)
                    add_report(options.folder, stem, partial(measure, *asked))


if __name__ == "__main__":
    sys.exit(main())
