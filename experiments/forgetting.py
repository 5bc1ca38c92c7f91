"""What forgetting costs: budgets of 50, 25 and 10 % with three policies.

    python -m experiments.forgetting                 measure what has no report yet
    python -m experiments.forgetting page            write the table into docs/forgetting.md

The classifier is fitted on all training rows, shuffled by the seed. Then entries are removed down
to each budget in turn: least valuable first, oldest first or at random. Test rows are predicted
without and with a `refit`. Rows here do not change with time, so that the newest are as good as any
others. Distance attention is used, so that all of it takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnknn import AttnKNNClassifier
from attnknn.encoders import make_encoder
from attnknn.insight import drop_least_valuable, keep_newest
from attnknn.metrics import accuracy, nll
from attnknn.research import datasets
from attnknn.research.evaluation.protocol import environment
from experiments.pages import ROOT, add_report, run_command

RESULTS = Path(__file__).parent / "results" / "forgetting"
PAGE = ROOT / "docs" / "forgetting.md"
DATASETS = ("letter", "banking77")
BUDGETS = (0.5, 0.25, 0.1)
Reports = list[dict[str, Any]]
Policy = Callable[[AttnKNNClassifier, int], Any]


def measure(dataset: datasets.Dataset, seed: int) -> dict[str, Any]:
    """Fit once; forget by each policy, down from one budget to the next."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(dataset.y_train))
    encoder = make_encoder("tabular" if dataset.kind == "table" else "identity")
    rows = np.asarray(encoder.fit(dataset.X_train, dataset.y_train).transform(dataset.X_train))
    asked = np.asarray(encoder.transform(dataset.X_test)), dataset.y_test
    clf = AttnKNNClassifier(64, attention="distance", random_state=seed)
    clf.fit(rows[order], dataset.y_train[order])
    found = {name: _by_budget(clf, policy, asked) for name, policy in policies(generator).items()}
    return {
        "dataset": dataset.name,
        "checksum": dataset.checksum,
        "seed": seed,
        "entries": len(rows),
        "versions": environment(),
        "everything": scores_of(clf, asked),
        "policies": found,
    }


def policies(generator: np.random.Generator) -> dict[str, Policy]:
    """The policies that choose which entries stay."""

    def at_random(clf: AttnKNNClassifier, n: int) -> Any:
        return keep_newest(clf, n, times=generator.permutation(len(clf.memory_)))

    return {"least value": drop_least_valuable, "random": at_random, "newest": keep_newest}


def _by_budget(
    clf: AttnKNNClassifier, policy: Policy, asked: tuple[Any, Any]
) -> dict[str, dict[str, float]]:
    left, found = copy(clf), {}
    for budget in BUDGETS:
        started = time.perf_counter()
        done = policy(left, round(budget * len(clf.memory_)))
        found[f"{budget:.0%}"] = {
            "seconds": round(time.perf_counter() - started, 1),
            "leave_one_out_accuracy_lost": done.held_out.accuracy_lost,
            **scores_of(left, asked),
            **{f"refit_{name}": v for name, v in scores_of(copy(left).refit(), asked).items()},
        }
    return found


def scores_of(clf: AttnKNNClassifier, asked: tuple[Any, Any]) -> dict[str, float]:
    """Accuracy and log-loss of the test rows."""
    probabilities = clf.predict_proba(asked[0])
    own = np.searchsorted(clf.classes_, asked[1])
    return {
        "accuracy": round(accuracy(own, probabilities), 5),
        "log_loss": round(nll(own, probabilities), 5),
    }


def table(reports: Reports) -> str:
    """Markdown: what is left of accuracy and log-loss, a line for each data set and policy."""
    head = ["data", "removed first", "all", *(f"{budget:.0%}" for budget in BUDGETS)]
    lines = [head, ["---", "---", *["--:"] * (len(head) - 2)]]
    for name in dict.fromkeys(report["dataset"] for report in reports):
        chosen = [report for report in reports if report["dataset"] == name]
        everything = _cell([report["everything"] for report in chosen])
        for policy in chosen[0]["policies"]:
            for prefix, words in (("", ""), ("refit_", ", then refit")):
                by_budget = [
                    _cell([report["policies"][policy][f"{b:.0%}"] for report in chosen], prefix)
                    for b in BUDGETS
                ]
                of_seeds = f"{name}, {len(chosen)} seeds"
                lines.append([of_seeds, policy + words, everything, *by_budget])
    words = (
        "Test rows: accuracy in percent / log-loss, when so much of the memory is left, each "
        "budget from the one before. Distance attention, means over seeds (`python -m "
        "experiments.forgetting`, then `page`).\n"
    )
    return "\n".join([words, *(f"| {' | '.join(line)} |" for line in lines)])


def _cell(found: list[dict[str, float]], prefix: str = "") -> str:
    right = 100 * np.mean([scores[f"{prefix}accuracy"] for scores in found])
    loss = np.mean([scores[f"{prefix}log_loss"] for scores in found])
    return f"{right:.1f} / {loss:.3f}"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.forgetting",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["run", "page"], default="run")
    parser.add_argument("--only", metavar="DATASET", choices=datasets.names())
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    return run_command(options, _run, (PAGE, "forgetting"), table)


def _run(options: argparse.Namespace) -> None:
    for name in [options.only] if options.only else DATASETS:
        dataset = datasets.load(name)
        for seed in range(options.seeds):
            stem = f"{name}-{seed}"
            add_report(options.folder, stem, partial(measure, dataset, seed))


if __name__ == "__main__":
    sys.exit(main())
