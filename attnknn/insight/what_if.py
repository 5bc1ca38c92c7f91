"""What the answers would be after an edit that is not made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn.errors import InvalidInputError
from attnknn.records import Floats, Integers

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

LAST_LETTER = "\U0010ffff"  # sorts behind every other


@dataclass(frozen=True, eq=False)
class AddedRows:
    """Rows to try, with all that `add` may be told of them; None as in `add`.

    Parameters
    ----------
    X : (n, n_features) rows
    y : (n,) labels
    ids, groups, sample_weight, payloads, subjects : (n,) as in `AttnKNNClassifier.add`
    """

    X: Any
    y: Any
    ids: Any = None
    groups: Any = None
    sample_weight: Any = None
    payloads: Any = None
    subjects: Any = None

    @property
    def told(self) -> dict[str, Any]:
        """What `add` takes beside rows and labels, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("X", "y")}


@dataclass(frozen=True, eq=False)
class WhatIf:
    """Answers for n rows as they are and as an edit would make them.

    Parameters
    ----------
    classes : (C,) those after the edit; a class that the edit would bring has probability 0 before
    before, after : (n, C) probabilities
    """

    classes: NDArray[Any]
    before: Floats
    after: Floats

    @property
    def changed(self) -> Integers:
        """Places of the rows whose label would change."""
        return np.flatnonzero(self.before.argmax(axis=1) != self.after.argmax(axis=1))

    @property
    def shift(self) -> Floats:
        """(n,) how much probability would move to other classes, 0..1, of each row."""
        return np.abs(self.after - self.before).sum(axis=1) / 2

    def sentence(self) -> str:
        """What the edit would do, in one sentence."""
        n_rows, n_changed = len(self.before), len(self.changed)
        if not self.shift.any():
            return f"Nothing would change for {_counted(n_rows)}."
        return (
            f"{n_changed:,} of {_counted(n_rows)} would change the label; at most "
            f"{self.shift.max():.3g} of the probability of a row moves."
        )

    def line(self, row: int) -> str:
        """The label of one row with its probability, before and after."""
        before, after = self.before[row], self.after[row]
        old, new = int(before.argmax()), int(after.argmax())
        return f"{self.classes[old]} {before[old]:.3f} → {self.classes[new]} {after[new]:.3f}"

    def table(self, n_rows: int = 10, names: Sequence[str] | None = None) -> str:
        """The sentence, and the rows that move most: those first whose label would change.

        `names` (n,) says what the rows are called, by default "row 0" and so on.
        """
        is_changed = np.isin(np.arange(len(self.shift)), self.changed)
        order = np.lexsort((-self.shift, ~is_changed))
        shown = [row for row in order[:n_rows].tolist() if self.shift[row] > 0]
        called = [f"row {row}" if names is None else names[row] for row in shown]
        lines = [f"  {name}: {self.line(row)}" for name, row in zip(called, shown, strict=True)]
        return "\n".join([self.sentence(), *lines])

    def __str__(self) -> str:
        return self.table()


def what_if(
    clf: AttnKNNClassifier,
    X: Any,
    *,
    forget: ArrayLike | None = None,
    relabel: Mapping[Any, Any] | None = None,
    add: tuple[Any, Any] | AddedRows | None = None,
) -> WhatIf:
    """The answers for `X` if entries were relabeled, forgotten or added; nothing is changed.

    Exact: `after` is what `predict_proba` gives once the same edits are made in this order,
    relabel, forget, add. What an edit does not move (encoder, projections, temperatures, label
    noise) does not move here either. With an approximate memory it is exact within its recall.

    Parameters
    ----------
    clf : fitted
    X : rows to ask about
    forget : ids to forget
    relabel : the new label by id
    add : a pair (X, y) of rows and their labels, which come last in ties of distance; or
        `AddedRows`, with ids, groups, sample weight or subjects too

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> found = what_if(clf, [[0.5]], relabel={0: "b", 1: "b"})
    >>> found.classes[found.before.argmax(axis=1)], found.classes[found.after.argmax(axis=1)]
    (array(['a'], dtype='<U1'), array(['b'], dtype='<U1'))
    >>> clf.predict([[0.5]]).tolist()
    ['a']
    """
    before = clf.predict_proba(X)
    edited = _edited(clf, forget, relabel or {}, add)
    after = edited.predict_proba(X)
    return WhatIf(edited.classes_, _widened(before, clf.classes_, edited.classes_), after)


def _edited(
    clf: AttnKNNClassifier,
    forget: ArrayLike | None,
    relabel: Mapping[Any, Any],
    add: tuple[Any, Any] | AddedRows | None,
) -> AttnKNNClassifier:
    """A classifier with the edits made. Edits copy and then swap, so `clf` keeps its parts."""
    gone = [] if forget is None else np.atleast_1d(np.asarray(forget)).tolist()
    both = [name for name in gone if name in relabel]
    if both:
        raise InvalidInputError(f"`forget` and `relabel` must differ, {both[0]!r} is in both.")
    if not (gone or relabel) and add is None:
        raise InvalidInputError("Give `forget`, `relabel` or `add`: there is no edit to try.")
    edited = copy(clf)
    if relabel:
        edited.relabel(list(relabel), list(relabel.values()))
    if gone:
        edited.forget(gone)
    if add is not None:
        rows = _rows_of(add)
        if rows.ids is None:
            rows = replace(rows, ids=_ids_of_texts(clf, len(rows.y)))
        edited.add(rows.X, rows.y, **rows.told)
    return edited


def _rows_of(add: Any) -> AddedRows:
    if isinstance(add, AddedRows):
        return add
    if not (isinstance(add, tuple) and len(add) == 2):
        came = f"{type(add).__name__} of {len(add)}" if hasattr(add, "__len__") else repr(add)
        raise InvalidInputError(
            f"`add` must be a pair (X, y) of rows and labels, or `AddedRows`, got a {came}."
        )
    return AddedRows(*add)


def _ids_of_texts(clf: AttnKNNClassifier, n_rows: int) -> list[str] | None:
    """Where ids are texts, some that come after all others, as new numbers do; else None."""
    if clf.memory_.entries.ids.dtype != object:
        return None
    return [f"{LAST_LETTER}{row:09d}" for row in range(n_rows)]


def _widened(before: Floats, known: NDArray[Any], classes: NDArray[Any]) -> Floats:
    """The columns of `known` classes among all `classes`, zero for the others."""
    place = {label: code for code, label in enumerate(classes.tolist())}
    wide = np.zeros((len(before), len(classes)))
    wide[:, [place[label] for label in known.tolist()]] = before
    return wide


def _counted(n_rows: int) -> str:
    return f"{n_rows:,} {'row' if n_rows == 1 else 'rows'}"
