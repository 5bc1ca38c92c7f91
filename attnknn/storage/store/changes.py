"""What an edit has changed, found by comparing a classifier with what the store holds of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.memory import Entries
from attnknn.memory.entries import NOBODY
from attnknn.records import Booleans, Integers
from attnknn.storage.packing import EncoderParts, entry_lines, pack_parts
from attnknn.storage.writing import files_of

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


@dataclass(frozen=True)
class Kept:
    """What a store knows of a classifier at one moment.

    Parameters
    ----------
    parts : the files of what was fitted, by name
    next_id : larger than every number that was an id
    """

    entries: Entries
    classes: NDArray[Any]
    parts: dict[str, bytes]
    next_id: int

    @classmethod
    def of(
        cls, classifier: AttnKNNClassifier, notes: dict[str, str], encoder: EncoderParts
    ) -> Kept:
        """Of a classifier as it is now."""
        contents = pack_parts(classifier, notes, encoder)
        memory = contents.settings["memory"]
        memory["least_next_id"] = 0  # it is not a fitted part
        parts = {name: b"".join(map(bytes, blocks)) for name, blocks in files_of(contents)}
        next_id = classifier._next_id()
        return cls(classifier.memory_.entries, classifier.classes_, parts, next_id)

    @property
    def texts(self) -> list[str]:
        """The classes as they are stored: 1, 1.0 and true are different ones."""
        return [json.dumps(label) for label in self.classes.tolist()]

    def labels(self, rows: Any = slice(None)) -> list[str]:
        """The labels of some entries as JSON, which the order of the classes does not change."""
        texts = self.texts
        return [texts[code] for code in self.entries.labels[rows].tolist()]


@dataclass(frozen=True)
class Change:
    """What became of the entries.

    Parameters
    ----------
    removed : (N before,) True for entries that are gone
    changed : positions after, of entries that have another label, sample weight or freshness, or
        whose label is written otherwise
    changed_before : positions before, of the same
    n_relabeled, n_weighed : how many of these have another label, another say
    added : positions after, of new entries
    parts : files that are new or others now
    dropped : names of files that are gone
    """

    removed: Booleans
    changed: Integers
    changed_before: Integers
    n_relabeled: int
    n_weighed: int
    added: Integers
    parts: dict[str, bytes]
    dropped: list[str]

    @property
    def is_none(self) -> bool:
        """Whether everything is as it was."""
        touched = self.removed.any() or len(self.changed) or len(self.added)
        return not (touched or self.parts or self.dropped)

    def words(self) -> str:
        """What was done, as 'Added 3 entries and forgot 1 entry'."""
        said = []
        for verb, n in (
            ("added", len(self.added)),
            ("relabeled", self.n_relabeled),
            ("forgot", int(self.removed.sum())),
            ("changed the say of", self.n_weighed),
        ):
            if n:
                said.append(f"{verb} {n:,} {'entry' if n == 1 else 'entries'}")
        if not said and (self.parts or self.dropped):
            said = ["fitted again"]
        words = " and ".join(said) or "changed nothing"
        return words[0].upper() + words[1:]

    @classmethod
    def between(cls, before: Kept, after: Kept) -> Change:
        """The change from one moment to another."""
        stays, n_same = _common(before.entries, after.entries)
        old, new = np.flatnonzero(stays), np.arange(n_same)
        is_relabeled, is_rewritten = (
            _recoded(*classes)[before.entries.labels[old]] != after.entries.labels[new]
            for classes in (
                (before.classes.tolist(), after.classes.tolist()),
                (before.texts, after.texts),
            )
        )
        is_weighed, is_judged = (
            getattr(before.entries, name)[old] != getattr(after.entries, name)[new]
            for name in ("effective_weight", "held_out")
        )
        is_changed = is_rewritten | is_weighed | is_judged
        return cls(
            removed=~stays,
            changed=new[is_changed],
            changed_before=old[is_changed],
            n_relabeled=int(is_relabeled.sum()),
            n_weighed=int(is_weighed.sum()),
            added=np.arange(n_same, len(after.entries)),
            parts={n: c for n, c in after.parts.items() if before.parts.get(n) != c},
            dropped=sorted(set(before.parts) - set(after.parts)),
        )


def rows_of(kept: Kept, positions: Integers) -> list[tuple[Any, ...]]:
    """The values of table `rows` without `seq` and checksum, for some entries."""
    entries = kept.entries.take(positions)
    n = len(entries)
    payloads = entry_lines(entries).get("payloads", [None] * n)
    subjects = [""] * n if entries.subjects is None else entries.subjects.tolist()
    embeddings = [row.astype("<f4").tobytes() for row in entries.embeddings]
    ids, groups = entries.ids.tolist(), entries.groups.tolist()
    return list(zip(ids, groups, subjects, payloads, embeddings, strict=True))


def versions_of(kept: Kept, positions: Integers) -> list[tuple[str, float, float, int]]:
    """The label, sample weight, what age left of it, and freshness of some entries."""
    entries = kept.entries.take(positions)
    decay = np.ones(len(entries)) if entries.decay is None else entries.decay
    numbers = entries.sample_weight.tolist(), decay.tolist(), entries.held_out.astype(int).tolist()
    return list(zip(kept.labels(positions), *numbers, strict=True))


def sha256_of(content: bytes) -> str:
    """The checksum of a part."""
    return hashlib.sha256(content).hexdigest()


def _common(before: Entries, after: Entries) -> tuple[Booleans, int]:
    """Which entries of before are still there, and how many that makes at the start of after.

    Edits remove entries and append others. An entry that was removed and came back is another one:
    it stands out of order, or has other contents.
    """
    stays = np.zeros(len(before), dtype=bool)
    if before.ids is after.ids and before.embeddings is after.embeddings:
        return ~stays, len(before)
    place = _places(before.ids, after.ids)
    is_next = np.concatenate([[True], place[1:] > place[:-1]])[: len(place)] & (place >= 0)
    n_same = len(place) if is_next.all() else int(is_next.argmin())
    is_same = _have_same_contents(before.take(place[:n_same]), after.take(np.arange(n_same)))
    n_same = n_same if is_same.all() else int(is_same.argmin())
    stays[place[:n_same]] = True
    return stays, n_same


def _places(before: NDArray[Any], after: NDArray[Any]) -> Integers:
    """Where each id of after was before; -1: nowhere."""
    if before.dtype == object or after.dtype == object:
        known = {name: place for place, name in enumerate(before.tolist())}
        return np.array([known.get(name, -1) for name in after.tolist()], dtype=np.int64)
    order = np.argsort(before, kind="stable")
    found = np.searchsorted(before, after, sorter=order)
    place = order[np.minimum(found, len(order) - 1)] if len(order) else found
    is_known = np.zeros(len(after), dtype=bool) if not len(order) else before[place] == after
    return np.where(is_known, place, -1)


def _have_same_contents(one: Entries, other: Entries) -> Booleans:
    """Which entries (n,) have the same embedding, group, subject and payload."""
    same = (one.embeddings == other.embeddings).all(axis=1) & (one.groups == other.groups)
    for name, missing in (("subjects", NOBODY), ("payloads", None)):
        mine, theirs = (_filled(getattr(entries, name), missing, same) for entries in (one, other))
        same &= np.array(list(map(_is_same, mine, theirs)), dtype=bool)
    return same


def _filled(column: NDArray[Any] | None, missing: str | None, like: Booleans) -> list[Any]:
    """A column that may be missing, as it would be stored."""
    return [missing] * len(like) if column is None else column.tolist()


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are written alike: 1, 1.0 and True are equal but not the same."""
    return one is other or (one == other and repr(one) == repr(other))


def _recoded(before: list[Any], after: list[Any]) -> Integers:
    """The code after of each code before; -1 for a class that is gone."""
    place = {label: code for code, label in enumerate(after)}
    return np.array([place.get(label, -1) for label in before], dtype=np.int64)
