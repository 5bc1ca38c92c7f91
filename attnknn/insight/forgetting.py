"""Forgetting policies: which entries to drop or to weigh less, with the measured cost.

Each policy is applied as a whole or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._validation import Limits, check_at_least, check_flag, check_labels
from attnknn.calibration import Calibration
from attnknn.editing import label_codes, set_decay
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.insight.auditing import entry_values, vote_values
from attnknn.model import Answer, require_model
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

HALF_LIFE = Limits(above=0, may_be_none=True)
N_NEAREST = 3  # neighbors of a dropped entry stay for one more round: they may replace each other
TINY = np.finfo(float).tiny  # a weight of zero has no logarithm


@dataclass(frozen=True)
class Change:
    """Accuracy and log-loss on the same rows before and after a policy.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    accuracy_before, accuracy_after : float
        Accuracy; higher is better.
    log_loss_before, log_loss_after : float
        Log-loss of the observed labels, in nats; lower is better.

    Examples
    --------
    >>> print(Change(100, 0.9, 0.88, 0.3, 0.35))
    accuracy 0.9000 → 0.8800 (-2.00 points), log-loss 0.3000 → 0.3500 (+0.0500)
    """

    n_rows: int
    accuracy_before: float
    accuracy_after: float
    log_loss_before: float
    log_loss_after: float

    @property
    def accuracy_lost(self) -> float:
        """Accuracy before minus accuracy after; negative if it rose."""
        return self.accuracy_before - self.accuracy_after

    @property
    def log_loss_added(self) -> float:
        """Log-loss after minus log-loss before; negative if it fell."""
        return self.log_loss_after - self.log_loss_before

    def __str__(self) -> str:
        points = -100 * self.accuracy_lost
        return (
            f"accuracy {self.accuracy_before:.4f} → {self.accuracy_after:.4f} "
            f"({points:+.2f} points), log-loss {self.log_loss_before:.4f} → "
            f"{self.log_loss_after:.4f} ({self.log_loss_added:+.4f})"
        )


@dataclass(frozen=True, eq=False)
class Forgetting:
    """What a forgetting policy did to a classifier, and what it cost.

    Attributes
    ----------
    done : str
        What was done, such as "Forgot 40 of 60 entries, the oldest".
    dropped : ndarray
        Ids of the forgotten entries.
    decay : ndarray of shape (n_entries,) or None
        Factor by which age lowers the sample weight of each entry; None without decay.
    held_out : Change or None
        Leave-one-out accuracy and log-loss on the entries that were held out before the policy;
        forgotten ones are predicted like new rows. None if no entry was held out.
    validation : Change or None, default=None
        Accuracy and log-loss on the `validation` rows, if given.

    Examples
    --------
    >>> change = Change(2, 1.0, 1.0, 0.1, 0.2)
    >>> print(Forgetting("Forgot 1 of 3 entries, the oldest", np.array([0]), None, change))
    Forgot 1 of 3 entries, the oldest.
    Leave-one-out, 2 held-out entries: accuracy 1.0000 → 1.0000 (-0.00 points), log-loss 0.1000 →
    0.2000 (+0.1000).
    """

    done: str
    dropped: NDArray[Any]
    decay: Floats | None
    held_out: Change | None
    validation: Change | None = None

    def sentences(self) -> list[str]:
        """Describe what was done and what it cost.

        Returns
        -------
        list of str
            What was done, the leave-one-out cost, and the cost on validation rows if given.
        """
        found = [f"{self.done}."]
        if self.held_out is None:
            found.append("No entries are held out, so the leave-one-out cost is unknown.")
        else:
            rows = f"{self.held_out.n_rows:,} held-out entries"
            found.append(f"Leave-one-out, {rows}: {self.held_out}.")
        if self.validation is not None:
            found.append(f"{self.validation.n_rows:,} validation rows: {self.validation}.")
        return found

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def keep_newest(
    clf: AttnKNNClassifier,
    n: int,
    *,
    times: ArrayLike | None = None,
    may_empty_classes: bool = False,
    validation: tuple[Any, Any] | None = None,
) -> Forgetting:
    """Forget all but the `n` newest entries, and measure the cost.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier. It is changed, unless it has at most `n` entries.
    n : int
        Entries to keep.
    times : array-like of shape (n_entries,), default=None
        Time of each entry, larger is newer, in the order of `clf.memory_.entries.ids`. None uses
        the order in which entries were added.
    may_empty_classes : bool, default=False
        False keeps the newest entry of each class among the `n`, however old it is.
    validation : tuple of (X, y), default=None
        Rows and labels on which the cost is measured, too. They must not be entries.

    Returns
    -------
    Forgetting
        Ids of the forgotten entries and the cost.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance")
    >>> clf = clf.fit([[0.0], [4.0], [1.0], [5.0]], ["a", "b", "a", "b"])
    >>> keep_newest(clf, 2).dropped.tolist(), clf.memory_.entries.ids.tolist()
    ([0, 1], [2, 3])
    """
    require_model(clf, "keep_newest")
    _check_budget(clf, n, may_empty_classes)
    order = np.argsort(_check_times(clf, times), kind="stable")
    candidates = _candidates(order, clf.memory_.entries.labels, may_empty_classes)
    dropped = candidates[: max(len(clf.memory_) - n, 0)]
    return _forget(clf, clf.memory_.entries.ids[dropped], "the oldest", validation)


def drop_least_valuable(
    clf: AttnKNNClassifier,
    n: int,
    *,
    rounds: int = 16,
    may_empty_classes: bool = False,
    validation: tuple[Any, Any] | None = None,
) -> Forgetting:
    """Forget the least valuable entries until `n` are left, and measure the cost.

    The value of an entry is the amount by which its vote lowers the log-loss of the others, as in
    `audit`. Forgetting an entry raises the values of those that can replace it. So values are
    computed again in each round, close neighbors are not dropped in the same round, and forgotten
    entries still count as rows to predict. Since entries are chosen by the labels of the held-out
    entries, the leave-one-out cost is optimistic; the cost on `validation` rows is not.

    Parameters
    ----------
    clf, n : AttnKNNClassifier, int
        As in `keep_newest`.
    rounds : int, default=16
        Minimum number of rounds, of about equal numbers of entries. More rounds choose better and
        take longer.
    may_empty_classes : bool, default=False
        False keeps the most valuable entry of each class among the `n`.
    validation : tuple of (X, y), default=None
        As in `keep_newest`.

    Returns
    -------
    Forgetting
        Ids of the forgotten entries and the cost.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance", random_state=0)
    >>> clf = clf.fit([[0.0], [0.1], [0.2], [4.0], [4.1], [0.15]], ["a", "a", "a", "b", "b", "b"])
    >>> drop_least_valuable(clf, 5).dropped.tolist()
    [5]
    """
    require_model(clf, "drop_least_valuable")
    _check_budget(clf, n, may_empty_classes)
    check_at_least("rounds", rounds, 1)
    trial, dropped = copy(clf), [clf.memory_.entries.ids[:0]]
    while len(trial.memory_) > n:
        n_dropped = math.ceil((len(trial.memory_) - n) / max(1, rounds + 1 - len(dropped)))
        order = np.argsort(_values_to_all(clf, trial), kind="stable")  # ties: the older first
        candidates = _candidates(order, trial.memory_.entries.labels, may_empty_classes)
        chosen = _choose_apart(trial, candidates, n_dropped)
        dropped.append(trial.memory_.entries.ids[chosen])
        trial.forget(dropped[-1])
    return _forget(clf, np.concatenate(dropped), "those of least value", validation)


def weigh_by_age(
    clf: AttnKNNClassifier,
    half_life: float | None,
    *,
    times: ArrayLike | None = None,
    validation: tuple[Any, Any] | None = None,
) -> Forgetting:
    """Let sample weights decay with the age of entries, and measure the cost.

    An entry of age a gets the effective weight sample_weight × ½^(a / half_life); the newest entry
    has age 0. Ages are computed once, when the function is called: entries added later have full
    weight, and a further call computes the decay of all entries again from their sample weights.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier. It is changed.
    half_life : float or None
        Age at which half of the sample weight is left: a number of newer entries or, with `times`,
        a time in their unit. Lower values forget faster; None removes all decay.
    times, validation : array-like of shape (n_entries,), tuple of (X, y)
        As in `keep_newest`.

    Returns
    -------
    Forgetting
        The decay of each entry and the cost.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance")
    >>> clf = clf.fit([[0.0], [4.0], [1.0], [5.0]], ["a", "b", "a", "b"])
    >>> weigh_by_age(clf, 1).decay.tolist()
    [0.125, 0.25, 0.5, 1.0]
    """
    require_model(clf, "weigh_by_age")
    if not HALF_LIFE.allow(half_life):
        raise InvalidSettingError(f"`half_life` must be {HALF_LIFE}, got {half_life!r}.")
    when = _check_times(clf, times)
    decay, done = None, "Removed the decay of all sample weights"
    if half_life is not None:
        decay = np.maximum(0.5 ** ((when.max() - when) / half_life), TINY)
        done = f"Halved the sample weight of entries with every {half_life:g} of age"
    changes = _measure(clf, _decayed(copy(clf), decay), validation)
    _decayed(clf, decay)
    return Forgetting(done, clf.memory_.entries.ids[:0], decay, *changes)


def _decayed(clf: AttnKNNClassifier, decay: Floats | None) -> AttnKNNClassifier:
    return clf.edit(lambda model: set_decay(model, decay))


def _check_budget(clf: AttnKNNClassifier, n: int, may_empty_classes: bool) -> None:
    check_at_least("n", n, 1)
    check_flag("may_empty_classes", may_empty_classes)
    n_classes = len(np.unique(clf.memory_.entries.labels))
    if n < n_classes and not may_empty_classes:
        raise InvalidInputError(
            f"`n` must be at least {n_classes} to keep an entry of each class, got {n}. Keep more, "
            "or give `may_empty_classes=True`."
        )


def _check_times(clf: AttnKNNClassifier, times: ArrayLike | None) -> Floats:
    """The time of each entry (N,): as given, or its position."""
    n = len(clf.memory_)
    if times is None:
        return np.arange(n, dtype=np.float64)
    required = f"`times` must hold a finite number for each of the {n} entries"
    try:
        given = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        first = np.ravel(np.asarray(times, dtype=object)).tolist()[:1]
        raise InvalidInputError(f"{required}, got {first}. Give seconds or days.") from None
    if given.shape != (n,) or not np.isfinite(given).all():
        raise InvalidInputError(f"{required}, got shape {given.shape}.")
    return given


def _candidates(order: Integers, labels: Integers, may_empty: bool) -> Integers:
    """Positions in an order without the last one of each class, unless classes may be emptied."""
    if may_empty:
        return order
    _, from_end = np.unique(labels[order][::-1], return_index=True)
    return np.delete(order, len(order) - 1 - from_end)


def _values_to_all(whole: AttnKNNClassifier, left: AttnKNNClassifier) -> Floats:
    """The value (N,) of each entry of `left` to all rows in the memory of `whole`.

    Forgotten entries count as rows to predict. Otherwise the memory would come to serve only the
    entries that are left, which lie where votes are close, and not where most new rows will be.
    """
    value = entry_values(left)
    entries = whole.memory_.entries
    forgotten = np.flatnonzero(~np.isin(entries.ids, left.memory_.entries.ids))
    prior = class_prior(left.model_.counts)
    for rows, answer in answer_forgotten(whole, left, forgotten):
        value += vote_values(answer, entries.labels[rows], prior, left.calibration_, len(value))
    return value


def _choose_apart(clf: AttnKNNClassifier, order: Integers, n: int) -> Integers:
    """The first `n` positions of an order at most, without neighbors of an earlier one.

    Entries that can replace each other would otherwise be dropped together.
    """
    found = clf.model_.leave_one_out().batch.neighbors.nearest(N_NEAREST)
    stays = np.zeros(len(clf.memory_), dtype=bool)
    chosen: list[int] = []
    for position in order.tolist():
        if len(chosen) == n:
            break
        if not stays[position]:
            chosen.append(position)
            stays[found.positions[position][found.mask[position]]] = True
    return np.array(chosen, dtype=np.int64)


def _forget(
    clf: AttnKNNClassifier, ids: NDArray[Any], which: str, validation: tuple[Any, Any] | None
) -> Forgetting:
    """Forget entries after measuring the cost on a copy."""
    n, after = len(clf.memory_), copy(clf)
    done = f"Forgot nothing: there are only {n:,} entries"
    if len(ids):
        after.forget(ids)
        done = f"Forgot {len(ids):,} of {n:,} entries, {which}"
    changes = _measure(clf, after, validation)
    if len(ids):
        clf.forget(ids)
    return Forgetting(done, ids, clf.memory_.entries.decay, *changes)


def _measure(
    before: AttnKNNClassifier, after: AttnKNNClassifier, validation: tuple[Any, Any] | None
) -> tuple[Change | None, Change | None]:
    """The cost of an edit on held-out entries and on validation rows."""
    on_rows = None if validation is None else _measure_on_rows(before, after, validation)
    return _measure_on_held_out(before, after), on_rows


def _measure_on_held_out(before: AttnKNNClassifier, after: AttnKNNClassifier) -> Change | None:
    """Leave-one-out; an entry that `after` does not have is predicted without its group."""
    left_out = before.model_.held_out_predictions()
    if not len(left_out):
        return None
    place = {name: row for row, name in enumerate(after.memory_.entries.ids.tolist())}
    now = np.array([place.get(n, -1) for n in before.memory_.entries.ids[left_out.rows].tolist()])
    stays = now >= 0
    answered = np.empty_like(left_out.probabilities)
    if stays.any():
        kept = after.model_.predict_left_out(after.model_.leave_one_out(now[stays]))
        answered[stays] = kept.probabilities
    if not stays.all():
        answers = answer_forgotten(before, after, left_out.rows[~stays])
        answered[~stays] = np.concatenate([answer.probabilities for _, answer in answers])
    return _change(left_out.own, left_out.probabilities, answered, before.calibration_)


def _measure_on_rows(
    before: AttnKNNClassifier, after: AttnKNNClassifier, rows: tuple[Any, Any]
) -> Change:
    labels = check_labels(rows[1])
    probabilities = before.predict_proba(rows[0])
    if len(labels) != len(probabilities) or not len(labels):
        raise InvalidInputError(
            f"`validation` must hold a label for each row, and at least one row, got "
            f"{len(probabilities)} rows and {len(labels)} labels."
        )
    known = set(before.classes_.tolist())
    unknown = [label for label in labels.tolist() if label not in known]
    if unknown:
        raise InvalidInputError(
            f"`validation` must hold labels of known classes, got {unknown[0]!r}."
        )
    own = label_codes(before.classes_, labels)
    return _change(own, probabilities, after.predict_proba(rows[0]), before.calibration_)


def answer_forgotten(
    before: AttnKNNClassifier, after: AttnKNNClassifier, rows: Integers
) -> Iterator[tuple[Integers, Answer]]:
    """Answers of `after` for entries that only `before` has, at `rows`, in blocks.

    Entries of the same group do not vote.
    """
    model = after.model_
    for start in range(0, len(rows), model.rows_at_once):
        chosen = rows[start : start + model.rows_at_once]
        yield chosen, model.answer_forgotten(before.memory_.read(chosen))


def _change(own: Integers, before: Floats, after: Floats, calibration: Calibration) -> Change:
    def log_loss(probabilities: Floats) -> float:
        likely = calibration.observed(probabilities)[np.arange(len(own)), own]
        return float(-np.log(np.maximum(likely, TINY)).mean())

    return Change(
        n_rows=len(own),
        accuracy_before=float((before.argmax(axis=1) == own).mean()),
        accuracy_after=float((after.argmax(axis=1) == own).mean()),
        log_loss_before=log_loss(before),
        log_loss_after=log_loss(after),
    )
