"""The drift monitor of a server: one stream of rows, watched with one state of the model."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from attnknn.insight import DriftMonitor
from attnknn.records import Floats
from attnknn.serving.schemas import MonitorAnswer
from attnknn.serving.state import State

MAX_POINTS = 500
MAX_ROWS = 1_000_000  # of a stream; the scores of all rows are kept


class StreamMonitor:
    """Watches a stream that clients send in parts.

    The scores of a monitor belong to one state of the model. So the stream is watched with the
    state in which it began, until it is started again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._monitor: DriftMonitor | None = None
        self._state: State | None = None
        self._track = np.zeros(0)
        self._sentence, self._n_labels = "", 0

    def watch(self, state: State, X: Any, labels: list[Any] | None) -> MonitorAnswer:
        """Look at the next rows of the stream."""
        with self._lock:
            monitor = self._started(state)
            report = monitor.watch(X, None if labels is None else np.array(labels, dtype=object))
            self._sentence, self._n_labels = report.sentence(), report.n_labels
            self._track = _thinned(np.concatenate([self._track, report.rows.log_martingale]))
            return self._answer()

    def look(self, state: State) -> MonitorAnswer:
        """The state of the stream."""
        with self._lock:
            self._started(state)
            return self._answer()

    def restart(self, state: State) -> MonitorAnswer:
        """Begin a new stream, with the current state of the model."""
        with self._lock:
            self._monitor = None
            self._started(state)
            return self._answer()

    def _started(self, state: State) -> DriftMonitor:
        if self._monitor is None:
            self._monitor, self._state = DriftMonitor(state.classifier, random_state=0), state
            self._track, self._n_labels = np.zeros(0), 0
            self._sentence = "No rows were given; the stream is empty."
        return self._monitor

    def _answer(self) -> MonitorAnswer:
        assert self._monitor is not None
        assert self._state is not None
        last = float(self._track[-1]) if len(self._track) else None
        return MonitorAnswer(
            version=self._state.version,
            n_rows=self._monitor.n_rows,
            n_labels=self._n_labels,
            alarm=bool(self._monitor.alarms),
            sentence=self._sentence,
            false_alarm_rate=self._monitor.false_alarm_rate,
            bound=self._monitor.bound,
            martingale=None if last is None else float(np.exp(min(last, 700.0))),
            log_evidence=last,
            track=np.round(self._track, 4).tolist(),
        )


def _thinned(track: Floats) -> Floats:
    """At most `MAX_POINTS` points, evenly spaced; the last one stays."""
    if len(track) <= MAX_POINTS:
        return track
    return track[np.linspace(0, len(track) - 1, MAX_POINTS).round().astype(int)]
