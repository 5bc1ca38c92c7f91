"""The study of texts: its table and its bars."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from experiments.texts import DATASETS, METHODS, OURS, RIVAL, bars, logistic_regression, table


def report(name, error, nll):
    """A report in which our method differs from logistic regression by so much."""
    scores = {"nll": "0.50000 0.40000", "error": "0.20000 0.10000", "seconds": "2.00 0.10"}
    width = {
        metric: f"{gap:.5f} {gap - 0.01:.5f} {gap + 0.01:.5f}"
        for metric, gap in (("error", error), ("nll", nll))
    }
    methods = {RIVAL: scores, OURS: scores}
    return {"dataset": name, "methods": methods, "against": RIVAL, "differences": {OURS: width}}


def test_bars_need_two_gains_beyond_the_interval_and_no_loss():
    gains = [report(DATASETS[0], -0.02, -0.1), report(DATASETS[1], -0.03, -0.1)]
    even, worse = report(DATASETS[2], 0.0, 0.0), report(DATASETS[2], 0.02, 0.0)
    assert [bar.is_met for bar in bars([*gains, even])] == [True, True]
    assert [bar.is_met for bar in bars([*gains, worse])] == [False, True]
    assert [bar.is_met for bar in bars([gains[0], even])] == [False, False]


def test_the_table_shows_accuracy_and_differences():
    shown = table([report(DATASETS[0], -0.02, -0.1)])
    assert "| 85.0 % | 0.450 |" in shown
    assert "+2.0 [+1.0, +3.0]" in shown


def test_methods_have_different_names_and_can_be_made():
    assert len({method.name for method in METHODS}) == len(METHODS)
    texts = ["good film", "bad film", "good one", "bad one"] * 5
    model = logistic_regression(0).fit(texts, [1, 0, 1, 0] * 5)
    assert model.predict(["a good one"]).tolist() == [1]
