"""Sentences say what the numbers say, and no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnknn.research.evaluation.intervals import Interval
from attnknn.research.reports.sentences import (
    best,
    describe_calibration,
    describe_confidence,
    describe_difference,
    describe_differences,
    join_names,
)


@pytest.mark.parametrize(
    ("gap", "metric", "said"),
    [
        (Interval(0.02, 0.01, 0.03), "accuracy", "a has a higher accuracy than b, by 0.0200"),
        (Interval(-0.02, -0.03, -0.01), "nll", "a has a lower log-loss than b, by 0.0200"),
        (Interval(0.01, -0.01, 0.03), "nll", "a and b do not differ significantly in log-loss"),
    ],
)
def test_a_difference_is_one_only_beyond_the_interval(gap, metric, said):
    assert describe_difference(gap, metric, "a", "b").startswith(said)


def test_names_with_commas_are_quoted():
    gap = Interval(-0.02, -0.03, -0.01)
    said = describe_difference(gap, "nll", "attnknn, views", "uniform")
    assert said.startswith("“attnknn, views” has a lower log-loss than uniform, by")
    assert join_names(["a, b", "c"]) == "“a, b” and c"


def test_sentences_follow_the_table(table):
    accuracy = {method: table.mean("accuracy", method) for method in table.methods}
    first = max(accuracy, key=accuracy.get)
    assert best(table, "accuracy").startswith(f"{first} has the highest accuracy")
    gap = table.difference("nll", "attnknn", "uniform")
    word = "lower" if gap.mean < 0 else "higher"
    (said,) = describe_differences(table, "attnknn", "nll")
    assert f"attnknn has a {word} log-loss than uniform" in said
    assert f"{table.mean('ece', 'attnknn'):.4f}" in describe_calibration(table, "attnknn")


def test_methods_that_do_not_differ_share_a_sentence(table):
    ours = [run for run in table.runs if run.method == "attnknn"]
    twins = [replace(run, method=name) for run in ours for name in ("twin", "twin, views")]
    more = replace(table, runs=(*table.runs, *twins))
    said = describe_differences(more, "attnknn", "nll")
    assert len(said) == 2
    assert said[1] == (
        "attnknn does not differ significantly from twin and “twin, views” in log-loss."
    )


@pytest.mark.parametrize(
    ("confidence", "said"),
    [(0.6, "underconfident by 0.2"), (0.95, "overconfident"), (0.8, "neither over- nor")],
)
def test_overconfidence_is_named_if_it_is_significant(confidence, said):
    is_right = (np.arange(400) % 5 > 0).astype(float)[None]  # four of five
    assert describe_confidence(np.full((1, 400), confidence), is_right).startswith(said)
