"""The study `small-tables`: many tables, of which only scores and paired intervals are stored.

Rows of predictions go to `build/experiments`, by data set and method, so that a run is resumable
and a further method needs no other one to run again. When all methods of a data set have run, its
scores go to `reports.json` of the study: rows of all tables would be too much to store. Remove the
entry of a data set there to measure it again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from attnknn.records import Floats
from attnknn.research import datasets
from attnknn.research.evaluation.intervals import Interval
from attnknn.research.evaluation.protocol import run
from attnknn.research.evaluation.report import write_json
from attnknn.research.evaluation.table import Table, merged
from experiments.bars import Bar
from experiments.methods import TABLE_METHODS
from experiments.pages import REPORTS, ROOT, Report, markdown
from experiments.peers import CalibratedSVC

ROWS = ROOT / "build" / "experiments"
METRICS = ("nll", "error")
RIVAL = "CatBoost"
RATIO = 0.95  # of the mean log-loss of the rival
TOLERANCE = 0.10  # by which the log-loss of a table may be above that of the best peer


def measure(name: str, chosen: dict[str, Any], folder: Path, rows: Path = ROWS) -> Report:
    """The scores of one data set: read if all methods have run, measured otherwise."""
    path = folder / REPORTS
    known = json.loads(path.read_text()) if path.exists() else {}
    if _is_complete(known.get(name, {}), chosen):
        return dict(known[name])
    dataset = datasets.load(name)
    tables = [
        run(
            dataset,
            [TABLE_METHODS[method]],
            chosen["seeds"],
            encoder=None,
            folder=rows / name / re.sub(r"\W+", "-", method),
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
        for method in chosen["methods"]
    ]
    report = summary(merged(tables), chosen["against"])
    known = json.loads(path.read_text()) if path.exists() else {}  # others may have run meanwhile
    write_json(path, {**known, name: report})
    return report


def _is_complete(report: Report, chosen: dict[str, Any]) -> bool:
    """Whether all methods have run, and are compared with the right one."""
    methods = list(report.get("methods", ()))
    return methods == chosen["methods"] and report.get("against") == chosen["against"]


def summary(table: Table, against: str) -> Report:
    """Scores of all methods by seed, and paired intervals against one of them."""
    return {
        "dataset": table.dataset,
        "checksum": table.checksum,
        "n_train": table.n_train,
        "n_test": table.n_test,
        "seeds": table.seeds,
        "versions": table.versions,
        "methods": {method: _scores(table, method) for method in table.methods},
        "against": against,
        "differences": {m: _difference(table, m, against) for m in table.methods if m != against},
    }


def _scores(table: Table, method: str) -> dict[str, Any]:
    runs = table.of(method)
    return {
        "nll": " ".join(f"{run.scores.nll:.5f}" for run in runs),
        "error": " ".join(f"{1 - run.scores.accuracy:.5f}" for run in runs),
        "seconds": f"{_mean(runs, 'fit_seconds'):.2f} {_mean(runs, 'predict_seconds'):.2f}",
    }


def _mean(runs: Sequence[Any], name: str) -> float:
    return float(np.mean([getattr(run, name) for run in runs]))


def _difference(table: Table, method: str, against: str) -> dict[str, str]:
    """Mean, lower and upper end of the difference in log-loss and error."""
    loss, gain = (table.difference(metric, method, against) for metric in ("nll", "accuracy"))
    return {
        "nll": f"{loss.mean:.5f} {loss.lower:.5f} {loss.upper:.5f}",
        "error": f"{-gain.mean:.5f} {-gain.upper:.5f} {-gain.lower:.5f}",
    }


def numbers(text: str) -> Floats:
    """Numbers that are stored in one line.

    >>> numbers("0.5 0.25")
    array([0.5 , 0.25])
    """
    return np.array([float(part) for part in text.split()]) + 0.0  # no negative zeros


def score(report: Report, metric: str, method: str) -> float:
    """The mean over seeds."""
    return float(numbers(report["methods"][method][metric]).mean())


def difference(report: Report, metric: str, method: str) -> Interval:
    """A metric of a method minus that of the reference, with its paired 95 % interval."""
    return Interval(*numbers(report["differences"][method][metric]).tolist())


def complete(chosen: dict[str, Any], folder: Path) -> list[Report]:
    """The reports of the data sets on which all methods have run, in the order of the settings."""
    path = folder / REPORTS
    known = json.loads(path.read_text()) if path.exists() else {}
    reports = [known[name] for name in chosen["datasets"] if name in known]
    return [report for report in reports if _is_complete(report, chosen)]


def chapter(chosen: dict[str, Any], folder: Path) -> str:
    """A table for each data set, and below them the means and ranks over all of them."""
    reports = complete(chosen, folder)
    if not reports:
        return ""
    parts = [data_table(report, chosen) for report in reports]
    absent = missing(chosen, folder)
    tested = [report for report in reports if report["dataset"] not in chosen["development"]]
    for title, some in (("All tables", reports), ("Tables that only test", tested)):
        if some:
            parts.append(f"### {title}\n\n{means_table(some, chosen)}\n")
    if absent:
        parts.append(f"Not measured yet: {', '.join(absent)}.\n")
    return "\n".join(parts)


def short_chapter(chosen: dict[str, Any], folder: Path) -> str:
    """The means and ranks over all data sets."""
    return means_table(complete(chosen, folder), chosen)


def data_table(report: Report, chosen: dict[str, Any]) -> str:
    """Log-loss and error of all methods on one data set, and paired differences."""
    own = chosen["against"]
    head = ["method", "log-loss", "error", f"log-loss − {own}", f"error − {own}", "fit s"]
    lines = []
    for method, found in report["methods"].items():
        scores = [f"{score(report, metric, method):.4f}" for metric in METRICS]
        gaps = [
            "" if method == own else f"{difference(report, metric, method):+.4f}"
            for metric in METRICS
        ]
        fit_seconds, _ = numbers(found["seconds"])
        lines.append([method, *scores, *gaps, f"{fit_seconds:.2f}"])
    name = report["dataset"]
    use = "development" if name in chosen["development"] else "test only"
    seeds = ", ".join(map(str, report["seeds"]))
    most = CalibratedSVC().max_rows
    sampled = f" SVC has {most:,} of the training rows." if report["n_train"] > most else ""
    caption = (
        f"{name} ({use}): {report['n_train']:,} training and {report['n_test']:,} test rows, "
        f"seeds {seeds}. In brackets paired 95 % intervals over rows and seeds.{sampled}"
    )
    return f"### {name}\n\n{markdown(head, lines)}\n\n{caption}\n"


def ranks(reports: Sequence[Report], metric: str) -> dict[str, float]:
    """Mean rank of each method, 1 for the lowest; equal values share their ranks."""
    methods = list(reports[0]["methods"])
    scores = [[score(report, metric, method) for method in methods] for report in reports]
    return dict(zip(methods, rankdata(scores, axis=1).mean(axis=0).tolist(), strict=True))


def mean_score(reports: Sequence[Report], metric: str, method: str) -> float:
    """The mean over tables."""
    return float(np.mean([score(report, metric, method) for report in reports]))


def means_table(reports: Sequence[Report], chosen: dict[str, Any]) -> str:
    """Mean ranks, log-loss and error of all methods, those with the best rank first."""
    by_loss, by_error = (ranks(reports, metric) for metric in METRICS)
    rival = mean_score(reports, "nll", RIVAL)
    lines = []
    for method in sorted(by_loss, key=lambda name: by_loss[name]):
        loss, error = (mean_score(reports, metric, method) for metric in METRICS)
        values = [f"{by_loss[method]:.2f}", f"{by_error[method]:.2f}", f"{loss:.4f}"]
        name = f"**{method}**" if method in chosen["ours"] else method
        lines.append([name, *values, f"{error:.4f}", f"{loss / rival:.3f}"])
    head = ["method (ours bold)", "mean rank in log-loss", "mean rank in error"]
    head += ["mean log-loss", "mean error", f"mean log-loss / {RIVAL}'s"]
    names = [report["dataset"] for report in reports]
    caption = f"{len(reports)} tables: {', '.join(names)}."
    return f"{markdown(head, lines)}\n\n{caption}"


def missing(chosen: dict[str, Any], folder: Path) -> list[str]:
    """The data sets of the study that are not measured yet."""
    done = {report["dataset"] for report in complete(chosen, folder)}
    return [name for name in chosen["datasets"] if name not in done]


def study_bars(chosen: dict[str, Any], folder: Path) -> Iterator[Bar]:
    """The bars of the study, over all tables that were measured and over those that only test."""
    reports = complete(chosen, folder)
    tested = [report for report in reports if report["dataset"] not in chosen["development"]]
    absent = missing(chosen, folder)
    note = f" ({len(absent)} not measured)" if absent else ""
    if reports:
        yield from _bars_of(reports, chosen, f"{len(reports)} small tables{note}")
    if tested:
        yield from _bars_of(tested, chosen, f"{len(tested)} that only test")


def _bars_of(reports: Sequence[Report], chosen: dict[str, Any], where: str) -> Iterator[Bar]:
    own = chosen["against"]
    peers = [method for method in chosen["methods"] if method not in chosen["ours"]]
    for metric, word in (("nll", "log-loss"), ("error", "error")):
        found = ranks(reports, metric)
        best = min(peers, key=lambda name: found[name])
        shown = f"{found[own]:.2f} against {found[best]:.2f} of {best}"
        yield Bar(f"{where}: best mean rank in {word}", shown, found[own] < found[best])
    ratio = mean_score(reports, "nll", own) / mean_score(reports, "nll", RIVAL)
    what = f"{where}: mean log-loss ≤ {RATIO} × {RIVAL}'s"
    yield Bar(what, f"{ratio:.3f}", ratio <= RATIO)
    worse = [report["dataset"] for report in reports if _is_worse(report, peers)]
    what = f"{where}: no table above the best peer by > 10 % in log-loss beyond the interval"
    yield Bar(what, ", ".join(worse) or "none", not worse)


def _is_worse(report: Report, peers: Sequence[str]) -> bool:
    best = min(peers, key=lambda name: score(report, "nll", name))
    gap = difference(report, "nll", best)  # negative where the peer is better
    return -gap.upper > TOLERANCE * score(report, "nll", best)
