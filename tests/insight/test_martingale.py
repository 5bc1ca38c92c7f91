"""Online p-values, the test martingale and streams of scores, each against a plain computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest, spearmanr

from attnknn.insight import martingale
from attnknn.insight.martingale import (
    JUMP,
    Martingale,
    ScoreStream,
    online_p_values,
    payoffs,
    reserve,
)


def by_a_loop(scores, known, uniform):
    before, found = list(known), []
    for score, drawn in zip(scores, uniform, strict=True):
        above = sum(one > score for one in before)
        equal = sum(one == score for one in before)
        found.append((above + drawn * (1 + equal)) / (1 + len(before)))
        before.append(score)
    return found


@pytest.mark.parametrize("n_at_once", [1, 7, 1000])
@pytest.mark.parametrize("n_known", [0, 50])
def test_blocks_give_what_a_plain_loop_gives(n_at_once, n_known, rng, monkeypatch):
    monkeypatch.setattr(martingale, "ROWS_AT_ONCE", n_at_once)
    scores = rng.integers(0, 12, 90).astype(float)  # many are equal
    known, uniform = np.sort(rng.integers(0, 12, n_known).astype(float)), rng.random(90)
    found = online_p_values(scores, known, uniform)
    assert found == pytest.approx(by_a_loop(scores, known, uniform), abs=1e-15)


def test_they_are_those_of_crepes(rng):
    martingales = pytest.importorskip("crepes.martingales")
    scores = rng.normal(size=300).round(1)
    theirs = martingales.semi_online_p_values(scores, seed=5)
    drawn = np.random.RandomState(5).rand(300)
    assert online_p_values(scores, np.zeros(0), drawn) == pytest.approx(theirs, abs=1e-15)
    known = np.sort(scores[:100])
    rest = online_p_values(scores[100:], known, drawn[100:])
    assert rest == pytest.approx(theirs[100:], abs=1e-15)


def test_they_are_uniform_and_independent_for_exchangeable_scores(rng):
    streams = rng.integers(0, 30, (400, 60)).astype(float)
    found = np.array(
        [online_p_values(one[20:], np.sort(one[:20]), rng.random(40)) for one in streams]
    )
    assert kstest(found.ravel(), "uniform").pvalue > 0.01
    assert kstest(found[:, -1], "uniform").pvalue > 0.01
    assert spearmanr(found[:, 0], found[:, 1]).pvalue > 0.01


def test_ranks_among_the_known_ones_alone_would_share_their_chance(rng):
    """What ranking among the stream too is for: few known scores bend all p-values alike."""
    gaps = []
    for _ in range(40):
        known, scores = np.sort(rng.normal(size=20)), rng.normal(size=1000)
        alone = [online_p_values(scores[[i]], known, rng.random(1))[0] for i in range(0, 1000, 10)]
        together = online_p_values(scores, known, rng.random(1000))
        gaps.append([abs(np.mean(alone) - 0.5), abs(np.mean(together) - 0.5)])
    alone, together = np.mean(gaps, axis=0)
    assert alone > 3 * together


def jumper(p_values):
    """The martingale of a jumper after each row, by its definition."""
    stakes = np.full(5, 0.2)
    found = []
    for payoff in payoffs(p_values):
        stakes = stakes * payoff
        found.append(stakes.sum())
        stakes = (1 - JUMP) * stakes + JUMP * stakes.mean()
    return np.array(found)


def in_turn(p_values, jumper_of):
    """Half of the wealth is staked at the first row, the reserve bit by bit afterwards."""
    n = len(p_values)
    wealth = np.array([reserve(row + 1) for row in range(n)])
    for start in range(n):
        staked = 1 - reserve(0) if start == 0 else reserve(start - 1) - reserve(start)
        wealth[start:] += staked * jumper_of(p_values[start:])
    last_staked = np.array([reserve(row) - reserve(row + 1) for row in range(n)])
    return np.log(wealth + last_staked)  # staked after the row, and not yet played


def test_it_is_that_of_jumpers_which_start_one_after_the_other(rng):
    p_values = rng.beta(0.5, 1.0, 80)
    found, _ = Martingale().bet(p_values)
    assert found == pytest.approx(in_turn(p_values, jumper), abs=1e-10)


def test_the_jumpers_are_those_of_crepes(rng):
    martingales = pytest.importorskip("crepes.martingales")

    class Bets(martingales.BettingFunction):
        def apply(self, p_values):
            return payoffs(p_values)

    p_values = rng.beta(0.7, 1.2, 80)
    theirs = martingales.SimpleJumper(J=JUMP, bf=Bets())
    found, _ = Martingale().bet(p_values)
    assert found == pytest.approx(in_turn(p_values, theirs.apply), abs=1e-10)


def test_no_bet_wins_on_average():
    middles = (np.arange(100_000) + 0.5) / 100_000
    assert payoffs(middles).mean(axis=0) == pytest.approx(np.ones(5), abs=2e-3)
    assert (payoffs(np.array([1e-300, 1.0])) > 0).all()


def test_bets_one_by_one_are_bets_at_once(rng):
    p_values = rng.random(50)
    together, one_by_one = Martingale(), Martingale()
    at_once, _ = together.bet(p_values)
    found = [one_by_one.bet(p_values[[row]])[0][0] for row in range(50)]
    assert found == at_once.tolist()
    assert one_by_one.log == together.log == at_once[-1]


@pytest.mark.parametrize(("small", "share"), [(True, 0.9), (False, 0.1)])
def test_the_stakes_show_which_side_won(small, share, rng):
    p_values = rng.random(60) * 0.2 if small else 1 - rng.random(60) * 0.2
    _, on_small = Martingale().bet(p_values)
    assert (on_small[-1] > share) == small


def test_no_stream_is_too_long_or_too_novel():
    wealth = Martingale()
    wealth.bet(np.full(3000, 1e-12))
    assert 1000 < wealth.log < math.inf
    wealth.bet(np.full(6000, 0.6))
    assert math.isfinite(wealth.log)


def test_the_reserve_keeps_late_changes_cheap(rng):
    """A jumper alone loses to chance what the reserve keeps."""
    wealth, quiet = Martingale(), rng.random(20_000)
    wealth.bet(quiet)
    alone, late = np.log(jumper(quiet)[-1]), wealth.log
    assert alone < -10
    assert late > math.log(reserve(20_000)) - 1e-9


def test_false_alarms_stay_within_the_bound():
    """Of 400 streams without drift; the bound is for ever, so few rows only make it easier."""
    alarms = 0
    for seed in range(400):
        scores = np.random.default_rng(seed).normal(size=250)
        alarms += ScoreStream(scores[:50], 10.0, seed).watch(scores[50:]).alarm is not None
    assert alarms <= 0.1 * 400 + 2 * np.sqrt(400 * 0.1 * 0.9)
    assert alarms > 0  # or the bets would be too timid to notice anything


@pytest.mark.parametrize("n_before", [0, 3000])
@pytest.mark.parametrize(("change", "most"), [(1.0, 120), (-1.0, 220)], ids=["novel", "less novel"])
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
