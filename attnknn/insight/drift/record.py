"""What a monitor saw: p-values, capital, alarms, and the words for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from attnknn.records import Floats

Kind = Literal["rows", "labels"]
WORDS = {
    ("rows", True): "rows are farther from what is remembered than its own entries are",
    ("rows", False): "rows are nearer to what is remembered than its own entries are (copies?)",
    ("labels", True): "labels agree less with the answers than those of the entries do",
    ("labels", False): "labels agree more with the answers than those of the entries do",
}


@dataclass(frozen=True)
class Alarm:
    """Drift that was noticed.

    Parameters
    ----------
    kind : whether the rows told of it, or the labels
    row : of the stream at which the capital reached its bound, counted from 0
    is_novel : whether rows, or labels, were stranger than expected, and not too familiar

    >>> print(Alarm("labels", 57, True))
    Alarm at row 57: labels agree less with the answers than those of the entries do.
    """

    kind: Kind
    row: int
    is_novel: bool

    def __str__(self) -> str:
        return f"Alarm at row {self.row:,}: {WORDS[self.kind, self.is_novel]}."


@dataclass(frozen=True, eq=False)
class Track:
    """The bets on the rows, or on the labels, of one call.

    Parameters
    ----------
    p_values : (n,) small for strange ones; NaN for a row without a label
    log_martingale : (n,) natural logarithm of the capital after each row
    alarm : the first row of the call at which the capital reached its bound; None if it did not, or
        had done so before
    is_novel : of that alarm
    """

    p_values: Floats
    log_martingale: Floats
    alarm: int | None = None
    is_novel: bool = True


@dataclass(frozen=True, eq=False)
class Watched:
    """What one call of `DriftMonitor.watch` saw.

    Parameters
    ----------
    first : number of rows of the stream before this call
    rows, labels : the two kinds of bets
    n_labels : rows of the stream that had a label, up to the last of this call
    alarms : all that stand, also those of earlier calls
    bound : the capital that raises an alarm
    """

    first: int
    rows: Track
    labels: Track
    n_labels: int
    alarms: tuple[Alarm, ...]
    bound: float

    @property
    def alarm(self) -> int | None:
        """The first row of this call that raised an alarm, or None."""
        raised = [track.alarm for track in (self.rows, self.labels) if track.alarm is not None]
        return min(raised, default=None)

    def sentence(self) -> str:
        """The alarms that stand, or that there is none and how far from it the stream is."""
        if self.alarms:
            return " ".join(str(alarm) for alarm in self.alarms)
        n_rows = self.first + len(self.rows.p_values)
        if n_rows == self.first:
            return f"No rows were given; there is no alarm in the {n_rows:,} before."
        martingale = f"the capital is {_martingale(self.rows)} for rows"
        if self.n_labels:
            martingale += f" and {_martingale(self.labels)} for labels"
        return f"No alarm in {n_rows:,} rows: {martingale}, and an alarm takes {self.bound:,.0f}."

    def __str__(self) -> str:
        return self.sentence()


def _martingale(track: Track) -> str:
    martingale = math.exp(track.log_martingale[-1])
    return f"{martingale:.2g}" if martingale < 10 else f"{martingale:,.0f}"
