"""Intervals of scores: around the score, as wide as theory says, and on the page."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from attnknn.metrics import aurc, score_all
from attnknn.research.reports.model import model_sections, score_intervals


@pytest.fixture
def answers(rng):
    probabilities = rng.dirichlet([0.4] * 3, 600)
    drawn = rng.random((600, 1)) < probabilities.cumsum(axis=1)
    return drawn.argmax(axis=1), probabilities


def test_intervals_lie_around_the_scores(answers):
    scores = {**score_all(*answers).to_dict(), "aurc": aurc(*answers)}
    found = score_intervals(*answers)
    assert {*found} == {"accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece", "aurc"}
    for name, interval in found.items():
        assert interval.lower < interval.upper
        if name != "ece":
            assert interval.mean == pytest.approx(scores[name])


def test_widths_are_those_of_theory(answers):
    found = score_intervals(*answers)
    for name in ("accuracy", "balanced_accuracy"):
        share = found["accuracy"].mean
        wanted = 2 * 1.96 * np.sqrt(share * (1 - share) / 600)
        assert found[name].upper - found[name].lower == pytest.approx(wanted, rel=0.15)
    assert found["ece"].lower < 0.01  # honest answers


def test_every_score_has_its_interval_on_the_page(answers):
    (grid,) = model_sections(*answers, ["a", "b", "c"])[0].tables
    found = score_intervals(*answers)["nll"]
    rows = {row[0]: row[2] for row in grid.rows}
    assert rows["log-loss"] == f"[{found.lower:.4f}, {found.upper:.4f}]"
    assert rows["maximum calibration error"] == "–"
    assert "600 rows" in grid.note


def test_a_few_rows_of_many_classes_have_intervals():
    found = score_intervals(np.array([0, 4]), np.eye(5)[[0, 4]])
    assert found["macro_f1"].mean == found["macro_f1"].lower == 1.0


def test_rows_that_are_equally_sure_share_their_mistakes():
    codes, probabilities = np.array([0, 1, 0, 0]), np.array([[0.8, 0.2]] * 3 + [[0.6, 0.4]])
    found = score_intervals(codes, probabilities)["aurc"]
    assert found.mean == pytest.approx(aurc(codes, probabilities))
    assert found.lower == 0 < found.upper  # of three equally sure rows one is wrong
