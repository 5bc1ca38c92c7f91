"""DriftMonitor: detects changes in a stream of rows and labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from attnknn._validation import Limits, check_same_kind, is_missing
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.insight.drift_state import ALARMS, check_state, describe_model
from attnknn.insight.martingale import ScoreStream, ScoreTrack
from attnknn.model import require_model
from attnknn.records import Floats

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

Kind = Literal["rows", "labels"]
RATE = Limits(above=0, below=1)
N_STREAMS = 2  # rows and labels share the allowed rate of false alarms
EDITED = (
    "The classifier was edited or fitted again since the monitor was created, which changes the "
    "scores that it watches. Create a new one with `DriftMonitor(clf)`."
)


@dataclass(frozen=True)
class Alarm:
    """A detected change.

    Attributes
    ----------
    kind : {"rows", "labels"}
        Whether rows or labels have changed.
    row : int
        Row of the stream at which the martingale reached its bound, counted from 0.
    is_novel : bool
        True if rows are farther, or labels less likely, than expected; False if rows are nearer, or
        labels more likely.

    Examples
    --------
    >>> print(Alarm("labels", 57, True))
    Alarm at row 57: labels agree less with the predictions than those of the entries do.
    """

    kind: Kind
    row: int
    is_novel: bool

    def __str__(self) -> str:
        return f"Alarm at row {self.row:,}: {ALARMS[self.kind, self.is_novel]}."


@dataclass(frozen=True, eq=False)
class DriftReport:
    """The result of one call of `DriftMonitor.watch`.

    Attributes
    ----------
    first : int
        Number of rows of the stream before this call.
    rows, labels : ScoreTrack
        P-values and martingales of rows and of labels.
    n_labels : int
        Rows of the stream with a label, up to the last row of this call.
    alarms : tuple of Alarm
        All alarms of the stream, those of earlier calls included.
    bound : float
        Value of a martingale at which an alarm is raised.

    Examples
    --------
    >>> quiet = ScoreTrack(np.array([0.5]), np.array([0.0]))
    >>> print(DriftReport(0, quiet, quiet, 0, (), 200.0))
    No alarm in 1 rows; evidence of drift (martingale): 1 for rows; alarm at 200.
    """

    first: int
    rows: ScoreTrack
    labels: ScoreTrack
    n_labels: int
    alarms: tuple[Alarm, ...]
    bound: float

    @property
    def alarm(self) -> int | None:
        """The first row of this call that raised an alarm, or None."""
        raised = [track.alarm for track in (self.rows, self.labels) if track.alarm is not None]
        return min(raised, default=None)

    def sentence(self) -> str:
        """Summarize the alarms, or how far the stream is from one.

        Returns
        -------
        str
            The alarms of the stream; without an alarm the current martingales and the bound.
        """
        if self.alarms:
            return " ".join(str(alarm) for alarm in self.alarms)
        n_rows = self.first + len(self.rows.p_values)
        if n_rows == self.first:
            return f"No rows were given; there is no alarm in the {n_rows:,} before."
        evidence = f"evidence of drift (martingale): {_martingale(self.rows)} for rows"
        if self.n_labels:
            evidence += f", {_martingale(self.labels)} for labels"
        return f"No alarm in {n_rows:,} rows; {evidence}; alarm at {self.bound:,.0f}."

    def __str__(self) -> str:
        return self.sentence()


def _martingale(track: ScoreTrack) -> str:
    martingale = math.exp(track.log_martingale[-1])
    return f"{martingale:.2g}" if martingale < 10 else f"{martingale:,.0f}"


class DriftMonitor:
    """Raise an alarm when a stream of rows, or of their labels, differs from the memory.

    The score of a row is its distance to the nearest entry, and the score of a label is one minus
    its predicted probability. Each score becomes an online conformal p-value: its rank among the
    leave-one-out scores of the held-out entries and the scores of all earlier rows of the stream.
    Two test martingales, one for rows and one for labels, bet that these p-values are not uniform.
    An alarm is raised when one of them reaches 2 / `false_alarm_rate`.

    The classifier must not be edited or fitted again while it is monitored.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier.
    false_alarm_rate : float, default=0.01
        Probability of ever raising an alarm on a stream without drift, however long it is. Lower
        values need more rows to detect drift. Guaranteed with `calibration_rows`; nearly so with
        the held-out entries, whose leave-one-out scores are computed with one entry less.
    calibration_rows : tuple of (X, y), default=None
        Rows and labels (or None) to rank among in place of the held-out entries. They must not be
        entries of the memory.
    random_state : int, RandomState instance or None, default=None
        Seed of the random numbers that break ties between equal scores.

    Attributes
    ----------
    n_rows : int
        Rows of the stream so far.
    alarms : tuple of Alarm
        Alarms so far, at most one for rows and one for labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[::2], y[::2])
    >>> monitor = DriftMonitor(clf, random_state=0)
    >>> later = np.random.default_rng(0).permutation(75)  # the order of the file would be drift
    >>> print(monitor.watch(X[1::2][later], y[1::2][later]).alarm)
    None
    >>> print(monitor.watch(X[1::2][later] + 1.0))
    Alarm at row 79: rows are farther from the memory than its own entries are.
    """

    def __init__(
        self,
        clf: AttnKNNClassifier,
        *,
        false_alarm_rate: float = 0.01,
        calibration_rows: tuple[Any, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        require_model(clf, "DriftMonitor")
        if not RATE.allow(false_alarm_rate):
            raise InvalidSettingError(
                f"`false_alarm_rate` must be {RATE}, got {false_alarm_rate!r}."
            )
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        known = _calibration_scores(clf, calibration_rows)
        self._begin(clf, float(false_alarm_rate), seed)
        self._rows = ScoreStream(known.rows, self.bound, seed)
        self._labels = ScoreStream(known.labels[~np.isnan(known.labels)], self.bound, seed + 1)

    def _begin(self, clf: AttnKNNClassifier, false_alarm_rate: float, seed: int) -> None:
        self._clf, self._model = clf, clf.model_
        self.false_alarm_rate, self._seed = false_alarm_rate, seed
        self.n_rows = 0
        self.alarms: tuple[Alarm, ...] = ()

    @property
    def bound(self) -> float:
        """Value of a martingale at which an alarm is raised."""
        return N_STREAMS / self.false_alarm_rate

    def watch(self, X: Any, y: Any = None) -> DriftReport:
        """Process the next rows of the stream, in their order.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows in the form that the classifier takes.
        y : array-like of shape (n_rows,), default=None
            Labels; None or NaN where a label is missing. A label that is not in `classes_` has
            probability 0.

        Returns
        -------
        DriftReport
            P-values, martingales and alarms.
        """
        self._check_unedited()
        scores = score_rows(self._clf, X, y)
        rows, labels = self._rows.watch(scores.rows), self._labels.watch_some(scores.labels)
        tracks: list[tuple[Kind, ScoreTrack]] = [("rows", rows), ("labels", labels)]
        for kind, track in tracks:
            if track.alarm is not None:
                alarm = Alarm(kind, self.n_rows + track.alarm, track.is_novel)
                self.alarms = (*self.alarms, alarm)
        n_labels = self._labels.martingale.n_rows
        report = DriftReport(self.n_rows, rows, labels, n_labels, self.alarms, self.bound)
        self.n_rows += len(scores.rows)
        return report

    def restart(self) -> None:
        """Discard the stream and its alarms; `false_alarm_rate` holds for the new stream."""
        self._check_unedited()
        self._rows.restart()
        self._labels.restart()
        self.n_rows, self.alarms = 0, ()

    def to_dict(self) -> dict[str, Any]:
        """Convert the state to plain lists and numbers, ready for JSON.

        Returns
        -------
        dict
            All that `from_dict` needs; it grows with the number of rows.
        """
        self._check_unedited()
        return {
            **describe_model(self._clf, score_entries(self._clf)),
            "false_alarm_rate": self.false_alarm_rate,
            "seed": self._seed,
            "n_rows": self.n_rows,
            "alarms": [[alarm.kind, alarm.row, alarm.is_novel] for alarm in self.alarms],
            "rows": self._rows.to_dict(),
            "labels": self._labels.to_dict(),
        }

    @classmethod
    def from_dict(cls, clf: AttnKNNClassifier, state: dict[str, Any]) -> Self:
        """Restore a monitor of the same classifier.

        Parameters
        ----------
        clf : AttnKNNClassifier
            The classifier that was monitored, or one loaded from its folder.
        state : dict
            State that `to_dict` returned.

        Returns
        -------
        DriftMonitor
            A monitor that continues the stream.

        Raises
        ------
        InvalidInputError
            If `state` is damaged or belongs to another classifier.

        Examples
        --------
        >>> import json
        >>> from attnknn import AttnKNNClassifier
        >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], [0, 0, 1])
        >>> monitor = DriftMonitor(clf)
        >>> before = monitor.watch([[0.5]])
        >>> DriftMonitor.from_dict(clf, json.loads(json.dumps(monitor.to_dict()))).n_rows
        1
        """
        require_model(clf, "DriftMonitor")
        check_state(state, describe_model(clf, score_entries(clf)))
        monitor = cls.__new__(cls)
        monitor._begin(clf, state["false_alarm_rate"], state["seed"])
        monitor.n_rows = state["n_rows"]
        monitor.alarms = tuple(Alarm(*alarm) for alarm in state["alarms"])
        monitor._rows = ScoreStream.from_dict(state["rows"], monitor.bound, state["seed"])
        monitor._labels = ScoreStream.from_dict(state["labels"], monitor.bound, state["seed"] + 1)
        return monitor

    def _check_unedited(self) -> None:
        if self._clf.model_ is not self._model:
            raise InvalidInputError(EDITED)


@dataclass(frozen=True)
class DriftScores:
    """Distance to the nearest entry, and one minus the probability of the label, of n rows."""

    rows: Floats  # (n,)
    labels: Floats  # (n,) NaN for a row without a label; 1 for a label that is not in `classes_`


def _calibration_scores(clf: AttnKNNClassifier, rows: tuple[Any, Any] | None) -> DriftScores:
    if rows is None:
        scores = score_entries(clf)
        if not len(scores.rows):
            raise InvalidInputError(
                "The monitor needs at least one held-out entry with a leave-one-out neighbor, got "
                "0. Add more rows, or give `calibration_rows`."
            )
        return scores
    if not (isinstance(rows, tuple) and len(rows) == 2):
        raise InvalidInputError(
            f"`calibration_rows` must be a pair (X, y), got {type(rows).__name__}; y may be None."
        )
    return score_rows(clf, *rows)


def score_entries(clf: AttnKNNClassifier) -> DriftScores:
    """Leave-one-out scores of the held-out entries that have a neighbor."""
    left_out = clf.model_.held_out_predictions()
    left_out = left_out.part(np.isfinite(left_out.nearest()))
    own = left_out.probabilities[np.arange(len(left_out)), left_out.own]
    return DriftScores(left_out.nearest(), 1.0 - own)


def score_rows(clf: AttnKNNClassifier, X: Any, y: Any = None) -> DriftScores:
    """Scores of rows that are not entries.

    Entries are embedded in one view and have the calibration of one view. Rows must be treated
    alike: any difference between the two would be taken for drift.
    """
    model = clf.model_
    queries = model.memory.prepare(clf.embed(X))
    labels = _check_labels(y, len(queries), model.classes)
    probabilities, nearest = model.predict_with_distance(queries)
    return DriftScores(nearest, _score_labels(labels, probabilities, model.classes))


def _check_labels(y: Any, n_rows: int, classes: NDArray[Any]) -> list[Any]:
    """A label or None for each row."""
    if y is None:
        return [None] * n_rows
    if np.ndim(y) != 1:
        raise InvalidInputError(
            f"`y` must be a list of labels, one for each row, got {np.ndim(y)} dimensions."
        )
    listed = y.tolist() if hasattr(y, "tolist") else y
    labels = [None if is_missing(label) else label for label in listed]
    if len(labels) != n_rows:
        raise InvalidInputError(f"`X` has {n_rows} rows but `y` has {len(labels)} labels.")
    known = classes.tolist()
    for label in set(labels) - {None, *known}:
        check_same_kind(label, known[0])
    return labels


def _score_labels(labels: list[Any], probabilities: Floats, classes: NDArray[Any]) -> Floats:
    place = {label: code for code, label in enumerate(classes.tolist())}
    scores = np.full(len(labels), np.nan)
    for row, label in enumerate(labels):
        if label is not None:
            code = place.get(label)
            scores[row] = 1.0 if code is None else 1.0 - probabilities[row, code]
    return scores
