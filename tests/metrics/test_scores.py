"""Metrics against plain loops and their own definitions; test_oracles.py has those of others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnknn import metrics
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import debiased_ece, ece, nll, reliability_bins, score_all

from .answers import any_answers, calibrated_answers, random_answers

ALL = ["accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece", "debiased_ece"]


def plain_ece(y, p, n_bins):
    total = 0.0
    for b in range(n_bins):
        rows = [
            i
            for i in range(len(y))
            if np.floor(min(p[i].max() * n_bins, n_bins - 1)) == b  # 1.0 belongs to the last bin
        ]
        if rows:
            right = np.mean([p[i].argmax() == y[i] for i in rows])
            total += len(rows) / len(y) * abs(right - np.mean([p[i].max() for i in rows]))
    return total


def test_ece_equals_a_plain_loop_also_for_certain_rows():
    y, p = random_answers(5, sharpness=4.0)
    p[:50] = np.eye(5)[y[:50]]
    p[50:60] = np.eye(5)[(y[50:60] + 1) % 5]
    assert ece(y, p, n_bins=8) == pytest.approx(plain_ece(y, p, 8), abs=1e-12)


def test_ece_by_mass_equals_a_split_of_the_sorted_rows():
    y, p = random_answers(6)
    order = np.argsort(p.max(axis=1))
    parts = [order[400 * b // 15 : 400 * (b + 1) // 15] for b in range(15)]
    gaps = [abs((p[i].argmax(1) == y[i]).mean() - p[i].max(1).mean()) * len(i) for i in parts]
    assert ece(y, p, bins="mass") == pytest.approx(sum(gaps) / 400, abs=1e-12)


def test_ece_bins_keep_confidences_of_1_0000001_from_float32():
    """DESIGN.md section 7: such rows fell out of all bins, and the error was that of the rest."""
    above_one = np.float32(1.0000001)
    assert above_one > 1
    p = np.zeros((100, 3), dtype=np.float32)
    p[:85, 0], p[85:, 0], p[85:, 1] = above_one, 0.6, 0.4
    y = np.zeros(100, dtype=int)
    y[:40] = 1
    for bins in ("width", "mass"):
        found = reliability_bins(y, p, bins=bins)
        assert found.counts.sum() == 100
        assert ece(y, p, bins=bins) == pytest.approx(0.85 * 40 / 85 + 0.15 * 0.4, abs=1e-6)


def test_a_probability_of_zero_costs_much_but_not_everything():
    value = nll([0, 1], [[0.0, 1.0], [0.0, 1.0]])
    assert value == pytest.approx(-np.log(np.finfo(float).eps) / 2)
    assert np.isfinite(value)


def test_debiased_ece_is_near_zero_for_perfect_probabilities_where_ece_is_not():
    rng = np.random.default_rng(0)
    samples = [calibrated_answers(rng, 1000) for _ in range(100)]
    plain = np.mean([ece(y, p, bins="mass") for y, p in samples])
    debiased = np.mean([debiased_ece(y, p) for y, p in samples])
    assert plain > 0.03
    assert debiased < plain / 5


@pytest.mark.parametrize(("n", "tolerance"), [(10_000, 0.005), (100_000, 0.001)])
def test_debiased_ece_tends_to_the_true_error(n, tolerance):
    rng = np.random.default_rng(1)
    samples = [calibrated_answers(rng, n, too_high=0.03) for _ in range(10)]
    assert np.mean([debiased_ece(y, p) for y, p in samples]) == pytest.approx(0.03, abs=tolerance)


@given(any_answers())
@settings(max_examples=50, deadline=None)
def test_scores_lie_in_their_ranges_and_bins_hold_every_row(pair):
    y, p = pair
    scores = score_all(y, p)
    assert 0 <= scores.nll <= 709
    assert 0 <= scores.brier <= 2 + 1e-9
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "ece", "debiased_ece"):
        assert 0 <= getattr(scores, name) <= 1 + 1e-9
    assert scores.debiased_ece <= ece(y, p, bins="mass") + 1e-9
    for bins in ("width", "mass"):
        assert reliability_bins(y, p, bins=bins).counts.sum() == len(y)


@given(any_answers(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_the_rows_does_not_matter(pair, random):
    y, p = pair
    order = list(range(len(y)))
    random.shuffle(order)
    expected = score_all(y, p).to_dict()
    assert score_all(y[order], p[order]).to_dict() == pytest.approx(expected, abs=1e-9)


@given(any_answers())
@settings(max_examples=30, deadline=None)
def test_certain_and_right_is_perfect(pair):
    y, p = pair
    scores = score_all(y, np.eye(p.shape[1])[y]).to_dict()
    assert scores == {name: float(metrics.HIGHER_IS_BETTER[name]) for name in ALL}


def test_labels_of_any_kind_are_found_by_classes():
    y, p = random_answers(2)
    names = ["d", "a", "c", "e", "b"]
    labels = np.array(names)[y]
    assert score_all(labels, p, classes=names) == score_all(y, p)


def test_reliability_bins_agree_with_their_definition():
    y, p = random_answers(3)
    found = reliability_bins(y, p, n_bins=10).nonempty()
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    for b in range(len(found)):
        inside = (confidence >= found.lower[b]) & (confidence < found.upper[b])
        assert found.counts[b] == inside.sum()
        assert found.accuracy[b] == pytest.approx(right[inside].mean())
        spread = np.sqrt((confidence * (1 - confidence))[inside].sum()) / inside.sum()
        assert found.noise[b] == pytest.approx(spread)


def test_equal_confidences_stay_in_one_bin_of_equal_mass():
    p = np.tile([0.7, 0.3], (100, 1))
    found = reliability_bins(np.zeros(100, dtype=int), p, bins="mass")
    assert found.counts.tolist() == [100]


@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0], [0.5, 0.5], r"must have shape \(rows, classes\)"),
        ([], np.empty((0, 2)), "at least one of each"),
        ([0], [[np.nan, 1.0]], "between 0 and 1, got nan in row 0"),
        ([0], [[-0.1, 1.1]], "between 0 and 1, got -0.1"),
        ([0], [[0.5, 0.6]], "row 0 sums to 1.1"),
        ([0, 1], [[0.5, 0.5]], "one label per row"),
        ([2], [[0.5, 0.5]], "codes from 0 to 1, got 2"),
        ([-1], [[0.5, 0.5]], "codes from 0 to 1, got -1"),
        (["yes"], [[0.5, 0.5]], "give `classes`"),
    ],
)
def test_unusable_input_is_refused(y, p, message):
    with pytest.raises(InvalidInputError, match=message):
        score_all(y, p)


def test_unknown_labels_names_and_bins_are_refused():
    with pytest.raises(InvalidInputError, match="labels of `classes`, got 'c'"):
        nll(["c"], [[0.5, 0.5]], classes=["a", "b"])
    with pytest.raises(InvalidInputError, match="each of the 2 columns"):
        nll(["a"], [[0.5, 0.5]], classes=["a"])
    with pytest.raises(InvalidSettingError, match="No kind of bins is called 'masss'"):
        ece([0], [[0.5, 0.5]], bins="masss")
    with pytest.raises(InvalidSettingError, match="`n_bins`"):
        ece([0], [[0.5, 0.5]], n_bins=0)
