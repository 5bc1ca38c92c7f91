"""Prediction sets: the record, and how scores become members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn import _display
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ROUNDING = 1e-9  # sums of equal votes in another order differ by less
MAX_SHOWN = 10  # sets in HTML


@dataclass(frozen=True)
class PredictionSets:
    """The result of `AttnKNNClassifier.predict_set`: a set of plausible classes for each row.

    A set may contain all classes, or none. An empty set means that no class reaches the probability
    that true labels usually have, as in a region between classes or far from all entries. Increase
    the coverage, use `allow_empty=False`, or treat the row as unknown.

    Attributes
    ----------
    members : ndarray of shape (n_rows, n_classes)
        True where a class is in the set of a row.
    classes : ndarray of shape (n_classes,)
        Classes in the order of the columns.
    coverage : float
        Share of sets that should contain the true class.
    by_class : bool, default=False
        Whether the coverage applies to the rows of each class, and not only on average.
    method : str, default="leave_one_out"
        'leave_one_out', 'split' or 'jackknife+'; see `AttnKNNClassifier.predict_set`.
    thresholds : ndarray of shape (n_classes,) or None, default=None
        Largest score of a member of each class; None for 'jackknife+'.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[True, False], [True, True]]), np.array(["a", "b"]), 0.9)
    >>> sets.labels(), sets.sizes.tolist()
    ([['a'], ['a', 'b']], [1, 2])
    """

    members: Booleans
    classes: NDArray[Any]
    coverage: float
    by_class: bool = False
    method: str = "leave_one_out"
    thresholds: Floats | None = None

    def labels(self) -> list[list[Any]]:
        """List the labels in the set of each row.

        Returns
        -------
        list of list
            Labels in the order of `classes`.
        """
        return [self.classes[row].tolist() for row in self.members]

    @property
    def sizes(self) -> Integers:
        """Number of classes in each set."""
        return self.members.sum(axis=1).astype(np.int64)

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per set.

        Returns
        -------
        pandas.DataFrame
            Columns labels (tuples) and size, and one boolean column `has_CLASS` per class.
        """
        import pandas as pd

        names = [f"has_{name}" for name in self.classes.tolist()]
        frame = pd.DataFrame({"labels": [tuple(set_) for set_ in self.labels()]})
        return frame.assign(size=self.sizes).join(pd.DataFrame(self.members, columns=names))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how many sets have each size.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with one bar per size.
        """
        ax = _display.axes(ax, "`PredictionSets.plot`")
        counts = np.bincount(self.sizes)
        ax.bar(range(len(counts)), counts)
        ax.set_xticks(range(len(counts)))
        ax.set_xlabel("classes in the set")
        ax.set_ylabel("sets")
        ax.set_title(self._title())
        return ax

    def _title(self) -> str:
        return f"Prediction sets, coverage {self.coverage:g}{' by class' * self.by_class}"

    def _repr_html_(self) -> str:
        n_rows, counts = max(1, len(self)), np.bincount(self.sizes)
        sizes = [[size, _display.bar(n / n_rows), int(n)] for size, n in enumerate(counts) if n]
        shown = [
            [row, ", ".join(map(str, labels)) or "∅"]
            for row, labels in enumerate(self.labels()[:MAX_SHOWN])
        ]
        more = f"… and {len(self) - MAX_SHOWN:,} more rows" if len(self) > MAX_SHOWN else ""
        return _display.page(
            f"{self._title()}, method {self.method}",
            _display.table(["size", "share of rows", "rows"], sizes),
            _display.table(["row", "set"], shown),
            _display.note(more) if more else "",
            _display.note(self._about_empty_sets()),
        )

    def __str__(self) -> str:
        sizes = ", ".join(f"{size} ({n:,})" for size, n in enumerate(np.bincount(self.sizes)) if n)
        lines = [self._title(), f"method {self.method}; sizes (rows): {sizes or 'no rows'}"]
        return "\n".join(filter(None, [*lines, self._about_empty_sets()]))

    def _about_empty_sets(self) -> str:
        n_empty = int((self.sizes == 0).sum())
        if not n_empty:
            return ""
        return (
            f"Empty sets: {n_empty:,}. In these rows no class reaches the probability that true "
            "labels usually have. Increase `coverage`, or pass `allow_empty=False` to include the "
            "most probable class."
        )

    def __len__(self) -> int:
        return len(self.members)


def members(scores: Floats, thresholds: Floats) -> Booleans:
    """Select the labels whose score is at most the threshold of their class.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_classes)
        Scores of the labels; a label with a higher score fits worse.
    thresholds : ndarray of shape (n_classes,)
        Largest score of a member of each class.

    Returns
    -------
    ndarray of shape (n_rows, n_classes)
        True where a class is in the set of a row.

    Examples
    --------
    >>> members(np.array([[0.1, 0.9], [0.5, 0.5]]), np.array([0.5, 0.5])).tolist()
    [[True, False], [True, True]]
    """
    return scores <= thresholds + ROUNDING
