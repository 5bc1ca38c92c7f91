"""Calibration errors beyond the plain one, against plain loops and quadrature."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.errors import InvalidSettingError
from attnknn.metrics import brier, brier_parts, ece, ece_by_class, mce, smooth_ece

from .answers import HARD, calibrated_answers, random_answers

ANSWERS = [random_answers(seed) for seed in range(3)] + list(HARD.values())


@pytest.mark.parametrize("n_bins", [1, 10, 15])
@pytest.mark.parametrize(("y", "p"), ANSWERS)
def test_ece_and_mce_are_the_mean_and_the_largest_gap_of_a_plain_loop(y, p, n_bins):
    edges = np.linspace(0, 1, n_bins + 1)
    confidence, is_right = p.max(axis=1), p.argmax(axis=1) == y
    gaps, shares = [], []
    for b in range(n_bins):
        is_last = b == n_bins - 1
        inside = (confidence >= edges[b]) & ((confidence < edges[b + 1]) | is_last)
        if inside.any():
            gaps.append(abs(is_right[inside].mean() - confidence[inside].mean()))
            shares.append(inside.mean())
    assert ece(y, p, n_bins=n_bins) == pytest.approx(np.dot(gaps, shares), abs=1e-12)
    assert mce(y, p, n_bins=n_bins) == pytest.approx(max(gaps), abs=1e-12)


def test_one_bin_has_one_gap():
    y, p = random_answers(0)
    assert mce(y, p, n_bins=1) == pytest.approx(ece(y, p, n_bins=1), abs=1e-12)


@pytest.mark.parametrize(("y", "p"), ANSWERS)
def test_ece_by_class_equals_a_plain_loop(y, p):
    n_bins = 7
    expected = []
    for column in range(p.shape[1]):
        total = 0.0
        for b in range(n_bins):
            low, high = b / n_bins, (b + 1) / n_bins
            inside = [
                row
                for row in range(len(y))
                if low <= p[row, column] < high or (b == n_bins - 1 and p[row, column] == 1)
            ]
            if inside:
                share = np.mean([y[row] == column for row in inside])
                total += len(inside) / len(y) * abs(share - p[inside, column].mean())
        expected.append(total)
    assert ece_by_class(y, p, n_bins=n_bins) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_bins", [1, 4, 15])
@pytest.mark.parametrize(("y", "p"), ANSWERS)
def test_the_parts_of_the_brier_score_sum_to_it(y, p, n_bins):
    parts = brier_parts(y, p, n_bins=n_bins)
    assert parts.brier == pytest.approx(brier(y, p), abs=1e-9)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0
    assert parts.resolution <= parts.uncertainty + 1e-12


def test_parts_are_those_of_the_definition_where_are_few():
    y = np.array([0, 0, 1, 1, 1, 0])
    p = np.array([[0.8, 0.2]] * 3 + [[0.3, 0.7]] * 3)
    parts = brier_parts(y, p)
    assert parts.within == pytest.approx(0, abs=1e-12)
    assert parts.reliability == pytest.approx(2 * ((0.8 - 2 / 3) ** 2 + (0.3 - 1 / 3) ** 2) / 2)
    assert parts.resolution == pytest.approx(2 * (1 / 6) ** 2)
    assert parts.uncertainty == pytest.approx(0.5)


def quadrature(y, p, width, n_points=2001):
    """The integral of the smoothed gap, with the kernel reflected at 0 and 1 written out."""
    confidence, is_right = p.max(axis=1), p.argmax(axis=1) == y
    points = np.linspace(0, 1, n_points)
    gap = np.zeros(n_points)
    for image in range(-3, 4):  # even ones are shifted, odd ones are mirrored
        places = 2 * image + confidence, 2 * image - confidence
        for place in places:
            bell = np.exp(-((points[:, None] - place) ** 2) / (2 * width**2))
            gap += (bell * (is_right - confidence)).sum(axis=1)
    gap /= np.sqrt(2 * np.pi) * width * len(y)
    return np.trapezoid(np.abs(gap), points)


@pytest.mark.parametrize("seed", range(3))
def test_smooth_ece_is_the_width_at_which_the_smoothed_gap_is_as_large(seed):
    y, p = random_answers(seed, n=150)
    found = smooth_ece(y, p)
    assert quadrature(y, p, found) == pytest.approx(found, rel=2e-3)


@pytest.mark.parametrize(("y", "p"), HARD.values())
def test_smooth_ece_of_hard_answers(y, p):
    found = smooth_ece(y, p)
    assert 0 <= found <= 1
    if found > 0.002:
        assert quadrature(np.array(y), p, found) == pytest.approx(found, rel=5e-3, abs=1e-3)


def test_smooth_ece_is_near_the_true_gap_and_small_without_one(rng):
    y, p = calibrated_answers(rng, 20_000)
    assert smooth_ece(y, p) < 0.015
    y, p = calibrated_answers(rng, 20_000, too_high=0.1)
    assert smooth_ece(y, p) == pytest.approx(0.1, abs=0.02)


def test_smooth_ece_moves_little_with_the_probabilities():
    """Bins jump when a confidence crosses an edge; this does not."""
    y = np.array([0, 1] * 20)
    below, above = (np.tile([c, 1 - c], (40, 1)) for c in (0.6 - 1e-9, 0.6 + 1e-9))
    assert smooth_ece(y, below) == pytest.approx(smooth_ece(y, above), abs=1e-6)


@pytest.mark.parametrize("metric", [mce, ece_by_class, brier_parts])
def test_bins_must_be_at_least_one(metric):
    with pytest.raises(InvalidSettingError, match="`n_bins`"):
        metric([0], [[1.0, 0.0]], n_bins=0)
