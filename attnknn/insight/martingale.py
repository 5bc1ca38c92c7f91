"""Online p-values of a stream of scores, and the test martingale that bets against them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from attnknn.records import Floats

SLOPES = (-1.0, -0.5, 0.5, 1.0)  # a bet 1 + slope (p − ½) wins on small or on large p-values
POWER = 0.5  # a bet ½ p^−½ wins on a few tiny ones
ON_SMALL: Floats = np.array([*(float(slope < 0) for slope in SLOPES), 1.0])  # bets on small ones
JUMP = 0.01  # share of the stakes that is spread over all bets again after each row
ROWS_AT_ONCE = 512


def online_p_values(scores: Floats, known: Floats, uniform: Floats) -> Floats:
    """P-values (n,), small for a score that is high among all before it.

    Each score is ranked among the `known` ones, the scores before it and itself; ties are broken at
    random. If all of them are exchangeable, the p-values are exactly uniform and independent.
    P-values by the known scores alone would not be independent: all would share the sampling error
    of the known scores, and a bet on it would win in the long run.

    `scores` (n,): in the order of the stream; `known` (m,): scores before the stream, sorted;
    `uniform` (n,): random numbers from 0 to 1.

    >>> known, drawn = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5])
    >>> online_p_values(np.array([4.0, 2.0, 2.0]), known, drawn).round(3).tolist()
    [0.125, 0.6, 0.583]
    """
    p_values = np.empty(len(scores))
    for start in range(0, len(scores), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        p_values[part] = _p_values_of_block(scores[part], known, uniform[part])
        known = merge_sorted(known, scores[part])
    return p_values


def merge_sorted(known: Floats, scores: Floats) -> Floats:
    """Sorted scores with more of them, sorted."""
    return np.sort(np.concatenate([known, scores]), kind="stable")  # quick on nearly sorted input


def _p_values_of_block(scores: Floats, known: Floats, uniform: Floats) -> Floats:
    below = np.searchsorted(known, scores, side="left")
    not_above = np.searchsorted(known, scores, side="right")
    is_earlier = np.tri(len(scores), k=-1, dtype=bool)
    above = len(known) - not_above + ((scores > scores[:, None]) & is_earlier).sum(axis=1)
    equal = not_above - below + ((scores == scores[:, None]) & is_earlier).sum(axis=1)
    n_before = len(known) + np.arange(len(scores))
    return (above + uniform * (1 + equal)) / (1 + n_before)


def payoffs(p_values: Floats) -> Floats:
    """Payoff (n, 5) of each bet for a stake of one; one on average, if p-values are uniform.

    >>> payoffs(np.array([0.25, 1.0])).tolist()
    [[1.25, 1.125, 0.875, 0.75, 1.0], [0.5, 0.75, 1.25, 1.5, 0.5]]
    """
    linear = 1.0 + np.multiply.outer(p_values - 0.5, SLOPES)
    return np.column_stack([linear, POWER * p_values ** (POWER - 1.0)])


def reserve(n_rows: int) -> float:
    """The share of the initial wealth that is not staked after `n_rows`.

    Stakes that are in play for long are lost to chance. So half of the wealth is kept back and
    staked bit by bit, ever more slowly: to detect a change after n rows, the log-martingale must
    grow by about log n + 2 log log n more than at the start, not by an amount proportional to n.
    """
    return 1.0 / math.log2(4 + n_rows)


class Martingale:
    """A test martingale: the wealth of a gambler who starts with one and bets on p-values.

    If the p-values are independent and uniform, no bet gains on average, and the probability that
    the martingale *ever* reaches c is at most 1 / c (Ville's inequality). After each row a share of
    the stakes moves from the winning bets to all bets equally, since drift may start and end.

    >>> martingale = Martingale()
    >>> log_martingale, _ = martingale.bet(np.full(20, 0.01))
    >>> bool(log_martingale[-1] > math.log(200))
    True
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.log_staked = math.log(1.0 - reserve(0))
        self.shares: Floats = np.full(len(ON_SMALL), 1.0 / len(ON_SMALL))

    def bet(self, p_values: Floats) -> tuple[Floats, Floats]:
        """The log-martingale (n,) after each row, and the share (n,) of stakes on small ones."""
        log_martingale, on_small = np.empty(len(p_values)), np.empty(len(p_values))
        for row, payoff in enumerate(payoffs(p_values)):
            won = self.shares * payoff
            total = float(won.sum())
            on_small[row] = float(won @ ON_SMALL) / total
            self._stake(won / total, self.log_staked + math.log(total))
            log_martingale[row] = self.log
        return log_martingale, on_small

    @property
    def log(self) -> float:
        """The logarithm of the martingale, stakes and reserve."""
        return float(np.logaddexp(self.log_staked, math.log(reserve(self.n_rows))))

    def _stake(self, shares: Floats, log_won: float) -> None:
        """Stake what was won, a part of it on all bets equally, and more of the reserve."""
        more = reserve(self.n_rows) - reserve(self.n_rows + 1)
        self.n_rows += 1
        self.log_staked = float(np.logaddexp(log_won, math.log(more)))
        kept = math.exp(log_won - self.log_staked) * (1.0 - JUMP)
        self.shares = kept * shares + (1.0 - kept) / len(shares)


@dataclass(frozen=True, eq=False)
class ScoreTrack:
    """P-values and martingale of the rows, or of the labels, in one call of `DriftMonitor.watch`.

    Attributes
    ----------
    p_values : ndarray of shape (n_rows,)
        Small for scores that are high among all before; NaN for a row without a label.
    log_martingale : ndarray of shape (n_rows,)
        Natural logarithm of the martingale after each row.
    alarm : int or None, default=None
        First row of the call at which the martingale reached its bound; None if it did not, or had
        reached it before.
    is_novel : bool, default=True
        Whether that alarm is about high scores (novel rows, unlikely labels) or low ones.

    Examples
    --------
    >>> ScoreTrack(np.array([0.5]), np.array([0.0])).alarm is None
    True
    """

    p_values: Floats
    log_martingale: Floats
    alarm: int | None = None
    is_novel: bool = True


class ScoreStream:
    """A stream of scores, compared with all scores before them.

    `calibration` (m,): scores before the stream; `bound`: martingale that raises the alarm; `seed`:
    of the random numbers that break ties.

    >>> stream = ScoreStream(np.arange(100.0), bound=100.0, seed=0)
    >>> stream.watch(np.full(30, 200.0)).alarm is None
    False
    """

    def __init__(self, calibration: Floats, bound: float, seed: int) -> None:
        self.calibration = np.sort(calibration)
        self.bound, self.seed, self.n_drawn = bound, seed, 0
        self.restart()

    def restart(self) -> None:
        """Discard the stream and its alarm."""
        self.known = self.calibration
        self.martingale = Martingale()
        self.has_alarmed = False

    def watch(self, scores: Floats) -> ScoreTrack:
        """Compute p-values and bets for each score in turn."""
        p_values = online_p_values(scores, self.known, self._draw(len(scores)))
        self.known = merge_sorted(self.known, scores)
        log_martingale, on_small = self.martingale.bet(p_values)
        reached = np.flatnonzero(log_martingale >= math.log(self.bound))
        if self.has_alarmed or not len(reached):
            return ScoreTrack(p_values, log_martingale)
        self.has_alarmed = True
        first = int(reached[0])
        return ScoreTrack(p_values, log_martingale, first, bool(on_small[first] >= 0.5))

    def watch_some(self, scores: Floats) -> ScoreTrack:
        """The same where a score may be missing (NaN), which leaves the martingale unchanged."""
        places = np.flatnonzero(~np.isnan(scores))
        before, found = self.martingale.log, self.watch(scores[places])
        p_values = np.full(len(scores), np.nan)
        p_values[places] = found.p_values
        n_so_far = np.cumsum(~np.isnan(scores))
        log_martingale = np.concatenate([[before], found.log_martingale])[n_so_far]
        alarm = None if found.alarm is None else int(places[found.alarm])
        return ScoreTrack(p_values, log_martingale, alarm, found.is_novel)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        return {
            "calibration": self.calibration.tolist(),
            "known": self.known.tolist(),
            "n_drawn": self.n_drawn,
            "n_bets": self.martingale.n_rows,
            "log_staked": self.martingale.log_staked,
            "shares": self.martingale.shares.tolist(),
            "has_alarmed": self.has_alarmed,
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any], bound: float, seed: int) -> Self:
        """The stream that `to_dict` described."""
        stream = cls(np.array(state["calibration"]), bound, seed)
        stream.known = np.array(state["known"])
        stream.n_drawn, stream.has_alarmed = state["n_drawn"], state["has_alarmed"]
        stream.martingale.n_rows = state["n_bets"]
        stream.martingale.log_staked = state["log_staked"]
        stream.martingale.shares = np.array(state["shares"])
        return stream

    def _draw(self, n: int) -> Floats:
        """Random numbers above 0 and up to 1; the same ones in one call or in several."""
        bits = np.random.PCG64(self.seed)
        drawn = np.random.Generator(bits.advance(self.n_drawn)).random(n)
        self.n_drawn += n
        return 1.0 - drawn
