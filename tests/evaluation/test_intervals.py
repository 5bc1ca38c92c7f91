"""Intervals: right on average, paired, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.evaluation.intervals import (
    bootstrap_eces,
    bootstrap_means,
    mean_interval,
    paired_interval,
)


def test_the_interval_of_a_mean_has_the_width_of_theory():
    losses = np.random.default_rng(0).normal(0, 1, (1, 2000))
    found = mean_interval(losses)
    assert found.mean == losses.mean()
    assert found.upper - found.lower == pytest.approx(2 * 1.96 / np.sqrt(2000), rel=0.08)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
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
    monkeypatch.setattr("attnknn.evaluation.intervals.CHUNK", 40 * 7)
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


def test_resampled_calibration_errors_are_those_of_the_drawn_rows(rng):
    sure = {name: rng.uniform(0.3, 1.0, (2, 40)) for name in "ab"}
    right = {name: rng.random((2, 40)) < sure[name] for name in "ab"}
    found = bootstrap_eces(sure, right, n_resamples=4, random_state=5)
    again = np.random.default_rng(5)
    rows, seeds = again.integers(40, size=(4, 40)), again.integers(2, size=(4, 2))
    for name in "ab":
        for place, (drawn, of_seeds) in enumerate(zip(rows, seeds, strict=True)):
            errors = [_ece(sure[name][seed, drawn], right[name][seed, drawn]) for seed in of_seeds]
            assert found[name][place] == pytest.approx(np.mean(errors))


def _ece(sure, right):
    """Bins one by one, as the definition reads."""
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (sure >= low) & ((sure < low + 1 / 15) | (low == 14 / 15))
        if inside.any():
            total += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    return total


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
