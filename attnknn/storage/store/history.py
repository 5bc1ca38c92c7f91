"""The log of a store, its snapshots, and the way back."""

from __future__ import annotations

import json
import operator
import sqlite3
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, SupportsIndex

from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage.store.schema import last_edit, transaction
from attnknn.storage.store.state import VERSION


@dataclass(frozen=True)
class Edit:
    """One line of the log.

    Parameters
    ----------
    state : the edit that undo would take back: this one or, after an undo, an earlier one
    at : when, in coordinated universal time
    by : who
    action : 'create', 'edit', 'undo', 'rollback' or 'erase'
    words : what was done
    """

    edit: int
    state: int
    at: str
    by: str
    action: str
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Snapshot:
    """A state with a name: the one after `edit`."""

    name: str
    edit: int
    at: str
    by: str


@dataclass(frozen=True)
class Touched:
    """What an edit did to one entry; labels and sample weights are None where it was not there.

    Parameters
    ----------
    sample_weight_before, sample_weight_after : with what age leaves of them
    """

    id: Any
    before: Any
    after: Any
    sample_weight_before: float | None
    sample_weight_after: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def log_of(database: sqlite3.Connection) -> list[Edit]:
    """Every edit, the first one first."""
    query = "select edit, state, at, by, action, words from log order by edit"
    return [Edit(*row) for row in database.execute(query)]


def snapshots_of(database: sqlite3.Connection) -> list[Snapshot]:
    """Every snapshot, in the order of their states."""
    query = "select name, edit, at, by from snapshots order by edit, name"
    return [Snapshot(*row) for row in database.execute(query)]


def touched_by(database: sqlite3.Connection, edit: SupportsIndex) -> list[Touched]:
    """The entries that an edit added, removed or changed; erased ones are no longer known."""
    number = check_edit(database, edit)
    query = (
        "select id, old.label, new.label, old.sample_weight * old.decay, "
        "new.sample_weight * new.decay from rows "
        "left join versions old on old.seq = rows.seq and old.until = :edit "
        "left join versions new on new.seq = rows.seq and new.since = :edit "
        "where rows.seq in (select seq from versions where since = :edit or until = :edit) "
        "order by rows.seq"
    )
    found = database.execute(query, {"edit": number})
    return [Touched(i, _label(b), _label(a), *sample_weights) for i, b, a, *sample_weights in found]


def _label(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def write_log(
    database: sqlite3.Connection,
    edit: int,
    state: int,
    by: str,
    action: str,
    words: str,
    next_id: int,
) -> None:
    """Append a line to the log, when all else of the edit is written."""
    query = "select count(*) from versions where until is null"
    n_entries = database.execute(query).fetchone()[0]
    line = (edit, state, now(), by, action, words, next_id, n_entries)
    database.execute("insert into log values (?, ?, ?, ?, ?, ?, ?, ?)", line)


def now() -> str:
    """The time as it is written down."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def take_snapshot(database: sqlite3.Connection, head: int, name: str, by: str) -> Snapshot:
    """Give the state of now a name."""
    if not name.strip():
        raise InvalidSettingError("A snapshot must have a name.")
    known = {snapshot.name: snapshot for snapshot in snapshots_of(database)}
    if name in known:
        raise InvalidSettingError(
            f"There is a snapshot {name!r} already, of {known[name].at}. Choose another name."
        )
    taken = Snapshot(name, head, now(), by)
    with transaction(database, head):
        database.execute(
            "insert into snapshots values (?, ?, ?, ?)", (name, taken.edit, taken.at, by)
        )
    return taken


def edit_of_snapshot(database: sqlite3.Connection, name: str) -> int:
    """The edit whose state a snapshot is."""
    for snapshot in snapshots_of(database):
        if snapshot.name == name:
            return snapshot.edit
    known = ", ".join(repr(snapshot.name) for snapshot in snapshots_of(database))
    raise InvalidSettingError(
        f"There is no snapshot {name!r}." + (f" Known: {known}." if known else " There is none.")
    )


def before_last_edit(database: sqlite3.Connection, where: object) -> tuple[Edit, Edit]:
    """The last edit that was not taken back yet, and the one whose state came before it."""
    lines = log_of(database)
    if lines[-1].action == "erase":
        raise ModelFolderError(
            f"The last edit of {where} is an erasure, which cannot be taken back. Roll back to an "
            "edit of the log for an earlier state, without what was erased."
        )
    undone = lines[lines[-1].state]
    if undone.edit == 0:
        raise ModelFolderError(
            f"There is no edit of {where} to take back. Roll back to an edit of the log for any "
            "other state."
        )
    return undone, lines[undone.edit - 1]


def undo(database: sqlite3.Connection, head: int, undone: Edit, before: Edit, by: str) -> None:
    """Make the state after the edit `before` the state of now."""
    words = f"Took back edit {undone.edit}: {undone.words}"
    _restore(database, head, before.edit, before.state, by, "undo", words)


def roll_back(database: sqlite3.Connection, head: int, target: int, by: str, name: str) -> Edit:
    """Bring back the state after the edit `target`; that can be undone."""
    _restore(database, head, target, head + 1, by, "rollback", f"Rolled back to {name}")
    return log_of(database)[-1]


def check_edit(database: sqlite3.Connection, edit: SupportsIndex) -> int:
    """The number of an edit; an error where there is no such edit."""
    if isinstance(edit, bool) or not hasattr(edit, "__index__"):
        raise InvalidSettingError(f"An edit must be given by its number, an integer, got {edit!r}.")
    number, head = operator.index(edit), last_edit(database)
    if not 0 <= number <= head:
        raise InvalidSettingError(f"There is no edit {number}; the last one is {head}.")
    return number


def _restore(
    database: sqlite3.Connection,
    head: int,
    target: int,
    state: int,
    by: str,
    action: str,
    words: str,
) -> None:
    with transaction(database, head):
        times = {"edit": head + 1, "target": target}
        for table, columns in (
            ("versions", f"{VERSION}, digest"),
            ("parts", "made, sha256, content"),
        ):
            key = "seq" if table == "versions" else "name"
            database.execute(
                f"update {table} set until = :edit where until is null and since > :target", times
            )
            database.execute(
                f"insert into {table} ({key}, since, until, {columns}) "
                f"select {key}, :edit, null, {columns} from {table} "
                "where since <= :target and until > :target and until <= :edit",
                times,
            )
        next_id = database.execute("select max(next_id) from log").fetchone()[0]
        write_log(database, head + 1, state, by, action, words, next_id)
