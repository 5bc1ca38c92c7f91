"""DriftMonitor: watches rows and labels, and remembers what it saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils import check_random_state

from attnknn._validation import Limits
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.insight.drift.record import Alarm, Kind, Track, Watched
from attnknn.insight.drift.score_stream import ScoreStream
from attnknn.insight.drift.scores import Scores, scores_of_entries, scores_of_rows
from attnknn.insight.drift.state import check_state, signature_of

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

CHANCE = Limits(above=0, below=1)
N_STREAMS = 2  # the allowed chance is shared by bets on rows and on labels
EDITED = (
    "The classifier was edited or fitted again since the monitor began, which moves what is "
    "watched. Begin again with `DriftMonitor(clf)`."
)


class DriftMonitor:
    """Raises an alarm when a stream of rows, or of labels, is unlike what is remembered.

    Each row is ranked by its distance to the nearest entry, and each label by one minus its
    probability, among the same numbers of the held-out entries, judged by the others, and of all
    rows
    of the stream before. Bets are made that these ranks are not uniform, for rows and for labels,
    and an alarm is raised when their capital, one at the start, reaches 2 / `false_alarms`.

    The classifier must stay as it is while the monitor watches; after an edit begin again.

    Parameters
    ----------
    clf : fitted
    false_alarms : the chance of ever raising an alarm over a stream without drift, however long;
        lower takes more rows to notice drift. Guaranteed with `calibration_rows`; with the entries
        themselves about so, since they are judged by one entry less than the rows of the stream
    calibration_rows : rows and their labels (or None) to rank among in place of the held-out
        entries; none of them may be remembered
    random_state : seed of the draws among equal numbers

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[::2], y[::2])
    >>> monitor = DriftMonitor(clf, random_state=0)
    >>> later = np.random.default_rng(0).permutation(75)  # in the order of the file: drift
    >>> print(monitor.watch(X[1::2][later], y[1::2][later]).alarm)
    None
    >>> print(monitor.watch(X[1::2][later] + 1.0))
    Alarm at row 79: rows are farther from what is remembered than its own entries are.
    """

    def __init__(
        self,
        clf: AttnKNNClassifier,
        *,
        false_alarms: float = 0.01,
        calibration_rows: tuple[Any, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        clf._check_remembers("DriftMonitor")
        if not CHANCE.allow(false_alarms):
            raise InvalidSettingError(f"`false_alarms` must be {CHANCE}, got {false_alarms!r}.")
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        known = _calibration(clf, calibration_rows)
        self._begin(clf, float(false_alarms), seed)
        self._rows = ScoreStream(known.rows, self.bound, seed)
        self._labels = ScoreStream(known.labels[~np.isnan(known.labels)], self.bound, seed + 1)

    def _begin(self, clf: AttnKNNClassifier, false_alarms: float, seed: int) -> None:
        self._clf, self._watched_parts = clf, (clf.memory_, clf.attention_)
        self.false_alarms, self._seed = false_alarms, seed
        self.n_rows = 0
        self.alarms: tuple[Alarm, ...] = ()

    @property
    def bound(self) -> float:
        """The capital that raises an alarm."""
        return N_STREAMS / self.false_alarms

    def watch(self, X: Any, y: Any = None) -> Watched:
        """Look at the next rows of the stream, in their order.

        Parameters
        ----------
        X : (n, n_features) rows, whatever the classifier takes
        y : (n,) their labels, None or NaN where there is none; a label that is no remembered class
            has probability 0
        """
        self._refuse_edited()
        scores = scores_of_rows(self._clf, X, y)
        rows, labels = self._rows.watch(scores.rows), self._labels.watch_some(scores.labels)
        self._note("rows", rows)
        self._note("labels", labels)
        n_labels = self._labels.martingale.n_rows
        watched = Watched(self.n_rows, rows, labels, n_labels, self.alarms, self.bound)
        self.n_rows += len(scores.rows)
        return watched

    def restart(self) -> None:
        """Begin again: forget the stream and its alarms, with a new promise of `false_alarms`."""
        self._refuse_edited()
        self._rows.restart()
        self._labels.restart()
        self.n_rows, self.alarms = 0, ()

    def to_dict(self) -> dict[str, Any]:
        """All that is needed to go on later, ready for JSON; grows by some bytes with each row."""
        self._refuse_edited()
        return {
            **signature_of(self._clf),
            "false_alarms": self.false_alarms,
            "seed": self._seed,
            "n_rows": self.n_rows,
            "alarms": [[alarm.kind, alarm.row, alarm.is_novel] for alarm in self.alarms],
            "rows": self._rows.to_dict(),
            "labels": self._labels.to_dict(),
        }

    @classmethod
    def from_dict(cls, clf: AttnKNNClassifier, state: dict[str, Any]) -> Self:
        """The monitor that `to_dict` described, of the same classifier.

        >>> import json
        >>> from attnknn import AttnKNNClassifier
        >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], [0, 0, 1])
        >>> monitor = DriftMonitor(clf)
        >>> before = monitor.watch([[0.5]])
        >>> DriftMonitor.from_dict(clf, json.loads(json.dumps(monitor.to_dict()))).n_rows
        1
        """
        clf._check_remembers("DriftMonitor")
        check_state(clf, state)
        monitor = cls.__new__(cls)
        monitor._begin(clf, state["false_alarms"], state["seed"])
        monitor.n_rows = state["n_rows"]
        monitor.alarms = tuple(Alarm(*alarm) for alarm in state["alarms"])
        monitor._rows = ScoreStream.from_dict(state["rows"], monitor.bound, state["seed"])
        monitor._labels = ScoreStream.from_dict(state["labels"], monitor.bound, state["seed"] + 1)
        return monitor

    def _note(self, kind: Kind, track: Track) -> None:
        if track.alarm is not None:
            alarm = Alarm(kind, self.n_rows + track.alarm, track.is_novel)
            self.alarms = (*self.alarms, alarm)

    def _refuse_edited(self) -> None:
        memory, attention = self._watched_parts
        if self._clf.memory_ is not memory or self._clf.attention_ is not attention:
            raise InvalidInputError(EDITED)


def _calibration(clf: AttnKNNClassifier, rows: tuple[Any, Any] | None) -> Scores:
    if rows is None:
        scores = scores_of_entries(clf)
        if not len(scores.rows):
            raise InvalidInputError(
                "There must be held-out entries to rank among, each with another to be "
                "judged by, and "
                "there is none. Remember more rows, or give `calibration_rows`."
            )
        return scores
    if not (isinstance(rows, tuple) and len(rows) == 2):
        raise InvalidInputError(
            f"`calibration_rows` must be a pair (X, y), got {type(rows).__name__}; y may be None."
        )
    return scores_of_rows(clf, *rows)
