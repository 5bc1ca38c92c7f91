"""Evidence: which entries voted for a prediction, for which labels, and with which weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn import _display
from attnknn._escape import visible
from attnknn.model import Answer, FittedModel
from attnknn.records import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAX_CLASSES = 3  # listed in the first line of a table
MAX_SHOWN = 10  # neighbors in HTML and plots


@dataclass(frozen=True)
class Evidence:
    """Why one row got its label: the neighbors that voted, their labels and weights.

    `shares[c] = sum(weights[labels == c]) + prior_weight * prior[c]` holds exactly over all
    neighbors. If `is_exact`, `probabilities` are the shares to the power of `exponent`, normalized.
    Otherwise a value head computed them from the same neighbors, and the vote alone might give
    another label.

    Attributes
    ----------
    label : object
        The predicted label.
    classes : ndarray of shape (n_classes,)
        Classes in the order of `probabilities`, `shares` and `prior`.
    probabilities : ndarray of shape (n_classes,)
        Calibrated class probabilities.
    shares : ndarray of shape (n_classes,)
        Share of each class in the weighted vote; they sum to one.
    ids : ndarray of shape (n_neighbors,)
        Ids of the neighbors, by falling weight.
    labels : ndarray of shape (n_neighbors,)
        Labels of the neighbors.
    weights : ndarray of shape (n_neighbors,)
        Weights of the neighbors in the vote; with `prior_weight` they sum to one.
    distances : ndarray of shape (n_neighbors,)
        Distances of the neighbors to the row.
    payloads : list or None
        Payloads of the neighbors, if the entries have any.
    prior_weight : float
        Weight of the prior, which votes for every class by its frequency.
    prior : ndarray of shape (n_classes,)
        Class frequencies of the memory.
    exponent : float
        Exponent γ of the probability map from `shares` to `probabilities`.
    is_exact : bool, default=True
        False where a value head computed the probabilities.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> evidence = clf.explain([[0.2]])[0]
    >>> str(evidence.label), evidence.ids.tolist()
    ('a', [0, 1, 2])
    >>> round(float(evidence.to_frame()["weight"].sum()), 6)
    1.0
    """

    label: Any
    classes: NDArray[Any]
    probabilities: Floats
    shares: Floats
    ids: NDArray[Any]
    labels: NDArray[Any]
    weights: Floats
    distances: Floats
    payloads: list[Any] | None
    prior_weight: float
    prior: Floats
    exponent: float
    is_exact: bool = True

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return float(self.probabilities.max())

    @property
    def remark(self) -> str:
        """A warning that a value head made the prediction; empty for exact evidence."""
        if self.is_exact:
            return ""
        powers = (self.shares / self.shares.max()) ** self.exponent
        best = int(powers.argmax())
        return (
            "Not exact evidence: a value head made the prediction from the neighbors below. "
            f"The vote alone predicts {self.classes[best]} ({powers[best] / powers.sum():.3f})."
        )

    def table(self, n_neighbors: int = 5) -> str:
        """Format the prediction and its evidence as a text table.

        Parameters
        ----------
        n_neighbors : int, default=5
            Neighbors to list, those with the largest weights first. The others are summed up.

        Returns
        -------
        str
            One line with the probabilities, one per neighbor, one for the prior.
        """
        n_shown = min(n_neighbors, len(self.ids))
        lines = [f"{visible(self.label)}  (probabilities: {self._top_probabilities()})"]
        lines += [] if self.is_exact else [f"  {self.remark}"]
        lines += [" weight  label         distance  entry"]
        for i in range(n_shown):
            payload = (
                ""
                if self.payloads is None
                else f"  {visible(_display.payload_text(self.payloads[i]))}"
            )
            lines.append(
                f"  {self.weights[i]:.3f}  {visible(self.labels[i]):<12} {self.distances[i]:9.4f}  "
                f"#{visible(self.ids[i])}{payload}"
            )
        if len(self.ids) > n_shown:
            n_rest = len(self.ids) - n_shown
            lines.append(f"  {self.weights[n_shown:].sum():.3f}  {n_rest} more neighbors")
        lines.append(f"  {self.prior_weight:.3f}  the prior (class frequencies)")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists and numbers, ready for JSON.

        Returns
        -------
        dict
            The attributes by name; probabilities, shares and prior are dicts by class.
        """
        payloads = {} if self.payloads is None else {"payloads": list(self.payloads)}
        remark = {} if self.is_exact else {"remark": self.remark}
        return {
            "label": self.label.item() if isinstance(self.label, np.generic) else self.label,
            "is_exact": self.is_exact,
            **remark,
            "probabilities": self._by_class(self.probabilities),
            "shares": self._by_class(self.shares),
            "exponent": self.exponent,
            "prior_weight": self.prior_weight,
            "prior": self._by_class(self.prior),
            "ids": self.ids.tolist(),
            "labels": self.labels.tolist(),
            "weights": self.weights.tolist(),
            "distances": self.distances.tolist(),
            **payloads,
        }

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per voter.

        Returns
        -------
        pandas.DataFrame
            Columns id, label, weight and distance, and payload if there are any. The last row is
            the prior, with missing id, label and distance; the weights sum to one.
        """
        import pandas as pd

        columns = {
            "id": [*self.ids.tolist(), None],
            "label": [*self.labels.tolist(), None],
            "weight": [*self.weights.tolist(), self.prior_weight],
            "distance": [*self.distances.tolist(), None],
        }
        if self.payloads is not None:
            columns["payload"] = [*self.payloads, None]
        return pd.DataFrame(columns, dtype=object).astype({"weight": float, "distance": float})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the largest weights as horizontal bars.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with the bars. Neighbors of the predicted label have a different color.
        """
        ax = _display.axes(ax, "`Evidence.plot`")
        shown = slice(0, MAX_SHOWN)
        names = [f"#{i}: {c}" for i, c in zip(self.ids[shown], self.labels[shown], strict=True)]
        weights = self.weights[shown].tolist()
        agrees = (self.labels[shown] == self.label).tolist()
        rest = self.weights[MAX_SHOWN:]
        if len(rest):
            names, weights = [*names, f"{len(rest)} more"], [*weights, float(rest.sum())]
        names, weights = [*names, "prior"], [*weights, self.prior_weight]
        colors = ["C0" if same else "C1" for same in agrees]
        colors += ["gray"] * (len(names) - len(colors))
        ax.barh(range(len(names)), weights, color=colors)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel("weight in the vote")
        ax.set_title(f"{self.label} ({self.probability:.3f})")
        return ax

    def _repr_html_(self) -> str:
        rows = []
        for i in range(min(MAX_SHOWN, len(self.ids))):
            payload = () if self.payloads is None else (_display.payload_html(self.payloads[i]),)
            label, distance = str(self.labels[i]), f"{self.distances[i]:.4g}"
            rows.append([_display.bar(self.weights[i]), label, distance, f"#{self.ids[i]}"])
            rows[-1] += payload
        rest = self.weights[MAX_SHOWN:]
        blank = [""] * (2 if self.payloads is None else 3)
        if len(rest):
            summed = _display.bar(rest.sum(), is_other=True)
            rows.append([summed, f"{len(rest)} more neighbors", *blank])
        prior = _display.bar(self.prior_weight, is_other=True)
        rows.append([prior, "prior (class frequencies)", *blank])
        header = ["weight", "label", "distance", "entry"]
        header += [] if self.payloads is None else ["payload"]
        remark = _display.note(self.remark) if self.remark else ""
        table = _display.table(header, rows)
        return _display.page(f"Prediction: {self.label}", self._top_probabilities(), remark, table)

    def _top_probabilities(self) -> str:
        ranked = np.argsort(-self.probabilities, kind="stable")[:MAX_CLASSES]
        return ", ".join(f"{visible(self.classes[c])} {self.probabilities[c]:.3f}" for c in ranked)

    def _by_class(self, values: Floats) -> dict[str, float]:
        return {str(name): float(v) for name, v in zip(self.classes, values, strict=True)}

    def __str__(self) -> str:
        return self.table()


def evidence_of(answer: Answer, row: int, model: FittedModel) -> Evidence:
    """The evidence of one row of an answer, neighbors by falling weight."""
    found = answer.neighbors
    weights = answer.weights.neighbors[row]
    present = np.flatnonzero(found.mask[row])
    order = present[np.argsort(-weights[present], kind="stable")]
    positions = found.positions[row, order]
    entries, classes = model.memory.entries, model.classes
    payloads = entries.payloads
    return Evidence(
        label=classes[answer.probabilities[row].argmax()],
        classes=classes,
        probabilities=answer.probabilities[row],
        shares=answer.shares[row],
        ids=entries.ids[positions],
        labels=classes[found.labels[row, order]],
        weights=weights[order],
        distances=found.distances[row, order],
        payloads=None if payloads is None else payloads[positions].tolist(),
        prior_weight=float(answer.weights.prior[row]),
        prior=answer.prior,
        exponent=model.view_calibration.exponent,
        is_exact=answer.is_exact,
    )
