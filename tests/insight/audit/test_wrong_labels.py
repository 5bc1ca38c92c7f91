"""Wrong labels: Bayes' rule, by hand and as Hypothesis draws it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn.calibration import Calibration
from attnknn.insight.audit.wrong_labels import judge_labels

rows_of_chances = st.lists(st.integers(1, 100), min_size=3, max_size=3).map(
    lambda counts: np.array(counts) / sum(counts)
)


@given(
    p=st.lists(rows_of_chances, min_size=1, max_size=5),
    noise=st.floats(0.01, 0.6),
    own=st.integers(0, 2),
)
def test_symmetric_noise_is_a_transition_with_equal_others(p, noise, own):
    transition = np.full((3, 3), noise / 2)
    np.fill_diagonal(transition, 1 - noise)
    labels = np.full(len(p), own)
    plain = judge_labels(np.array(p), labels, Calibration(label_noise=noise))
    by_class = judge_labels(np.array(p), labels, Calibration(1.0, noise, transition))
    assert np.allclose(plain.wrong, by_class.wrong)
    assert ((plain.wrong >= 0) & (plain.wrong <= 1 + 1e-12)).all()
    right = (1 - noise) * np.array(p)[:, own]
    observed = right + noise / 2 * (1 - np.array(p)[:, own])
    assert np.allclose(plain.wrong, 1 - right / observed)


def test_a_confusion_that_never_happens_is_never_suggested():
    transition = np.array([[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    p = np.array([[0.3, 0.1, 0.6]])
    found = judge_labels(p, np.array([1]), Calibration(1.0, 0.1, transition))
    assert found.suggested.tolist() == [1]
    assert found.wrong[0] == pytest.approx(0.3 * 0.2 / (0.3 * 0.2 + 0.1))


def test_without_noise_the_others_suggest():
    found = judge_labels(np.array([[0.3, 0.7]]), np.array([0]), Calibration())
    assert (found.wrong.tolist(), found.suggested.tolist()) == ([0.0], [1])
    assert found.label_error_score.tolist() == pytest.approx([0.7])


def test_small_probabilities_keep_their_digits():
    found = judge_labels(np.array([[1 - 1e-14, 1e-14]]), np.array([0]), Calibration(1.0, 0.1))
    assert found.wrong[0] == pytest.approx(1e-14 / 9, rel=1e-6)
