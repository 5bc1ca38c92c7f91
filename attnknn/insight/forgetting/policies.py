"""The policies: which entries go, or how much say age leaves them; each whole or not at all."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._validation import Limits, check_at_least, check_flag
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.insight.forgetting.measuring import change_on_held_out, change_on_rows
from attnknn.insight.forgetting.record import Forgetting
from attnknn.insight.forgetting.value import first_apart, values_to_all
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

ROUNDS = 16
HALF_LIFE = Limits(above=0, may_be_none=True)
LEAST = np.finfo(float).tiny  # an sample weight of zero has no logarithm


def keep_newest(
    clf: AttnKNNClassifier,
    n: int,
    *,
    times: ArrayLike | None = None,
    may_empty_classes: bool = False,
    validation: tuple[Any, Any] | None = None,
) -> Forgetting:
    """Forget all but the `n` newest entries, and measure what that costs.

    Parameters
    ----------
    clf : fitted; it is changed, unless it remembers `n` entries or fewer
    times : (N,) when each entry came, larger is newer, in the order of `clf.memory_.entries.ids`;
        None goes by the order in which they were remembered
    may_empty_classes : False keeps the newest entry of each class, however old, among the `n`
    validation : rows and labels to measure the loss on too, none of which may be remembered

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance")
    >>> clf = clf.fit([[0.0], [4.0], [1.0], [5.0]], ["a", "b", "a", "b"])
    >>> keep_newest(clf, 2).dropped.tolist(), clf.memory_.entries.ids.tolist()
    ([0, 1], [2, 3])
    """
    clf._check_remembers("keep_newest")
    _check_budget(clf, n, may_empty_classes)
    order = np.argsort(_times(clf, times), kind="stable")
    gone = _first_to_go(order, clf.memory_.entries.labels, len(clf.memory_) - n, may_empty_classes)
    return _forget(clf, clf.memory_.entries.ids[gone], "the oldest", validation)


def drop_least_valuable(
    clf: AttnKNNClassifier,
    n: int,
    *,
    rounds: int = ROUNDS,
    may_empty_classes: bool = False,
    validation: tuple[Any, Any] | None = None,
) -> Forgetting:
    """Forget the entries of least value until `n` are left, and measure what that costs.

    The value of an entry is by how much its vote lowers the log-loss of the others, as in `audit`.
    As entries go, the values of those that stood in for them rise: so values are computed again in
    each round, near ones do not go in the same one, and the rows of entries that went still count.
    The choice is made by the labels of the very rows that the loss is measured on, which flatters
    it; `validation` does not.

    Parameters
    ----------
    clf : fitted; it is changed, unless it remembers `n` entries or fewer
    rounds : at least so many, of about equal numbers of entries; more take longer
    may_empty_classes : False keeps the most valuable entry of each class among the `n`
    validation : rows and labels to measure the loss on too, none of which may be remembered

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance", random_state=0)
    >>> clf = clf.fit([[0.0], [0.1], [0.2], [4.0], [4.1], [0.15]], ["a", "a", "a", "b", "b", "b"])
    >>> drop_least_valuable(clf, 5).dropped.tolist()
    [5]
    """
    clf._check_remembers("drop_least_valuable")
    _check_budget(clf, n, may_empty_classes)
    check_at_least("rounds", rounds, 1)
    calibration_batch, dropped = copy(clf), [clf.memory_.entries.ids[:0]]
    while len(calibration_batch.memory_) > n:
        left = max(1, rounds + 1 - len(dropped))
        n_out = math.ceil((len(calibration_batch.memory_) - n) / left)
        order = np.argsort(
            values_to_all(clf, calibration_batch), kind="stable"
        )  # of equals the older first
        may_go = _first_to_go(
            order, calibration_batch.memory_.entries.labels, len(order), may_empty_classes
        )
        gone = first_apart(calibration_batch, may_go, n_out)
        dropped.append(calibration_batch.memory_.entries.ids[gone])
        calibration_batch.forget(dropped[-1])
    return _forget(clf, np.concatenate(dropped), "those of least value", validation)


def weigh_by_age(
    clf: AttnKNNClassifier,
    half_life: float | None,
    *,
    times: ArrayLike | None = None,
    validation: tuple[Any, Any] | None = None,
) -> Forgetting:
    """Let the sample weight of entries fall with their age, and measure what that costs.

    An entry of age a has sample weight × ½^(a / half_life). The newest has age 0. Ages are those of
    this moment: entries added later are new, and older ones fade further when this is called
    again, always from the sample weight that they were given.

    Parameters
    ----------
    clf : fitted; it is changed
    half_life : the age at which half of the sample weight is left: so many newer entries or, with
        `times`, in their unit. Lower forgets faster; None takes all fading back
    times : (N,) when each entry came, larger is newer, in the order of `clf.memory_.entries.ids`;
        None goes by the order in which they were remembered
    validation : rows and labels to measure the loss on too, none of which may be remembered

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance")
    >>> clf = clf.fit([[0.0], [4.0], [1.0], [5.0]], ["a", "b", "a", "b"])
    >>> weigh_by_age(clf, 1).decay.tolist()
    [0.125, 0.25, 0.5, 1.0]
    """
    clf._check_remembers("weigh_by_age")
    if not HALF_LIFE.allow(half_life):
        raise InvalidSettingError(f"`half_life` must be {HALF_LIFE}, got {half_life!r}.")
    when = _times(clf, times)
    decay = None
    if half_life is not None:
        decay = np.maximum(0.5 ** ((when.max() - when) / half_life), LEAST)
    calibration_batch = copy(clf)._set_decay(decay)
    if decay is None:
        done = "Gave all entries their whole sample weight back"
    else:
        done = f"Halved the sample weight of entries with every {half_life:g} of age"
    changes = _changes(clf, calibration_batch, validation)
    clf._set_decay(decay)
    return Forgetting(done, clf.memory_.entries.ids[:0], decay, *changes)


def _forget(
    clf: AttnKNNClassifier, ids: NDArray[Any], which: str, validation: tuple[Any, Any] | None
) -> Forgetting:
    """Forget entries, the loss being measured first, on a copy."""
    n = len(clf.memory_)
    calibration_batch = copy(clf)
    if len(ids):
        calibration_batch.forget(ids)
        done = f"Forgot {len(ids):,} of {n:,} entries, {which}"
    else:
        done = f"Forgot nothing: {n:,} entries are no more than asked for"
    changes = _changes(clf, calibration_batch, validation)
    if len(ids):
        clf.forget(ids)
    return Forgetting(done, ids, clf.memory_.entries.decay, *changes)


def _changes(
    before: AttnKNNClassifier, after: AttnKNNClassifier, validation: tuple[Any, Any] | None
) -> tuple[Any, Any]:
    on_rows = None if validation is None else change_on_rows(before, after, validation)
    return change_on_held_out(before, after), on_rows


def _check_budget(clf: AttnKNNClassifier, n: int, may_empty_classes: bool) -> None:
    check_at_least("n", n, 1)
    check_flag("may_empty_classes", may_empty_classes)
    n_classes = len(np.unique(clf.memory_.entries.labels))
    if n < n_classes and not may_empty_classes:
        raise InvalidInputError(
            f"`n` must be at least {n_classes} to keep an entry of each class, got {n}. Keep more, "
            "or give `may_empty_classes=True`."
        )


def _times(clf: AttnKNNClassifier, times: ArrayLike | None) -> Floats:
    """When each entry came (N,): as given, or counted in the order remembered."""
    n = len(clf.memory_)
    if times is None:
        return np.arange(n, dtype=np.float64)
    try:
        given = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"`times` must hold a finite number for each of the {n} entries, got "
            f"{np.ravel(np.asarray(times, dtype=object)).tolist()[:1]}. Give seconds or days."
        ) from None
    if given.shape != (n,) or not np.isfinite(given).all():
        raise InvalidInputError(
            f"`times` must hold a finite number for each of the {n} entries, got shape "
            f"{given.shape}."
        )
    return given


def _first_to_go(order: Integers, labels: Integers, n_out: int, may_empty: bool) -> Integers:
    """The first `n_out` positions of an order, but the last of each class stays if it must."""
    may_go = np.ones(len(order), dtype=bool) if may_empty else ~_is_last(order, labels)
    return order[may_go][: max(n_out, 0)]


def _is_last(order: Integers, labels: Integers) -> Booleans:
    """Whether each place of an order (N,) is the last one of its class."""
    _, from_end = np.unique(labels[order][::-1], return_index=True)
    is_last = np.zeros(len(order), dtype=bool)
    is_last[len(order) - 1 - from_end] = True
    return is_last
