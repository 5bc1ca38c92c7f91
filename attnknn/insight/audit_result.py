"""The result of an audit, entry by entry, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn import _display
from attnknn._escape import visible
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAX_LABEL = 16  # characters in the text table


@dataclass(frozen=True, eq=False)
class Audit:
    """Label errors, duplicates and values of N entries, in the order of the memory.

    Attributes
    ----------
    ids, labels : ndarray of shape (n_entries,)
        Ids and labels of the entries.
    wrong : ndarray of shape (n_entries,)
        Probability that the label is wrong: 1 − (1 − ε) p_y / q_y, with the leave-one-out
        probability p_y of the label and q_y of observing it. It is NaN for every entry if `fit`
        found no label noise or could not estimate it, and with `label_noise=None`; 0 if corrections
        left less than one wrong label in all.
    label_error_score : ndarray of shape (n_entries,)
        1 − p_y, the leave-one-out probability of all other labels. It ranks entries with and
        without label noise. It is not the probability of an error: rare and ambiguous entries have
        high scores, too.
    suggested : ndarray of shape (n_entries,)
        Most probable true label given the other entries and the observed label. With ε = 0 it is
        the leave-one-out prediction.
    suggested_probability : ndarray of shape (n_entries,)
        Probability of `suggested`.
    value : ndarray of shape (n_entries,)
        By how much the vote of the entry lowers the summed log-loss of the other entries, in nats.
        Entries with negative values are harmful.
    contradicted_by : tuple of ndarray
        For each entry the ids of up to three neighbors with the largest weights among those with
        another label.
    exact_duplicates, near_duplicates : tuple of frozenset
        Sets of ids of entries with the same embedding, and of entries linked by distances of at
        most `near_distance`, whatever their labels.
    near_distance : float
        Largest distance between near duplicates.
    label_noise : float
        ε, the estimated share of wrong labels; 0 if none were found, NaN without an estimate.
    no_probabilities : str
        Why `wrong` is NaN; empty if it is not.
    held_out : ndarray of shape (n_entries,)
        False for entries that learned attention or an encoder was trained on. Their leave-one-out
        predictions are a little too good.
    payloads : ndarray of shape (n_entries,) or None
        What was stored with the entries to be shown, if anything was.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.insight import audit
    >>> X, y = [[0.0], [0.1], [0.2], [0.3], [4.0], [4.1]], ["a", "a", "b", "a", "b", "b"]
    >>> found = audit(AttnKNNClassifier(attention="distance").fit(X, y))
    >>> str(found.to_frame()["id"][0]), str(found.to_frame()["suggested"][0])
    ('2', 'a')
    """

    ids: NDArray[Any]
    labels: NDArray[Any]
    wrong: Floats
    label_error_score: Floats
    suggested: NDArray[Any]
    suggested_probability: Floats
    value: Floats
    contradicted_by: tuple[NDArray[Any], ...]
    exact_duplicates: tuple[frozenset[Any], ...]
    near_duplicates: tuple[frozenset[Any], ...]
    near_distance: float
    label_noise: float
    no_probabilities: str
    held_out: Booleans
    payloads: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def expected_wrong(self) -> float:
        """The expected number of wrong labels; NaN without probabilities."""
        return float(self.wrong.sum())

    @cached_property
    def order(self) -> Integers:
        """Positions of the entries by falling `wrong`, then by falling `label_error_score`."""
        return np.lexsort((-self.label_error_score, -np.nan_to_num(self.wrong)))

    @property
    def ranking(self) -> NDArray[Any]:
        """Ids of the entries in the order of `order`."""
        return self.ids[self.order]

    @cached_property
    def conflicts(self) -> tuple[frozenset[Any], ...]:
        """Sets of ids of exact duplicates with different labels: at least one label is wrong."""
        label = dict(zip(self.ids.tolist(), self.labels.tolist(), strict=True))
        return tuple(
            those for those in self.exact_duplicates if len({label[one] for one in those}) > 1
        )

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per entry, in the order of `ranking`.

        Returns
        -------
        pandas.DataFrame
            Columns id, label, suggested, suggested_probability, wrong, label_error_score, value,
            held_out; contradicted_by, duplicates and near_duplicates with tuples of ids;
            is_conflict, True for exact duplicates with different labels; payload, if there are any.
        """
        import pandas as pd

        names = self.ids.tolist()
        copies, near = _by_member(self.exact_duplicates), _by_member(self.near_duplicates)
        in_conflict = _by_member(self.conflicts)
        table = {
            "id": names,
            "label": self.labels.tolist(),
            "suggested": self.suggested.tolist(),
            "suggested_probability": self.suggested_probability,
            "wrong": self.wrong,
            "label_error_score": self.label_error_score,
            "value": self.value,
            "held_out": self.held_out,
            "contradicted_by": [tuple(those.tolist()) for those in self.contradicted_by],
            "duplicates": [copies.get(name, ()) for name in names],
            "near_duplicates": [near.get(name, ()) for name in names],
            "is_conflict": [name in in_conflict for name in names],
        }
        if self.payloads is not None:
            table["payload"] = self.payloads.tolist()
        return pd.DataFrame(table).iloc[self.order].reset_index(drop=True)

    def summary(self) -> str:
        """Format the main counts.

        Returns
        -------
        str
            Five lines: entries, wrong labels, exact duplicates, near duplicates, harmful entries.
        """
        return "\n".join(f"{name:<17} {text}" for name, text in self._counts().items())

    def table(self, n_entries: int = 10) -> str:
        """Format the summary and the entries to check first.

        Parameters
        ----------
        n_entries : int, default=10
            Entries to list.

        Returns
        -------
        str
            The summary, and one line per entry in the order of `ranking`, with its payload if
            there is one. `suggested` is blank where it equals the label, and there is no column
            `wrong` without probabilities.
        """
        wrong = "" if self.no_probabilities else f"  {'wrong':>5}"
        head = f"{wrong}  {'score':>5}  {'value':>7}  {'label':<16} {'suggested':<16} entry"
        lines = [self.summary(), "", head]
        for place in self.order[:n_entries]:
            is_same = self.suggested[place] == self.labels[place]
            suggested = "" if is_same else _short(self.suggested[place])
            wrong = "" if self.no_probabilities else f"  {self.wrong[place]:.3f}"
            lines.append(
                f"{wrong}  {self.label_error_score[place]:.3f}  "
                f"{self.value[place]:>7.2f}  {_short(self.labels[place]):<16} "
                f"{suggested:<16} #{visible(self.ids[place])}{self._payload(place)}"
            )
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the value of each entry over its label-error score.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes. Entries with a probability above ½ to be wrong have a color of their own;
            harmful entries are below the line.
        """
        ax = _display.axes(ax, "`Audit.plot`")
        is_wrong = self.wrong > 0.5
        kinds = [(~is_wrong, "C0", "probably right"), (is_wrong, "C3", "probably wrong")]
        if self.no_probabilities:
            kinds = [(~is_wrong, "C0", "entries")]
        for chosen, color, name in kinds:
            scores, value = self.label_error_score[chosen], self.value[chosen]
            ax.scatter(scores, value, s=8, color=color, label=f"{name} ({chosen.sum():,})")
        ax.axhline(0, color="gray", linewidth=0.8)
        ax.set_xlabel("label-error score")
        ax.set_ylabel("value (log-loss of the others)")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        summary = _display.table([], self._counts().items())
        shown = self.order[:10]
        n_hidden = 1 if self.no_probabilities else 0
        rows = [
            [
                _display.bar(self.wrong[place]),
                _display.bar(self.label_error_score[place], is_other=True),
                f"{self.value[place]:.2f}",
                str(self.labels[place]),
                f"{self.suggested[place]} ({self.suggested_probability[place]:.3f})",
                f"#{self.ids[place]}",
                *([] if self.payloads is None else [_display.payload_html(self.payloads[place])]),
            ][n_hidden:]
            for place in shown
        ]
        header = ["wrong", "label-error score", "value", "label", "suggested", "entry"][n_hidden:]
        header += [] if self.payloads is None else ["payload"]
        return _display.page("Audit", summary, _display.table(header, rows))

    def _payload(self, place: int) -> str:
        if self.payloads is None or self.payloads[place] is None:
            return ""
        return f"  {visible(_display.payload_text(self.payloads[place]))}"

    def _counts(self) -> dict[str, str]:
        n_exact, n_near = (
            sum(len(those) for those in sets)
            for sets in (self.exact_duplicates, self.near_duplicates)
        )
        if self.no_probabilities:
            labels = (
                f"no probabilities ({self.no_probabilities}); entries are ranked by label-error "
                "score"
            )
        elif self.label_noise == 0:
            labels = "less than 1 expected, entries are ranked by label-error score"
        else:
            labels = (
                f"{self.expected_wrong:,.1f} expected (label noise {self.label_noise:.3f}), "
                f"{int((self.wrong > 0.5).sum()):,} with a probability above 0.5"
            )
        return {
            "entries": f"{len(self):,}",
            "wrong labels": labels,
            "exact duplicates": f"{n_exact:,} entries in {len(self.exact_duplicates):,} sets, "
            f"{len(self.conflicts):,} of them with different labels (conflicts)",
            "near duplicates": f"{n_near:,} entries in {len(self.near_duplicates):,} sets, "
            f"within a distance of {self.near_distance:.4g}",
            "harmful entries": f"{int((self.value < 0).sum()):,}: their votes raise the log-loss "
            "of the others",
        }

    def __str__(self) -> str:
        return self.table()


def _by_member(sets: tuple[frozenset[Any], ...]) -> dict[Any, tuple[Any, ...]]:
    """For each id the sorted set that contains it."""
    ordered = [tuple(sorted(those)) for those in sets]
    return {one: those for those in ordered for one in those}


def _short(label: Any) -> str:
    text = visible(label)
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
