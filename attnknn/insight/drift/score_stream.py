"""One kind of score through a stream: ranks, bets, and the row that raised the alarm."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from attnknn.insight.drift.martingale import Martingale
from attnknn.insight.drift.p_values import merged, online_p_values
from attnknn.insight.drift.record import Track
from attnknn.records import Floats


class ScoreStream:
    """Bets that the scores of a stream are like those before them.

    Parameters
    ----------
    calibration : (m,) scores before the stream
    bound : the capital that raises the alarm
    seed : of the draws among equal scores

    Examples
    --------
    >>> stream = ScoreStream(np.arange(100.0), bound=100.0, seed=0)
    >>> stream.watch(np.full(30, 200.0)).alarm is None
    False
    """

    def __init__(self, calibration: Floats, bound: float, seed: int) -> None:
        self.calibration = np.sort(calibration)
        self.bound, self.seed, self.n_drawn = bound, seed, 0
        self.restart()

    def restart(self) -> None:
        """Forget the stream, with its alarm."""
        self.known = self.calibration
        self.martingale = Martingale()
        self.has_alarmed = False

    def watch(self, scores: Floats) -> Track:
        """Rank and bet on each score in turn."""
        p_values = online_p_values(scores, self.known, self._draw(len(scores)))
        self.known = merged(self.known, scores)
        log_martingale, on_small = self.martingale.bet(p_values)
        reached = np.flatnonzero(log_martingale >= math.log(self.bound))
        if self.has_alarmed or not len(reached):
            return Track(p_values, log_martingale)
        self.has_alarmed = True
        return Track(p_values, log_martingale, int(reached[0]), bool(on_small[reached[0]] >= 0.5))

    def watch_some(self, scores: Floats) -> Track:
        """The same where NaN is no score: the capital stays what it was."""
        places = np.flatnonzero(~np.isnan(scores))
        before, found = self.martingale.log, self.watch(scores[places])
        p_values = np.full(len(scores), np.nan)
        p_values[places] = found.p_values
        n_so_far = np.cumsum(~np.isnan(scores))
        log_martingale = np.concatenate([[before], found.log_martingale])[n_so_far]
        alarm = None if found.alarm is None else int(places[found.alarm])
        return Track(p_values, log_martingale, alarm, found.is_novel)

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
        """What `to_dict` gave."""
        stream = cls(np.array(state["calibration"]), bound, seed)
        stream.known = np.array(state["known"])
        stream.n_drawn, stream.has_alarmed = state["n_drawn"], state["has_alarmed"]
        stream.martingale.n_rows = state["n_bets"]
        stream.martingale.log_staked = state["log_staked"]
        stream.martingale.shares = np.array(state["shares"])
        return stream

    def _draw(self, n: int) -> Floats:
        """Numbers above 0 and up to 1; the same ones in one call or in several."""
        bits = np.random.PCG64(self.seed)
        drawn = np.random.Generator(bits.advance(self.n_drawn)).random(n)
        self.n_drawn += n
        return 1.0 - drawn
