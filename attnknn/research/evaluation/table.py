"""The result of an experiment: scores and test rows of every method on every seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnknn._escape import markdown_text
from attnknn.errors import InvalidInputError, unknown_name
from attnknn.metrics import HIGHER_IS_BETTER, Scores
from attnknn.records import Booleans, Floats
from attnknn.research.evaluation.intervals import (
    CalibrationError,
    Interval,
    calibration_errors,
    mean_interval,
    paired_interval,
)

BY_ROW = ("accuracy", "nll")  # the metrics that are means over rows, and so have intervals
METRICS = ("accuracy", "macro_f1", "nll", "brier", "ece", "debiased_ece")
ROW_FIELDS = ("row_nll", "row_correct", "row_confidence")


@dataclass(frozen=True, eq=False)
class Run:
    """One method on one seed."""

    method: str
    seed: int
    scores: Scores
    row_nll: Floats  # (n_test,) as the next two
    row_correct: Booleans
    row_confidence: Floats
    fit_seconds: float
    predict_seconds: float
    settings: dict[str, str]  # parameters of the estimator, as `repr` writes them
    chosen: dict[str, Any]  # fitted numbers and names, such as `n_neighbors_`


@dataclass(frozen=True, eq=False)
class Table:
    """All runs of one experiment on one data set, with the settings to repeat them."""

    dataset: str
    checksum: str
    n_train: int
    n_test: int
    corruption: str  # description of the corruption of labels, rows or images; "" for none
    encoder: str  # description of the encoder whose embeddings all methods got
    versions: dict[str, str]  # versions of Python and packages
    runs: tuple[Run, ...]
    # settings of the experiment beside those of its methods, as JSON stores them
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cells = sorted((run.method, run.seed) for run in self.runs)
        wanted = sorted((method, seed) for method in self.methods for seed in self.seeds)
        if cells != wanted:
            raise InvalidInputError("Every method must have run once on every seed of a table.")

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order in which they ran."""
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order in which they ran."""
        return list(dict.fromkeys(run.seed for run in self.runs))

    def with_seeds(self, seeds: Sequence[int]) -> Table:
        """The same table with the runs of these seeds, in their order."""
        runs = tuple(run for seed in seeds for run in self.runs if run.seed == seed)
        return replace(self, runs=runs)

    def of(self, method: str) -> list[Run]:
        """The runs of a method, one per seed."""
        if method not in self.methods:
            raise unknown_name("method", method, self.methods)
        return [run for run in self.runs if run.method == method]

    def mean(self, metric: str, method: str) -> float:
        """A metric of a method, averaged over seeds."""
        _check_metric(metric, HIGHER_IS_BETTER)
        return float(np.mean([getattr(run.scores, metric) for run in self.of(method)]))

    def by_row(self, metric: str, method: str) -> Floats:
        """Accuracy or log-loss of a method for each seed and test row, (S, n)."""
        _check_metric(metric, BY_ROW)
        name = "row_correct" if metric == "accuracy" else "row_nll"
        return np.stack([getattr(run, name).astype(np.float64) for run in self.of(method)])

    def interval(self, metric: str, method: str) -> Interval:
        """Accuracy or log-loss of a method with its 95 % interval over rows and seeds."""
        return mean_interval(self.by_row(metric, method))

    def difference(self, metric: str, first: str, second: str) -> Interval:
        """Accuracy or log-loss of `first` minus that of `second`, paired, with its interval."""
        return paired_interval(self.by_row(metric, first), self.by_row(metric, second))

    def ece_interval(self, method: str) -> Interval:
        """Calibration error of a method without its sampling noise, with its 95 % interval."""
        return self._calibration_errors(method)[method].interval()

    def ece_difference(self, first: str, second: str) -> Interval:
        """Calibration error of `first` minus that of `second`, paired, with its 95 % interval.

        Both without sampling noise, which is larger where the true error is smaller.
        """
        found = self._calibration_errors(first, second)
        return found[first].minus(found[second])

    def _calibration_errors(self, *methods: str) -> dict[str, CalibrationError]:
        sure, right = (
            {
                method: np.stack([getattr(run, name).astype(np.float64) for run in self.of(method)])
                for method in methods
            }
            for name in ("row_confidence", "row_correct")
        )
        return calibration_errors(sure, right)

    def markdown(
        self,
        metrics: Sequence[str] = METRICS,
        against: str | None = None,
    ) -> str:
        """The table as Markdown: means over seeds, with 95 % intervals of means over rows.

        With a method `against`, paired differences of accuracy and log-loss to it are added.
        """
        compared = [m for m in metrics if m in BY_ROW] if against is not None else []
        head = ["method", *metrics, *(f"{m} − {against}" for m in compared), "fit s", "predict s"]
        lines = [head, ["---", *["--:"] * (len(head) - 1)]]
        for method in self.methods:
            runs = self.of(method)
            cells = [self.cell(metric, method) for metric in metrics]
            cells += [
                "" if method == against else f"{self.difference(m, method, str(against)):+.4f}"
                for m in compared
            ]
            times = [np.mean([getattr(r, f"{t}_seconds") for r in runs]) for t in TIMES]
            lines.append([method, *cells, *(f"{seconds:.2f}" for seconds in times)])
        body = "\n".join(f"| {' | '.join(map(markdown_text, line))} |" for line in lines)
        return f"{body}\n\n{markdown_text(self.caption(metrics))}\n"

    def cell(self, metric: str, method: str) -> str:
        """A mean over seeds, with its interval if it is a mean over rows."""
        if metric in BY_ROW:
            return f"{self.interval(metric, method):.4f}"
        return f"{self.mean(metric, method):.4f}"

    @property
    def luck(self) -> str:
        """What intervals account for: rows, and seeds if there are several."""
        return "rows and seeds" if len(self.seeds) > 1 else "rows, of one seed"

    def caption(self, metrics: Sequence[str] = METRICS) -> str:
        """Data, encoder and seeds, and what the brackets mean."""
        seeds = ", ".join(map(str, self.seeds))
        has_debiased = "debiased_ece" in metrics
        damage = f"; damage: {self.corruption}" if self.corruption not in ("", "none") else ""
        return (
            f"{self.dataset}: {self.n_train:,} training and {self.n_test:,} test rows, "
            f"encoder {self.encoder}, seeds {seeds}{damage}. In brackets 95 % intervals over "
            f"{self.luck}" + ("; debiased_ece without its sampling noise." if has_debiased else ".")
        )


TIMES = ("fit", "predict")

SHARED = ("dataset", "checksum", "n_train", "corruption", "encoder", "methods", "settings")


def joined(tables: Iterable[Table]) -> Table:
    """Tables of other seeds of the same experiment as one."""
    tables = list(tables)
    first = tables[0]
    for table in tables[1:]:
        for name in SHARED:
            if getattr(table, name) != getattr(first, name):
                raise InvalidInputError(
                    f"Tables to join must have the same `{name}`, "
                    f"got {getattr(first, name)!r} and {getattr(table, name)!r}."
                )
        if first.settings and _choices(table) != _choices(first):
            raise InvalidInputError(
                "Tables to join must have methods of the same settings, "
                f"got {_choices(first)!r} and {_choices(table)!r}."
            )
    return replace(first, runs=tuple(run for table in tables for run in table.runs))


def merged(tables: Iterable[Table]) -> Table:
    """Tables of other methods of the same experiment as one, with the seeds that all have."""
    tables = list(tables)
    seeds = [seed for seed in tables[0].seeds if all(seed in table.seeds for table in tables)]
    chosen = [table.with_seeds(seeds) for table in tables]
    return replace(chosen[0], runs=tuple(run for table in chosen for run in table.runs))


def _choices(table: Table) -> dict[str, dict[str, str]]:
    """Settings of the methods, which are the same for all seeds."""
    return {run.method: run.settings for run in table.runs}


def _check_metric(metric: str, known: Iterable[str]) -> None:
    if metric not in known:
        raise unknown_name("metric", metric, known)
