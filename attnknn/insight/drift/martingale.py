"""Bets against uniform p-values, whose capital is a test martingale."""

from __future__ import annotations

import math

import numpy as np

from attnknn.records import Floats

SLOPES = (-1.0, -0.5, 0.5, 1.0)  # a bet 1 + slope (p − ½) wins on small or on large p-values
POWER = 0.5  # a bet ½ p^−½ wins on a few tiny ones
ON_SMALL: Floats = np.array([*(float(slope < 0) for slope in SLOPES), 1.0])  # which bets
JUMP = 0.01  # share of the stakes that is spread over all bets again after each row


def payoffs(p_values: Floats) -> Floats:
    """What each bet makes (n, 5) of a stake of one; on average one, if p-values are uniform.

    >>> payoffs(np.array([0.25, 1.0])).tolist()
    [[1.25, 1.125, 0.875, 0.75, 1.0], [0.5, 0.75, 1.25, 1.5, 0.5]]
    """
    linear = 1.0 + np.multiply.outer(p_values - 0.5, SLOPES)
    return np.column_stack([linear, POWER * p_values ** (POWER - 1.0)])


def reserve(n_rows: int) -> float:
    """The share of the first capital that has not been staked after `n_rows`.

    Stakes that are on the table for long are lost to chance. So half of the capital is kept back
    and staked bit by bit, ever more slowly: a change after n rows costs about log n + 2 log log n
    of log capital more to find than one at the start, and not an amount that grows like n.
    """
    return 1.0 / math.log2(4 + n_rows)


class Martingale:
    """What is left of a capital of one after bets on p-values, in logarithms.

    If p-values are independent and uniform no way to bet gains on average, and the chance that the
    capital *ever* reaches c is at most 1 / c (Ville). Stakes lie on the bets of `payoffs`; after
    each row a share of them jumps from what won to all bets alike, since drift may come and go.

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
        """After each row the log capital (n,), and the share (n,) of stakes on small p-values."""
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
        """The logarithm of the capital, staked and in reserve."""
        return _log_of_sum(self.log_staked, math.log(reserve(self.n_rows)))

    def _stake(self, shares: Floats, log_won: float) -> None:
        """Stake what was won, a part of it on all bets alike, and more of the reserve."""
        more = reserve(self.n_rows) - reserve(self.n_rows + 1)
        self.n_rows += 1
        self.log_staked = _log_of_sum(log_won, math.log(more))
        kept = math.exp(log_won - self.log_staked) * (1.0 - JUMP)
        self.shares = kept * shares + (1.0 - kept) / len(shares)


def _log_of_sum(log_a: float, log_b: float) -> float:
    """log(a + b), of numbers that may be too large or too small to be written."""
    larger, smaller = max(log_a, log_b), min(log_a, log_b)
    return larger + math.log1p(math.exp(smaller - larger))
