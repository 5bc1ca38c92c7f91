"""The capital: equal to jumpers that start one after the other, never wins against chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnknn.insight.drift.martingale import JUMP, Martingale, payoffs, reserve


def jumper(p_values):
    """The capital after each row of a jumper that starts with one, by the definition."""
    stakes = np.full(5, 0.2)
    found = []
    for payoff in payoffs(p_values):
        stakes = stakes * payoff
        found.append(stakes.sum())
        stakes = (1 - JUMP) * stakes + JUMP * stakes.mean()
    return np.array(found)


def in_turn(p_values, jumper_of):
    """Half of the capital starts at the first row, the reserve bit by bit after the others."""
    n = len(p_values)
    martingale = np.array([reserve(row + 1) for row in range(n)])
    for start in range(n):
        staked = 1 - reserve(0) if start == 0 else reserve(start - 1) - reserve(start)
        martingale[start:] += staked * jumper_of(p_values[start:])
    last_staked = np.array([reserve(row) - reserve(row + 1) for row in range(n)])
    return np.log(martingale + last_staked)  # staked after the row, and not yet played


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
def test_the_stakes_say_which_side_won(small, share, rng):
    p_values = rng.random(60) * 0.2 if small else 1 - rng.random(60) * 0.2
    _, on_small = Martingale().bet(p_values)
    assert (on_small[-1] > share) == small


def test_no_stream_is_too_long_or_too_novel():
    martingale = Martingale()
    martingale.bet(np.full(3000, 1e-12))
    assert 1000 < martingale.log < math.inf
    martingale.bet(np.full(6000, 0.6))
    assert math.isfinite(martingale.log)


def test_the_reserve_keeps_late_changes_cheap(rng):
    """A jumper alone loses to chance what the reserve keeps."""
    martingale, quiet = Martingale(), rng.random(20_000)
    martingale.bet(quiet)
    alone, late = np.log(jumper(quiet)[-1]), martingale.log
    assert alone < -10
    assert late > math.log(reserve(20_000)) - 1e-9
