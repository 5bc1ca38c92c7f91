"""One kind of score: false alarms within the bound, changes noticed, early and late."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.insight.drift.score_stream import ScoreStream


def test_false_alarms_stay_within_the_bound():
    """Of 400 streams without drift; the bound is for ever, so few rows only make it easier."""
    alarms = 0
    for seed in range(400):
        scores = np.random.default_rng(seed).normal(size=250)
        alarms += ScoreStream(scores[:50], 10.0, seed).watch(scores[50:]).alarm is not None
    assert alarms <= 0.1 * 400 + 2 * np.sqrt(400 * 0.1 * 0.9)
    assert alarms > 0  # or the bets would be too timid to notice anything


@pytest.mark.parametrize("n_before", [0, 3000])
@pytest.mark.parametrize(
    ("change", "most"), [(1.0, 120), (-1.0, 220)], ids=["novel", "more familiar"]
)
def test_a_shift_is_noticed_early_and_late(n_before, change, most, rng):
    stream = ScoreStream(rng.normal(size=500), 200.0, 0)
    assert stream.watch(rng.normal(size=n_before)).alarm is None
    found = stream.watch(rng.normal(size=400) + change)
    assert found.alarm is not None
    assert found.alarm < most
    assert found.is_novel == (change > 0)


def test_a_few_rows_from_elsewhere_are_noticed(rng):
    stream = ScoreStream(rng.normal(size=500), 200.0, 0)
    scores = rng.normal(size=400) + 8 * (rng.random(400) < 0.1)
    assert stream.watch(scores).alarm < 200


def test_an_alarm_is_raised_once_until_a_restart(rng):
    stream = ScoreStream(rng.normal(size=100), 100.0, 0)
    novel = np.full(40, 9.0)
    assert stream.watch(novel).alarm is not None
    assert stream.watch(novel).alarm is None
    stream.restart()
    assert stream.martingale.log == pytest.approx(0.0, abs=1e-12)
    assert stream.watch(novel).alarm is not None


def test_scores_that_are_missing_change_nothing(rng):
    scores = rng.normal(size=40)
    with_gaps = np.full(100, np.nan)
    with_gaps[::5] = scores[:20]
    some, all_of_them = ScoreStream(scores[20:], 9.0, 0), ScoreStream(scores[20:], 9.0, 0)
    found, expected = some.watch_some(with_gaps), all_of_them.watch(scores[:20])
    assert found.p_values[::5].tolist() == expected.p_values.tolist()
    assert np.isnan(np.delete(found.p_values, np.s_[::5])).all()
    assert found.log_martingale[4::5].tolist() == expected.log_martingale.tolist()
    assert some.to_dict() == all_of_them.to_dict()
