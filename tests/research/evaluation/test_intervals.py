"""Intervals: right on average, paired, and the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit, logit

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.evaluation.intervals import (
    bootstrap_means,
    calibration_errors,
    mean_interval,
    paired_interval,
    seen_ratio,
    true_ratio,
)


def test_the_interval_of_a_mean_has_the_width_of_theory():
    losses = np.random.default_rng(0).normal(0, 1, (1, 2000))
    found = mean_interval(losses)
    assert found.mean == losses.mean()
    assert found.upper - found.lower == pytest.approx(2 * 1.96 / np.sqrt(2000), rel=0.08)


def test_intervals_have_their_nominal_coverage():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        rows, seeds = rng.normal(size=(1, 100)), 0.1 * rng.normal(size=(5, 1))
        found = mean_interval(rows + seeds + rng.normal(size=(5, 100)), n_resamples=300)
        hits += found.lower <= 0 <= found.upper
    assert 0.90 <= hits / 200 <= 0.99


def test_pairing_finds_a_difference_that_rows_alone_would_hide():
    rng = np.random.default_rng(2)
    hard = rng.normal(0, 1, (5, 500))
    better = hard - 0.02 + rng.normal(0, 0.05, hard.shape)
    apart = (mean_interval(better), mean_interval(hard))
    assert apart[0].upper > apart[1].lower
    assert paired_interval(better, hard).upper < 0


def test_a_difference_that_changes_with_the_seed_is_not_sure():
    luck = np.array([-0.2, 0.3, -0.1, 0.25, -0.2])[:, None] + np.zeros((5, 1000))
    assert not paired_interval(luck, np.zeros((5, 1000))).excludes_zero()


def test_methods_share_their_resamples():
    losses = np.random.default_rng(3).normal(size=(3, 50))
    means = bootstrap_means({"a": losses, "b": losses + 1}, n_resamples=50)
    assert np.allclose(means["b"] - means["a"], 1)


def test_blocks_of_resamples_are_one_sample(monkeypatch):
    losses = np.random.default_rng(3).normal(size=(2, 40))
    monkeypatch.setattr("attnknn.research.evaluation.intervals.CHUNK", 40 * 7)
    found = bootstrap_means({"a": losses}, n_resamples=2000)["a"]
    assert found.shape == (2000,)
    assert found.std() > 0.05


@given(hnp.arrays(np.float64, (2, 5), elements=st.floats(-100, 100)), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_the_same_seed_gives_the_same_interval_within_the_losses(losses, seed):
    found = mean_interval(losses, n_resamples=50, random_state=seed)
    assert found == mean_interval(losses, n_resamples=50, random_state=seed)
    assert losses.min() - 1e-9 <= found.lower <= found.upper <= losses.max() + 1e-9


def test_reversing_a_pair_reverses_the_sign():
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(2, 3, 100))
    there, back = paired_interval(first, second), paired_interval(second, first)
    assert there.lower == pytest.approx(-back.upper)


@dataclass(frozen=True)
class Answers:
    """Of a method, for S seeds and n rows, (S, n) each."""

    confidence: np.ndarray
    is_right: np.ndarray


def confidences(chance, shape, size):
    """Confidences whose gap to the chance of being right has a known shape and size."""
    moved = {
        "even": chance + size,
        "low": chance - size,
        "steep": expit((1 + size) * logit(chance)),
        "one bin": np.where(chance > 14 / 15, np.minimum(chance + size, 1.0), chance),
        "waves": chance + size * np.sign(np.sin(chance * 15 * np.pi + 0.3)),
    }[shape]
    return np.clip(moved, 0.02, 1.0)


def true_error(shape, size, n_seeds):
    rng = np.random.default_rng(9)
    chance = expit(rng.normal(2.0, np.hypot(1.5, 0.7 if n_seeds == 1 else 0.76), 1_000_000))
    confidence = confidences(chance, shape, size)
    bins = np.minimum((confidence * 15).astype(int), 14)
    return np.abs(np.bincount(bins, confidence - chance, 15)).sum() / len(chance)


def answers(rng, n_rows, n_seeds, kinds):
    """Methods that find the same rows hard, and are often right on the same ones."""
    hard, shared = rng.normal(2.0, 1.5, n_rows), rng.random(n_rows)
    found = []
    for shape, size in kinds:
        drift = rng.normal(0, 0.7, n_rows) + (n_seeds > 1) * rng.normal(0, 0.3, (n_seeds, n_rows))
        chance = expit(np.broadcast_to(hard + drift, (n_seeds, n_rows)))
        own = rng.random(chance.shape)
        luck = np.where(rng.random(chance.shape) < 0.7, shared, own)
        found.append(Answers(confidences(chance, shape, size), luck < chance))
    return found


def coverage(kinds, n_rows, n_seeds, n_trials):
    """How often the intervals hold the true error of the second and the true difference."""
    true = [true_error(*kind, n_seeds) for kind in kinds]
    rng = np.random.default_rng(0)
    hits = np.zeros(2)
    for calibration_batch in range(n_trials):
        both = dict(zip("ab", answers(rng, n_rows, n_seeds, kinds), strict=True))
        found = calibration_errors(
            {name: one.confidence for name, one in both.items()},
            {name: one.is_right for name, one in both.items()},
            n_draws=300,
            random_state=calibration_batch,
        )
        intervals = found["b"].interval(), found["a"].minus(found["b"])
        close = 2e-4  # what the million rows that stand for all leave open
        hits += [
            interval.lower - close <= truth <= interval.upper + close
            for interval, truth in zip(intervals, (true[1], true[0] - true[1]), strict=True)
        ]
    return hits / n_trials


HONEST = ("even", 0.0)
PAIRS = [
    (HONEST, HONEST),
    (HONEST, ("even", 0.01)),
    (HONEST, ("even", 0.03)),
    (("even", 0.03), ("even", 0.03)),
    (("even", 0.01), ("low", 0.01)),
    (("even", 0.03), ("steep", 0.3)),
    (HONEST, ("steep", 0.15)),
    (HONEST, ("waves", 0.02)),
    (HONEST, ("one bin", 0.05)),
    (("one bin", 0.05), ("even", 0.02)),
]


@pytest.mark.parametrize("pair", [PAIRS[0], PAIRS[2]])
def test_intervals_of_calibration_errors_have_their_nominal_coverage(pair):
    assert (coverage(pair, 2000, 1, 60) >= 0.90).all()


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_seeds"), [(200, 1), (2000, 1), (2000, 3), (10_000, 1)])
@pytest.mark.parametrize("pair", PAIRS)
def test_intervals_of_calibration_errors_are_honest_for_gaps_of_many_shapes(pair, n_rows, n_seeds):
    assert (coverage(pair, n_rows, n_seeds, 300) >= 0.88).all()


def test_reading_backwards_undoes_what_noise_shows():
    ratio = np.linspace(0, 20, 300)
    assert np.allclose(true_ratio(seen_ratio(ratio)), ratio, atol=1e-3)
    assert true_ratio(np.array([0.0, 0.5])).tolist() == [0, 0]


def test_the_noise_of_rows_is_the_noise_of_their_resamples(rng):
    confidence = rng.uniform(0.6, 1.0, (1, 500)) ** 2
    is_right = rng.random((1, 500)) < confidence - 0.2
    found = calibration_errors({"a": confidence}, {"a": is_right})["a"]
    gaps = (confidence - is_right)[0]  # all on one side: the error is their mean
    assert found.estimate == pytest.approx(gaps.mean(), rel=0.02)
    assert found.plausible.std() == pytest.approx(gaps.std() / np.sqrt(500), rel=0.15)


def test_a_method_is_as_well_calibrated_as_itself(rng):
    confidence = rng.uniform(0.3, 1.0, (3, 200))
    is_right = rng.random((3, 200)) < confidence
    found = calibration_errors({"a": confidence, "b": confidence}, {"a": is_right, "b": is_right})
    gap = found["a"].minus(found["b"])
    assert np.allclose([gap.mean, gap.lower, gap.upper], 0, atol=1e-6)


def test_rows_that_are_all_alike_leave_no_doubt():
    sure, right = {"a": [[0.9, 0.9]]}, {"a": [[True, True]]}
    assert f"{calibration_errors(sure, right)['a'].interval():.2f}" == "0.10 [0.10, 0.10]"


def test_intervals_are_written_for_people():
    assert f"{mean_interval(np.ones((2, 10))):.1f}" == "1.0 [1.0, 1.0]"


def test_unusable_input_is_refused():
    with pytest.raises(InvalidInputError, match="one shape"):
        bootstrap_means({"a": [[1.0, 2.0]], "b": [[1.0]]})
    with pytest.raises(InvalidInputError, match="one shape"):
        mean_interval([1.0, 2.0])
    with pytest.raises(InvalidSettingError, match="`level`"):
        mean_interval([[1.0]], level=95)
    with pytest.raises(InvalidSettingError, match="`n_resamples`"):
        mean_interval([[1.0]], n_resamples=0)
