"""What an audit found, entry by entry, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Audit:
    """N entries judged by the others; arrays are in the order they are remembered.

    Parameters
    ----------
    ids, labels : (N,) of the entries
    wrong : (N,) the probability that the label is wrong, P = 1 − (1 − ε) p_y / q_y, with the
        leave-one-out probability p_y of the label and q_y of observing it. It needs a label noise:
        where calibration found none (ε = 0, or less than one wrong label in all), or with
        `label_noise=None`, it is 0 for every entry
    label_error_score : (N,) 1 − p_y: the probability that the others give to other labels. It ranks
        entries with and without label noise, and is no probability that the label is wrong: rare
        and ambiguous entries have it too
    suggested : (N,) the most probable true label, given the others and the label observed; with
        ε = 0 the one that the others find most probable
    suggested_probability : (N,) of `suggested`
    value : (N,) by how much the vote of the entry lowers the log-loss of the others, in sum; below
        zero it does harm. The vote is taken out and its say shared by the other voters
    contradicted_by : for each entry, ids of up to three neighbors with the most say and another
        label
    exact_duplicates, near_duplicates : sets of ids; entries with the same embedding, and entries
        that are linked by distances up to `reach`, whatever their labels
    label_noise : ε, the share of labels that calibration takes to be wrong, 0 for none
    held_out : (N,) False for entries that learned attention or an encoder was trained on: these are
        judged a little too well
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
    reach: float
    label_noise: float
    held_out: Booleans

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def expected_wrong(self) -> float:
        """The expected number of wrong labels: the sum of their probabilities."""
        return float(self.wrong.sum())

    @cached_property
    def order(self) -> Integers:
        """(N,) places of the entries, the most probably wrong first, then the most suspicious."""
        return np.lexsort((-self.label_error_score, -self.wrong))

    @property
    def ranking(self) -> NDArray[Any]:
        """(N,) ids of the entries in that order."""
        return self.ids[self.order]

    @cached_property
    def conflicts(self) -> tuple[frozenset[Any], ...]:
        """Sets of ids of exact duplicates whose labels differ: at least one label is wrong."""
        label = dict(zip(self.ids.tolist(), self.labels.tolist(), strict=True))
        return tuple(
            those for those in self.exact_duplicates if len({label[one] for one in those}) > 1
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each entry, in the order of `ranking`.

        Columns: id, label, suggested, suggested_probability, wrong, suspicion, value, fresh, and
        as tuples of ids contradicted_by, duplicates and near_duplicates (the set that the entry is
        in, empty for none); is_conflict where a copy carries another label.
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
        return pd.DataFrame(table).iloc[self.order].reset_index(drop=True)

    def summary(self) -> str:
        """What was found, in a few lines."""
        n_copies = sum(len(those) for those in self.exact_duplicates)
        n_near = sum(len(those) for those in self.near_duplicates)
        lines = {
            "entries": f"{len(self):,}",
            "wrong labels": self._words_on_labels(),
            "exact duplicates": f"{n_copies:,} entries, sets of them: "
            f"{len(self.exact_duplicates):,}, with different labels (conflicts): "
            f"{len(self.conflicts):,}",
            "near duplicates": f"{n_near:,} entries, sets of them: {len(self.near_duplicates):,}, "
            f"within a distance of {self.reach:.4g}",
            "harmful votes": f"{int((self.value < 0).sum()):,}: without them the others would be "
            "judged better",
        }
        return "\n".join(f"{name:<17} {text}" for name, text in lines.items())

    def table(self, n_entries: int = 10) -> str:
        """The summary, and the entries to look at first."""
        head = (
            f"  {'wrong':>5}  {'suspicion':>9}  {'value':>7}  {'label':<16} {'suggested':<16} entry"
        )
        lines = [self.summary(), "", head]
        for place in self.order[:n_entries]:
            lines.append(
                f"  {self.wrong[place]:.3f}  {self.label_error_score[place]:>9.3f}  "
                f"{self.value[place]:>7.2f}  {_short(self.labels[place]):<16} "
                f"{_short(self.suggested[place]):<16} #{self.ids[place]}"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _words_on_labels(self) -> str:
        if self.label_noise == 0:
            return "none expected, as no label noise is modeled; entries are ranked by suspicion"
        n_likely = int((self.wrong > 0.5).sum())
        return (
            f"{self.expected_wrong:,.1f} expected (label noise {self.label_noise:.3f}), "
            f"{n_likely:,} more likely wrong than right"
        )


def _by_member(sets: tuple[frozenset[Any], ...]) -> dict[Any, tuple[Any, ...]]:
    """For each id the sorted set it is in."""
    ordered = [tuple(sorted(those)) for those in sets]
    return {one: those for those in ordered for one in those}


def _short(label: Any, longest: int = 16) -> str:
    text = str(label)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
