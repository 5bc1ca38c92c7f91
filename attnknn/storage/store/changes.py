"""Find what an edit changed in a classifier, and write it to the store in one transaction."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.editing import next_id
from attnknn.memory import Entries
from attnknn.memory.entries import NOBODY
from attnknn.records import Booleans, Floats, Integers
from attnknn.storage.files import write_manifest
from attnknn.storage.folder import STORE_VERSION
from attnknn.storage.packing import EncoderParts, entry_lines, pack_parts
from attnknn.storage.store.history import EditRecord, now, write_log
from attnknn.storage.store.schema import acknowledged, create_store
from attnknn.storage.store.state import TRUST, digest_of, trust_to_bytes

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


@dataclass(frozen=True)
class ModelState:
    """Everything that a store holds of a classifier at one moment.

    Parameters
    ----------
    parts : the files of the fitted parts, by name
    next_id : larger than every integer that was an id
    """

    entries: Entries
    classes: NDArray[Any]
    parts: dict[str, bytes]
    next_id: int

    @classmethod
    def of(
        cls, classifier: AttnKNNClassifier, notes: dict[str, str], encoder: EncoderParts
    ) -> ModelState:
        """The current state of a classifier."""
        contents = pack_parts(classifier, notes, encoder)
        contents.settings["memory"]["least_next_id"] = 0  # the log has it; it is not fitted
        parts = {name: b"".join(map(bytes, blocks)) for name, blocks in contents.files()}
        model = classifier.model_
        return cls(model.memory.read(), model.classes, parts, next_id(model))

    @property
    def class_texts(self) -> list[str]:
        """The classes as JSON, in which 1, 1.0 and true differ."""
        return [json.dumps(label) for label in self.classes.tolist()]

    def rows(self, positions: Integers) -> list[tuple[Any, ...]]:
        """The values of table `rows` for some entries, without `seq` and checksum."""
        entries = self.entries.take(positions)
        n = len(entries)
        payloads = entry_lines(entries).get("payloads", [None] * n)
        subjects = [""] * n if entries.subjects is None else entries.subjects.tolist()
        embeddings = [row.astype("<f4").tobytes() for row in entries.embeddings]
        ids, groups = entries.ids.tolist(), entries.groups.tolist()
        return list(zip(ids, groups, subjects, payloads, embeddings, strict=True))

    def versions(self, positions: Integers) -> list[tuple[str, float, float, int]]:
        """The label, sample weight, decay and held-out flag of some entries."""
        entries, texts = self.entries.take(positions), self.class_texts
        labels = [texts[code] for code in entries.labels.tolist()]
        decay = np.ones(len(entries)) if entries.decay is None else entries.decay
        columns = entries.sample_weight, decay, entries.held_out.astype(int)
        return list(zip(labels, *(column.tolist() for column in columns), strict=True))


@dataclass(frozen=True)
class Change:
    """The difference between two states of a model.

    Parameters
    ----------
    removed : (N before,) True for removed entries
    changed : positions after the edit of entries whose label (or its JSON), weight or held-out flag
        changed
    changed_before : positions of the same entries before the edit
    n_relabeled, n_reweighted : how many of these have another label, another weight
    added : positions after the edit of new entries
    parts : files that are new or changed
    dropped : names of files that were removed
    """

    removed: Booleans
    changed: Integers
    changed_before: Integers
    n_relabeled: int
    n_reweighted: int
    added: Integers
    parts: dict[str, bytes]
    dropped: list[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        has_entries = self.removed.any() or len(self.changed) or len(self.added)
        return not (has_entries or self.parts or self.dropped)

    def message(self) -> str:
        """A summary for the log, such as 'Added 3 entries and forgot 1 entry'."""
        counts = {
            "added": len(self.added),
            "relabeled": self.n_relabeled,
            "forgot": int(self.removed.sum()),
            "changed the weight of": self.n_reweighted,
        }
        phrases = [f"{verb} {count_entries(n)}" for verb, n in counts.items() if n]
        if not phrases and (self.parts or self.dropped):
            phrases = ["refitted"]
        message = " and ".join(phrases) or "changed nothing"
        return message[0].upper() + message[1:]

    @classmethod
    def between(cls, before: ModelState, after: ModelState) -> Change:
        """The change from one state to another."""
        stays, n_same = _common(before.entries, after.entries)
        old, new = np.flatnonzero(stays), np.arange(n_same)
        is_relabeled, is_rewritten = (
            _recode(*classes)[before.entries.labels[old]] != after.entries.labels[new]
            for classes in (
                (before.classes.tolist(), after.classes.tolist()),
                (before.class_texts, after.class_texts),
            )
        )
        is_reweighted, is_moved = (
            getattr(before.entries, name)[old] != getattr(after.entries, name)[new]
            for name in ("effective_weight", "held_out")
        )
        is_changed = is_rewritten | is_reweighted | is_moved
        return cls(
            removed=~stays,
            changed=new[is_changed],
            changed_before=old[is_changed],
            n_relabeled=int(is_relabeled.sum()),
            n_reweighted=int(is_reweighted.sum()),
            added=np.arange(n_same, len(after.entries)),
            parts={n: c for n, c in after.parts.items() if before.parts.get(n) != c},
            dropped=sorted(set(before.parts) - set(after.parts)),
        )


def count_entries(n: int) -> str:
    """A number of entries as text.

    >>> count_entries(1), count_entries(2000)
    ('1 entry', '2,000 entries')
    """
    return f"{n:,} {'entry' if n == 1 else 'entries'}"


def first_record(n_entries: int, by: str) -> EditRecord:
    """The first line of the log of a store."""
    message = f"Opened for editing with {n_entries:,} entries"
    return EditRecord(0, 0, now(), by, "create", message)


def write_store(folder: Path, state: ModelState, trust: Floats | None, record: EditRecord) -> None:
    """Create a store in an empty folder, with the current state as edit 0."""
    database = create_store(folder)
    try:
        with acknowledged(database):
            _insert_rows(database, state, np.arange(len(state.entries)), 0, first_seq=0)
            for name, content in state.parts.items():
                _insert_part(database, name, content, 0, 0)
            write_log(database, record, state.next_id)
            if trust is not None:
                write_trust(database, trust, 0)
    finally:
        database.close()
    write_manifest(folder, {"version": STORE_VERSION, "files": {}})


def write_change(
    database: sqlite3.Connection,
    change: Change,
    state: ModelState,
    seqs: Integers,
    head: int,
    *,
    by: str,
    message: str,
    is_refit: bool,
) -> Integers:
    """Commit a change; returns the seqs of the entries after it.

    Parameters
    ----------
    state : the state after the change
    seqs : of the entries before the change, in their order
    head : the edit that this one follows; it must still be the last one
    is_refit : whether parts were fitted again, not only extended by a class
    """
    edit, changed = head + 1, seqs[change.changed_before]
    ended = np.concatenate([seqs[change.removed], changed])
    with acknowledged(database, head):
        database.executemany(
            "update versions set until = ? where seq = ? and until is null",
            [(edit, seq) for seq in ended.tolist()],
        )
        versions = zip(changed.tolist(), state.versions(change.changed), strict=True)
        _insert_versions(database, edit, versions)
        last = database.execute("select coalesce(max(seq), -1) from rows").fetchone()[0]
        added = _insert_rows(database, state, change.added, edit, first_seq=last + 1)
        for name in change.dropped:
            _end_part(database, name, edit)
        for name, content in change.parts.items():
            fitted_in = _end_part(database, name, edit)
            _insert_part(database, name, content, edit, edit if is_refit else fitted_in)
        write_log(database, EditRecord(edit, edit, now(), by, "edit", message), state.next_id)
    return np.concatenate([seqs[~change.removed], added])


def write_trust(database: sqlite3.Connection, trust: Floats, edit: int) -> None:
    """Cache the trust of all entries after an edit, so that readers need not compute it."""
    line = (TRUST, edit, trust_to_bytes(trust))
    database.execute("insert or replace into cache values (?, ?, ?)", line)


def _insert_rows(
    database: sqlite3.Connection, state: ModelState, positions: Integers, edit: int, first_seq: int
) -> Integers:
    seqs = np.arange(first_seq, first_seq + len(positions))
    rows = zip(seqs.tolist(), state.rows(positions), strict=True)
    database.executemany(
        "insert into rows values (?, ?, ?, ?, ?, ?, ?)",
        [(seq, *row, digest_of(seq, *row)) for seq, row in rows],
    )
    _insert_versions(database, edit, zip(seqs.tolist(), state.versions(positions), strict=True))
    return seqs


def _insert_versions(
    database: sqlite3.Connection, edit: int, versions: Iterable[tuple[int, tuple[object, ...]]]
) -> None:
    database.executemany(
        "insert into versions values (?, ?, null, ?, ?, ?, ?, ?)",
        [(seq, edit, *version, digest_of(seq, *version)) for seq, version in versions],
    )


def _end_part(database: sqlite3.Connection, name: str, edit: int) -> int:
    """End the current version of a part; returns the edit that fitted it, this one if it is new."""
    query = "select fitted_in from parts where name = ? and until is null"
    found = database.execute(query, (name,)).fetchone()
    database.execute("update parts set until = ? where name = ? and until is null", (edit, name))
    return edit if found is None else int(found[0])


def _insert_part(
    database: sqlite3.Connection, name: str, content: bytes, edit: int, fitted_in: int
) -> None:
    part = (name, edit, fitted_in, hashlib.sha256(content).hexdigest(), content)
    database.execute("insert into parts values (?, ?, null, ?, ?, ?)", part)


def _common(before: Entries, after: Entries) -> tuple[Booleans, int]:
    """Which entries before the edit remain, and how many of the first entries after it these are.

    Edits remove entries and append others. An entry that was removed and added again is a new one:
    it is out of order, or has other contents.
    """
    stays = np.zeros(len(before), dtype=bool)
    if before.ids is after.ids and before.embeddings is after.embeddings:
        return ~stays, len(before)
    found = _positions(before.ids, after.ids)
    is_next = np.concatenate([[True], found[1:] > found[:-1]])[: len(found)] & (found >= 0)
    n_same = len(found) if is_next.all() else int(is_next.argmin())
    is_same = _have_same_contents(before.take(found[:n_same]), after.take(np.arange(n_same)))
    n_same = n_same if is_same.all() else int(is_same.argmin())
    stays[found[:n_same]] = True
    return stays, n_same


def _positions(before: NDArray[Any], after: NDArray[Any]) -> Integers:
    """The position before the edit of each id after it; -1 for new ids."""
    import pandas as pd

    return pd.Index(before).get_indexer(pd.Index(after)).astype(np.int64)


def _have_same_contents(one: Entries, other: Entries) -> Booleans:
    """Which entries (n,) have the same embedding, group, subject and payload."""
    same = (one.embeddings == other.embeddings).all(axis=1) & (one.groups == other.groups)
    for name, missing in (("subjects", NOBODY), ("payloads", None)):
        columns = (getattr(entries, name) for entries in (one, other))
        filled = ([missing] * len(same) if c is None else c.tolist() for c in columns)
        same &= np.array(list(map(_is_same, *filled)), dtype=bool)
    return same


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are stored alike: 1, 1.0 and True are equal but not the same."""
    return one is other or (one == other and repr(one) == repr(other))


def _recode(before: list[Any], after: list[Any]) -> Integers:
    """The code after the edit of each code before it; -1 for a class that was removed."""
    codes = {label: code for code, label in enumerate(after)}
    return np.array([codes.get(label, -1) for label in before], dtype=np.int64)
