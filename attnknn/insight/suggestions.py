"""The rows to label next, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn import _display
from attnknn._escape import visible
from attnknn.records import Floats, Integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

UNSURE = 0.5  # difference of the two largest probabilities up to which a row is called unsure
NOVEL = 0.05  # p-value up to which a row is called unlike the entries
FEW = 2  # similar rows that are worth a word


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Rows of an unlabeled pool to label next, in the order of labeling.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Positions in the pool.
    scores : ndarray of shape (n,)
        Expected gain of each label, in the units of the strategy; with the default 1 is that of a
        row with two equally probable classes which is like no other row.
    predicted : ndarray of shape (n,)
        Most probable label of each row.
    confidence : ndarray of shape (n,)
        Probability of `predicted`.
    runner_up, runner_up_confidence : ndarray of shape (n,)
        Second most probable label, and its probability.
    novelty_p_values : ndarray of shape (n,)
        Share of entries that are at least as far from their nearest other entry as the row is from
        the memory. Small for rows unlike anything remembered.
    n_similar : ndarray of shape (n,)
        About how many other unlabeled rows are similar to the row.
    strategy : str
        How the rows were chosen.
    n_left : int
        Unlabeled rows that were considered, with the suggested ones.
    expected_accuracy : float
        Estimated accuracy on the rows that are considered and not suggested, for a curve over the
        number of labels; NaN without such rows. It is the mean probability of the predicted labels,
        corrected by leave-one-out predictions of the entries, each of which counts as much as there
        are rows to which it is nearest.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.insight import suggest
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="distance").fit(X[::10], y[::10])
    >>> found = suggest(clf, X, 2, strategy="margin")
    >>> found.reasons[0][:22]
    'unsure between 1 and 2'
    """

    rows: Integers
    scores: Floats
    predicted: NDArray[Any]
    confidence: Floats
    runner_up: NDArray[Any]
    runner_up_confidence: Floats
    novelty_p_values: Floats
    n_similar: Integers
    strategy: str
    n_left: int
    expected_accuracy: float

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def reasons(self) -> list[str]:
        """Why each row was suggested, in words; 'by its score' if nothing stands out."""
        return [self._reason(place) for place in range(len(self))]

    def sentence(self) -> str:
        """Summarize the suggestions in one sentence.

        Returns
        -------
        str
            How many rows, of how many, and the expected accuracy on the rest.
        """
        rows = f"{len(self):,} of {self.n_left:,} unlabeled rows to label next"
        if np.isnan(self.expected_accuracy):
            return f"{rows}."
        return f"{rows}; expected accuracy on the rest {self.expected_accuracy:.3f}."

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per suggestion.

        Returns
        -------
        pandas.DataFrame
            Columns row, score, predicted, confidence, runner_up, runner_up_confidence,
            novelty_p_value, n_similar and reason.
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "row": self.rows,
                "score": self.scores,
                "predicted": self.predicted,
                "confidence": self.confidence,
                "runner_up": self.runner_up,
                "runner_up_confidence": self.runner_up_confidence,
                "novelty_p_value": self.novelty_p_values,
                "n_similar": self.n_similar,
                "reason": self.reasons,
            }
        )

    def table(self, n_rows: int = 20, names: Sequence[str] | None = None) -> str:
        """Format the sentence and the first rows.

        Parameters
        ----------
        n_rows : int, default=20
            Rows to list.
        names : sequence of str, default=None
            Name of each suggested row; None writes "row 0" and so on.

        Returns
        -------
        str
            One line per row below the sentence.
        """
        called = [f"row {row}" for row in self.rows.tolist()] if names is None else list(names)
        lines = [self.sentence(), "", f"{'score':>6}  {'predicted':<24}  row"]
        for place in range(min(n_rows, len(self))):
            label = f"{self.confidence[place]:.2f} {visible(self.predicted[place])}"
            lines.append(
                f"{self.scores[place]:6.3f}  {label:<24}  {visible(called[place])}: "
                f"{visible(self.reasons[place])}"
            )
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the confidence of each suggested row over its novelty p-value.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes; the area of a point grows with the number of similar rows.
        """
        ax = _display.axes(ax, "`Suggestions.plot`")
        ax.scatter(self.novelty_p_values, self.confidence, s=12 * (1 + self.n_similar), alpha=0.6)
        ax.set_xlabel("novelty p-value")
        ax.set_ylabel("confidence")
        return ax

    def _reason(self, place: int) -> str:
        parts = []
        gap = self.confidence[place] - self.runner_up_confidence[place]
        if gap <= UNSURE and self.runner_up[place] != self.predicted[place]:
            parts.append(f"unsure between {self.predicted[place]} and {self.runner_up[place]}")
        if self.novelty_p_values[place] <= NOVEL:
            parts.append("unlike anything remembered")
        if self.n_similar[place] >= FEW:
            parts.append(f"similar to {self.n_similar[place]} other unlabeled rows")
        if self.strategy == "random":
            parts = ["drawn at random"]
        return ", ".join(parts) or "by its score"

    def _repr_html_(self) -> str:
        rows = [
            [
                int(row),
                float(self.scores[place]),
                str(self.predicted[place]),
                _display.bar(self.confidence[place]),
                self.reasons[place],
            ]
            for place, row in enumerate(self.rows)
        ]
        header = ["row", "score", "predicted", "confidence", "reason"]
        return _display.page("Suggestions", self.sentence(), _display.table(header, rows))

    def __str__(self) -> str:
        return self.table()
