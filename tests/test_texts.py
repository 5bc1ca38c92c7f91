"""The study of texts: its table and its bars."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from experiments import texts as study
from experiments.texts import (
    LOGISTIC,
    METHODS,
    METHODS_OF_VECTORS,
    METHODS_WITH_MODEL,
    OURS,
    OURS_WITH_MODEL,
    RIVAL,
    STACKED,
    TEXTS,
    VECTORS,
    bars,
    logistic_regression,
    methods_of,
    table,
)

SCORES = {"nll": "0.50000 0.40000", "error": "0.20000 0.10000", "seconds": "2.00 0.10"}


def gaps(error, nll):
    return {
        metric: f"{gap:.5f} {gap - 0.01:.5f} {gap + 0.01:.5f}"
        for metric, gap in (("error", error), ("nll", nll))
    }


def report(name, error, nll, *, to_stacked=None):
    """A report in which our methods differ from logistic regression by so much."""
    found = {
        "dataset": name,
        "methods": {RIVAL: SCORES, OURS: SCORES},
        "against": RIVAL,
        "differences": {OURS: gaps(error, nll)},
    }
    if to_stacked is not None:
        found["methods"] |= {STACKED: SCORES, OURS_WITH_MODEL: SCORES}
        found["differences"] |= {STACKED: gaps(-0.01, -0.1), OURS_WITH_MODEL: gaps(-0.03, -0.2)}
        found["same inputs"] = {OURS_WITH_MODEL: gaps(*to_stacked)}
    return found


def vectors(loss, gap):
    scores = {**SCORES, "nll": f"{loss:.5f}"}
    return {
        "dataset": VECTORS,
        "methods": {LOGISTIC: SCORES, OURS: scores},
        "against": LOGISTIC,
        "differences": {OURS: gaps(0.0, gap)},
    }


def are_met(reports):
    return [bar.is_met for bar in bars(reports)]


def test_bars_need_two_gains_beyond_the_interval_and_no_loss():
    gains = [report(TEXTS[0], -0.02, -0.1), report(TEXTS[1], -0.03, -0.1)]
    even, worse = report(TEXTS[2], 0.0, 0.0), report(TEXTS[2], 0.02, 0.0)
    assert are_met([*gains, even])[:2] == [True, True]
    assert are_met([*gains, worse])[:2] == [False, True]
    assert are_met([gains[0], even])[:2] == [False, False]


def test_with_a_sentence_model_both_regressions_are_peers():
    measured = [report(name, -0.02, -0.1, to_stacked=(0.0, -0.02)) for name in TEXTS]
    assert are_met(measured)[2:6] == [True, True, False, True]
    without = [report(name, -0.02, -0.1) for name in TEXTS]
    assert are_met(without)[2:6] == [False] * 4


@pytest.mark.parametrize(
    ("loss", "gap", "expected"),
    [
        (0.16, -0.02, [True, True]),
        (0.16, 0.02, [True, False]),
        (0.18, 0.0, [False, True]),
    ],
)
def test_vectors_have_a_bar_of_their_own(loss, gap, expected):
    assert are_met([vectors(loss, gap)])[-2:] == expected


def test_what_is_not_measured_is_not_met():
    assert are_met([]) == [False] * 7
    assert all("not measured" in bar.measured for bar in bars([]))


def test_the_table_shows_accuracy_and_differences():
    shown = table([vectors(0.16, -0.02), report(TEXTS[0], -0.02, -0.1)])
    assert "| 85.0 % | 0.450 |" in shown
    assert "+2.0 [+1.0, +3.0]" in shown
    assert shown.index(TEXTS[0]) < shown.index("clinc150, MiniLM vectors")


def test_methods_have_different_names_and_can_be_made():
    for methods in ((*METHODS, *METHODS_WITH_MODEL), METHODS_OF_VECTORS):
        assert len({method.name for method in methods}) == len(methods)
    texts = ["good film", "bad film", "good one", "bad one"] * 5
    model = logistic_regression(0).fit(texts, [1, 0, 1, 0] * 5)
    assert model.predict(["a good one"]).tolist() == [1]


def test_without_the_sentence_model_its_methods_are_skipped(monkeypatch, capsys):
    monkeypatch.setattr(study, "model_folder", lambda: None)
    assert methods_of(TEXTS[0]) == METHODS
    assert "MiniLM is skipped" in capsys.readouterr().err
    assert methods_of(VECTORS) == METHODS_OF_VECTORS


def test_methods_with_a_sentence_model_see_words_and_sentences(monkeypatch):
    class Lengths:
        """In place of a sentence model."""

        def fit(self, _texts, _labels=None):
            return self

        def transform(self, texts):
            return np.array([[len(text), text.count(" ")] for text in texts], dtype=np.float32)

    monkeypatch.setattr(study, "sentences", Lengths)
    texts = ["good film", "bad film, really", "good one", "bad one, really"] * 10
    for method in METHODS_WITH_MODEL:
        model = method.make(0)
        if method.name == STACKED:
            model = model.set_params(logisticregressioncv__cv=2)
        predicted = model.fit(texts, [1, 0, 1, 0] * 10).predict(["a bad one, really"])
        assert predicted.tolist() == [0]
