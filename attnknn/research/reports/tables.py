"""Tables of experiments as sections of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnknn.metrics import ReliabilityBins, RiskCoverage
from attnknn.metrics.calibration import bins_of_confidence
from attnknn.metrics.selective import curve_of
from attnknn.research.evaluation.table import BY_ROW, METRICS, Table
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section
from attnknn.research.reports.sentences import all_compared, best, honesty

WORDS = {
    "accuracy": "accuracy (higher is better)",
    "nll": "log-loss (lower is better)",
}


def grid_of(table: Table, name: str, metrics: Sequence[str] = METRICS) -> Grid:
    """Every method with its scores, 95 % intervals where rows allow them."""
    rows = [
        [method, *(table.cell(metric, method) for metric in metrics)] for method in table.methods
    ]
    return Grid(name, ["method", *metrics], rows, note=table.caption(metrics))


def section_of(table: Table, title: str, ours: str, name: str) -> Section:
    """A whole section: sentences, the table, and its figures."""
    sentences = [best(table, metric) for metric in BY_ROW]
    sentences += all_compared(table, ours, "nll")
    sentences.append(honesty(table, ours))
    drawings = [
        Drawing(
            f"{name}-{metric}",
            figures.comparison(
                {method: table.interval(metric, method) for method in table.methods},
                WORDS[metric],
                ours=ours,
            ),
            f"{WORDS[metric]}, with 95 % intervals over {table.luck}.",
        )
        for metric in BY_ROW
    ]
    drawings += [
        Drawing(
            f"{name}-reliability",
            figures.reliability(bins_of(table, ours), ours),
            f"How often {ours} is right when it is so sure, over {_counted(table)}; whiskers are "
            "two standard deviations of so many rows.",
        ),
        Drawing(
            f"{name}-risk-coverage",
            figures.risk_and_coverage(
                {method: curve(table, method) for method in table.methods},
                "If only the surest are answered",
            ),
            "The share of wrong answers among those that are given, most confident first.",
        ),
    ]
    return Section(title, sentences, [grid_of(table, name)], drawings)


def bins_of(table: Table, method: str, n_bins: int = 15) -> ReliabilityBins:
    """Confidence against accuracy over all seeds, with the counts and the noise of the test rows.

    Seeds answer the same rows: together they know no more than one about the luck of the rows. So
    counts are means over seeds, rounded up, and the noise is that of so many rows.
    """
    confidence, is_right = _rows(table, method)
    found = bins_of_confidence(confidence, is_right, n_bins)
    n_seeds = len(table.seeds)
    counts = -(-found.counts // n_seeds)  # rounded up: a bin of a few seeds is not empty
    return replace(found, counts=counts, noise=found.noise * np.sqrt(n_seeds))


def curve(table: Table, method: str) -> RiskCoverage:
    """Risk and coverage over the rows of all seeds."""
    confidence, is_right = _rows(table, method)
    return curve_of(confidence, ~is_right)


def _counted(table: Table) -> str:
    rows = f"{table.n_test:,} test rows"
    return f"{rows}, the mean of {len(table.seeds)} seeds" if len(table.seeds) > 1 else rows


def _rows(table: Table, method: str) -> tuple[np.ndarray, np.ndarray]:
    runs = table.of(method)
    confidence = np.concatenate([run.row_confidence for run in runs])
    return np.clip(confidence, 0.0, 1.0), np.concatenate([run.row_correct for run in runs])
