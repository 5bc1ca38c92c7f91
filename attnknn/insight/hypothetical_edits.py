"""What-if: predictions after an edit that is computed but not made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn import _display
from attnknn._escape import visible
from attnknn.errors import InvalidInputError
from attnknn.records import Floats, Integers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from attnknn.classifier import AttnKNNClassifier

LAST_LETTER = "\U0010ffff"  # sorts after every other


@dataclass(frozen=True, eq=False)
class AddedRows:
    """Rows to add in `what_if`, with the same metadata as in `AttnKNNClassifier.add`.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,)
        Labels.
    ids, groups, sample_weight, payloads, subjects : array-like of shape (n_rows,), default=None
        Row metadata as in `AttnKNNClassifier.add`.

    Examples
    --------
    >>> AddedRows([[0.5]], ["a"], sample_weight=[2.0]).metadata["sample_weight"]
    [2.0]
    """

    X: Any
    y: Any
    ids: Any = None
    groups: Any = None
    sample_weight: Any = None
    payloads: Any = None
    subjects: Any = None

    @property
    def metadata(self) -> dict[str, Any]:
        """The arguments of `add` other than rows and labels, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("X", "y")}


@dataclass(frozen=True, eq=False)
class WhatIf:
    """Predictions for n rows before and after a hypothetical edit.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Classes after the edit. A class that the edit adds has probability 0 before it.
    before, after : ndarray of shape (n_rows, n_classes)
        Class probabilities without and with the edit.

    Examples
    --------
    >>> tried = WhatIf(np.array(["a", "b"]), np.array([[0.8, 0.2]]), np.array([[0.3, 0.7]]))
    >>> print(tried)
    1 of 1 row would change the label; at most 0.5 of the probability of a row moves.
      row 0: a 0.800 → b 0.700
    """

    classes: NDArray[Any]
    before: Floats
    after: Floats

    @property
    def changed(self) -> Integers:
        """Positions of the rows whose predicted label would change."""
        return np.flatnonzero(self.before.argmax(axis=1) != self.after.argmax(axis=1))

    @property
    def shift(self) -> Floats:
        """Probability of each row that would move to other classes, from 0 to 1."""
        return np.abs(self.after - self.before).sum(axis=1) / 2

    def sentence(self) -> str:
        """Summarize the effect of the edit in one sentence.

        Returns
        -------
        str
            How many labels would change, and the largest shift of probability.
        """
        n_rows, n_changed = len(self.before), len(self.changed)
        rows = f"{n_rows:,} {'row' if n_rows == 1 else 'rows'}"
        if not self.shift.any():
            return f"Nothing would change for {rows}."
        return (
            f"{n_changed:,} of {rows} would change the label; at most "
            f"{self.shift.max():.3g} of the probability of a row moves."
        )

    def line(self, row: int) -> str:
        """Format the prediction for one row before and after the edit.

        Parameters
        ----------
        row : int
            Position of the row.

        Returns
        -------
        str
            Label and probability before → label and probability after.
        """
        before, after = self.before[row], self.after[row]
        old, new = int(before.argmax()), int(after.argmax())
        labels = visible(self.classes[old]), visible(self.classes[new])
        return f"{labels[0]} {before[old]:.3f} → {labels[1]} {after[new]:.3f}"

    def table(self, n_rows: int = 10, names: Sequence[str] | None = None) -> str:
        """Format the sentence and the rows that change most.

        Parameters
        ----------
        n_rows : int, default=10
            Rows to list; those with a new label first, then by falling shift.
        names : sequence of str, default=None
            Name of each row; None writes "row 0" and so on.

        Returns
        -------
        str
            One line per row below the sentence.
        """
        shown = [row for row in self._order()[:n_rows].tolist() if self.shift[row] > 0]
        called = [f"row {row}" if names is None else visible(names[row]) for row in shown]
        lines = [f"  {name}: {self.line(row)}" for name, row in zip(called, shown, strict=True)]
        return "\n".join([self.sentence(), *lines])

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per row of `X`.

        Returns
        -------
        pandas.DataFrame
            Columns label_before, probability_before, label_after, probability_after, is_changed
            and shift.
        """
        import pandas as pd

        before, after = self.before.argmax(axis=1), self.after.argmax(axis=1)
        return pd.DataFrame(
            {
                "label_before": self.classes[before],
                "probability_before": self.before.max(axis=1),
                "label_after": self.classes[after],
                "probability_after": self.after.max(axis=1),
                "is_changed": before != after,
                "shift": self.shift,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the probability of the current label of each row before and after the edit.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes. Rows whose label would change have a different color.
        """
        ax = _display.axes(ax, "`WhatIf.plot`")
        rows, label = np.arange(len(self.before)), self.before.argmax(axis=1)
        colors = np.where(np.isin(rows, self.changed), "C3", "C0")
        ax.scatter(self.before[rows, label], self.after[rows, label], s=12, c=colors)
        ax.axline((0, 0), (1, 1), color="gray", linewidth=0.8)
        ax.set_xlabel("probability of the current label before the edit")
        ax.set_ylabel("after the edit")
        return ax

    def _order(self) -> Integers:
        is_changed = np.isin(np.arange(len(self.shift)), self.changed)
        return np.lexsort((-self.shift, ~is_changed))

    def _repr_html_(self) -> str:
        shown = [row for row in self._order()[:10].tolist() if self.shift[row] > 0]
        rows = [[f"row {row}", self.line(row), _display.bar(self.shift[row])] for row in shown]
        table = _display.table(["row", "prediction", "probability that moves"], rows)
        return _display.page("What if", self.sentence(), table if rows else "")

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
    """Predict `X` as if entries had been relabeled, forgotten or added, without changing anything.

    Exact: `after` equals `predict_proba` after the same edits in the order relabel, forget, add.
    Encoder, learned attention, temperatures and label noise stay as fitted, as they do in an edit.
    With an approximate memory the result is exact up to its recall.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier.
    X : array-like of shape (n_rows, n_features)
        Rows to predict.
    forget : array-like, default=None
        Ids of entries to forget.
    relabel : mapping, default=None
        New label by id.
    add : tuple of (X, y) or AddedRows, default=None
        Rows and labels to add, as `AddedRows` with ids, groups, sample weights or subjects. They
        rank last among neighbors of equal distance.

    Returns
    -------
    WhatIf
        Probabilities before and after.

    Raises
    ------
    InvalidInputError
        If no edit is given, or an id is both in `forget` and `relabel`.

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
    wide = np.zeros((len(before), len(edited.classes_)))
    wide[:, np.isin(edited.classes_, clf.classes_)] = before  # both are sorted
    return WhatIf(edited.classes_, wide, edited.predict_proba(X))


def _edited(
    clf: AttnKNNClassifier,
    forget: ArrayLike | None,
    relabel: Mapping[Any, Any],
    add: tuple[Any, Any] | AddedRows | None,
) -> AttnKNNClassifier:
    """A classifier with the edits made. Edits copy and then swap, so `clf` keeps its parts."""
    forgotten = [] if forget is None else np.atleast_1d(np.asarray(forget)).tolist()
    both = [name for name in forgotten if name in relabel]
    if both:
        raise InvalidInputError(f"`forget` and `relabel` must differ, {both[0]!r} is in both.")
    if not (forgotten or relabel) and add is None:
        raise InvalidInputError("Give `forget`, `relabel` or `add`: there is no edit to try.")
    edited = copy(clf)
    edited.model_ = replace(edited.model_)  # without caches: `clf` keeps its neighbor graph
    if relabel:
        edited.relabel(list(relabel), list(relabel.values()))
    if forgotten:
        edited.forget(forgotten)
    if add is not None:
        rows = _added_rows(add)
        if rows.ids is None and clf.memory_.entries.ids.dtype == object:
            ids = [f"{LAST_LETTER}{row:09d}" for row in range(len(rows.y))]  # after all others
            rows = replace(rows, ids=ids)
        edited.add(rows.X, rows.y, **rows.metadata)
    return edited


def _added_rows(add: Any) -> AddedRows:
    if isinstance(add, AddedRows):
        return add
    if not (isinstance(add, tuple) and len(add) == 2):
        got = f"{type(add).__name__} of {len(add)}" if hasattr(add, "__len__") else repr(add)
        raise InvalidInputError(
            f"`add` must be a pair (X, y) of rows and labels, or `AddedRows`, got a {got}."
        )
    return AddedRows(*add)
