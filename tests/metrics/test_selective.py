"""Answers held back, and sets of classes, against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from attnknn.errors import InvalidInputError
from attnknn.metrics import aurc, risk_coverage, set_coverage, set_size

from .answers import HARD, random_answers


def loop_aurc(is_wrong):
    return np.mean([np.mean(is_wrong[: k + 1]) for k in range(len(is_wrong))])


@pytest.mark.parametrize("seed", range(3))
def test_aurc_equals_a_plain_loop(seed):
    y, p = random_answers(seed)
    order = np.argsort(-p.max(axis=1))
    is_wrong = (p.argmax(axis=1) != y)[order]
    assert aurc(y, p) == pytest.approx(loop_aurc(is_wrong), abs=1e-12)


def test_rows_of_equal_confidence_count_as_in_all_orders_at_once():
    y, p = np.array([0, 0, 1, 1]), np.array([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.7, 0.3]])
    is_wrong = (p.argmax(axis=1) != y).astype(float)
    orders = [
        loop_aurc(np.r_[is_wrong[0], [is_wrong[row] for row in rest]])
        for rest in itertools.permutations([1, 2, 3])
    ]
    assert aurc(y, p) == pytest.approx(np.mean(orders), abs=1e-12)
    assert aurc(y[::-1], p[::-1]) == pytest.approx(aurc(y, p), abs=1e-12)


@pytest.mark.parametrize(("y", "p"), HARD.values())
def test_the_curve_ends_at_all_rows_and_their_errors(y, p):
    found = risk_coverage(y, p)
    assert found.coverage[-1] == 1
    assert found.risk[-1] == pytest.approx(np.mean(p.argmax(axis=1) != y))
    assert (np.diff(found.threshold) < 0).all()
    assert (np.diff(found.coverage) > 0).all()
    assert 0 <= aurc(y, p) <= 1


def test_the_curve_equals_a_plain_loop():
    y, p = random_answers(0)
    found = risk_coverage(y, p)
    confidence, is_wrong = p.max(axis=1), p.argmax(axis=1) != y
    for threshold, coverage, risk in zip(
        found.threshold[::40], found.coverage[::40], found.risk[::40], strict=True
    ):
        answered = confidence >= threshold
        assert coverage == pytest.approx(answered.mean())
        assert risk == pytest.approx(is_wrong[answered].mean())


def test_a_better_order_has_a_smaller_area():
    y = np.array([0, 0, 0, 1])
    good = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    assert aurc(y, good) < aurc(y, good[::-1])


def test_sets_are_counted():
    sets = np.array([[True, True, False], [False, True, False], [False, False, False]])
    assert set_coverage([0, 1, 2], sets) == pytest.approx(2 / 3)
    assert set_coverage(["b", "a", "c"], sets, classes=["b", "a", "c"]) == pytest.approx(2 / 3)
    assert set_size(sets) == pytest.approx(1.0)


@pytest.mark.parametrize("sets", [[[0.5, 0.5]], [True, False], np.zeros((0, 2), dtype=bool)])
def test_what_is_no_table_of_sets_is_named(sets):
    with pytest.raises(InvalidInputError, match="`sets` must be booleans"):
        set_size(sets)
