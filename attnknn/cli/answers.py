"""The table of an audit, worked through by a person, becomes decisions about entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from attnknn.classifier import AttnKNNClassifier
from attnknn.cli.editing import LabelReader, as_id
from attnknn.cli.files import Part, Source
from attnknn.cli.files.base import check_column
from attnknn.cli.files.text import MISSING
from attnknn.errors import InvalidInputError

FORGET = "!forget"


@dataclass
class Decisions:
    """What a person decided: new labels by id, and ids to forget."""

    relabel: dict[Any, Any] = field(default_factory=dict)
    forget: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.relabel or self.forget)


class AnswerReader:
    """Reads the columns `id` and `decision`; refuses what has more than one meaning."""

    def __init__(self, classifier: AttnKNNClassifier, labels: LabelReader) -> None:
        entries = classifier.memory_.entries
        present = classifier.classes_[entries.labels].tolist()
        self._ids, self._labels = entries.ids, labels
        self._present = dict(zip(entries.ids.tolist(), present, strict=True))
        self._names_of_classes = {str(label) for label in labels.classes.tolist()}
        self._seen: set[Any] = set()

    def read(self, source: Source) -> Decisions:
        """The decisions that change something."""
        for name in ("id", "decision"):
            check_column(source, name)
        decisions = Decisions()
        for part in source.parts():
            if part.is_text:
                self._refuse_unreadable(source)
            for row in range(len(part)):
                decision = _text(part, "decision", row)
                if decision:
                    self._note(decisions, decision, part, row)
        return decisions

    def _refuse_unreadable(self, source: Source) -> None:
        """A class that text files write for what is missing could not be told from no decision."""
        unreadable = sorted(self._names_of_classes & MISSING)
        if unreadable:
            raise InvalidInputError(
                f"{source.path} cannot say the class {unreadable[0]!r}, which means a gap in text "
                "files. Write the table with `attnknn audit -o audit.parquet`."
            )

    def _note(self, decisions: Decisions, decision: str, part: Part, row: int) -> None:
        place = part.place(row).capitalize()
        name = self._name(part, row, place)
        if self._is_to_go(decision, place):
            self._refuse_outdated(name, part, row, place)
            decisions.forget.append(name)
            return
        label = self._labels.read(decision, place)
        if label != self._present[name]:  # else it is so already: a table may be applied twice
            self._refuse_outdated(name, part, row, place)
            decisions.relabel[name] = label

    def _name(self, part: Part, row: int, place: str) -> Any:
        name = as_id(_text(part, "id", row), self._ids)
        if name not in self._present:
            raise InvalidInputError(
                f"{place} names the id {name!r}, which the model does not hold."
            )
        if name in self._seen:
            raise InvalidInputError(f"{place} decides about the id {name!r} a second time.")
        self._seen.add(name)
        return name

    def _is_to_go(self, decision: str, place: str) -> bool:
        if decision == FORGET and FORGET in self._names_of_classes:
            raise InvalidInputError(
                f"{place} says {FORGET}, which is also a class of this model. Forget with "
                "`attnknn forget`; give this label in Python."
            )
        if decision.lower() == FORGET[1:] and decision not in self._names_of_classes:
            raise InvalidInputError(
                f"{place} says {decision!r}; to forget an entry, write {FORGET}."
            )
        return decision == FORGET

    def _refuse_outdated(self, name: Any, part: Part, row: int, place: str) -> None:
        """An error where the table shows another label than the entry has by now."""
        shown = _text(part, "label", row) if "label" in part.table.columns else ""
        present = str(self._present[name])
        if shown and shown != present:
            raise InvalidInputError(
                f"{place} shows the label {shown!r}, but the entry has {present!r} by now: the "
                "table is older than the model. Audit it again."
            )


def _text(part: Part, name: str, row: int) -> str:
    """A cell as a text; empty where it is missing."""
    value = part.table[name].iloc[row]
    return "" if pd.isna(value) else str(value).strip()
