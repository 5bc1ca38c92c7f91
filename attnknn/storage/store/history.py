"""The log of a store, its snapshots, undo and rollback."""

from __future__ import annotations

import json
import operator
import sqlite3
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, SupportsIndex

from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage.folder import STORE
from attnknn.storage.store.head import head_of, is_complete, read_head
from attnknn.storage.store.schema import acknowledged, last_edit
from attnknn.storage.store.state import VERSION_COLUMNS


@dataclass(frozen=True)
class EditRecord:
    """One line of the log.

    Attributes
    ----------
    edit : int
        The number of the edit, from 0.
    undo_target : int
        The edit that `undo` would take back: this one or, after an undo, an earlier one.
    at, by : str
        When (in UTC) and by whom the edit was made.
    action : {'create', 'edit', 'undo', 'rollback', 'erase', 'recover'}
        What kind of edit it is.
    message : str
        What was done.
    """

    edit: int
    undo_target: int
    at: str
    by: str
    action: str
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Snapshot:
    """A state with a name.

    Attributes
    ----------
    name : str
        The name of the snapshot.
    edit : int
        The snapshot is the state after this edit.
    at, by : str
        When (in UTC) and by whom it was taken.
    """

    name: str
    edit: int
    at: str
    by: str


@dataclass(frozen=True)
class EntryChange:
    """What an edit did to one entry.

    Attributes
    ----------
    id : int or str
        The id of the entry.
    label_before, label_after : label or None
        None before the entry was added and after it was removed.
    sample_weight_before, sample_weight_after : float or None
        Sample weight times decay; None where the label is None.
    payload : object or None
        What was stored with the entry to be shown; None if nothing was.
    """

    id: Any
    label_before: Any
    label_after: Any
    sample_weight_before: float | None
    sample_weight_after: float | None
    payload: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def read_log(database: sqlite3.Connection) -> list[EditRecord]:
    """Every edit, the first one first."""
    query = "select edit, undo_target, at, by, action, message from log order by edit"
    lines = [EditRecord(*row) for row in database.execute(query)]
    for place, line in enumerate(lines):
        texts = (line.at, line.by, line.action, line.message)
        is_whole = line.edit == place and all(isinstance(text, str) for text in texts)
        if not (is_whole and _is_edit(line.undo_target, place)):
            raise ModelFolderError(
                f"The model cannot be used: line {place} of the log in {STORE} is missing or "
                "damaged."
            )
    return lines


def read_snapshots(database: sqlite3.Connection) -> list[Snapshot]:
    """Every snapshot, ordered by edit."""
    query = "select name, edit, at, by from snapshots order by edit, name"
    found, head = [Snapshot(*row) for row in database.execute(query)], last_edit(database)
    for snapshot in found:
        texts = (snapshot.name, snapshot.at, snapshot.by)
        if not (_is_edit(snapshot.edit, head) and all(isinstance(text, str) for text in texts)):
            raise ModelFolderError(f"The model cannot be used: a snapshot in {STORE} is damaged.")
    return found


def _is_edit(number: Any, last: int) -> bool:
    return isinstance(number, int) and 0 <= number <= last


def read_changes(database: sqlite3.Connection, edit: SupportsIndex) -> list[EntryChange]:
    """The entries that an edit added, removed or changed, except entries that were erased since."""
    query = (
        "select id, old.label, new.label, old.sample_weight * old.decay, "
        "new.sample_weight * new.decay, payload from rows "
        "left join versions old on old.seq = rows.seq and old.until = :edit "
        "left join versions new on new.seq = rows.seq and new.since = :edit "
        "where rows.seq in (select seq from versions where since = :edit or until = :edit) "
        "order by rows.seq"
    )
    found = database.execute(query, {"edit": check_edit(database, edit)})
    return [
        EntryChange(name, _parse(old), _parse(new), before, after, _parse(payload, "payload"))
        for name, old, new, before, after, payload in found
    ]


def read_additions(database: sqlite3.Connection) -> dict[Any, int]:
    """The edit that added each entry, by id; the last one if an id was added again."""
    query = (
        "select id, min(since) from rows join versions using (seq) group by seq order by rows.seq"
    )
    return {name: int(edit) for name, edit in database.execute(query)}


def _parse(text: str | None, what: str = "label") -> Any:
    try:
        return None if text is None else json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFolderError(
            f"The model cannot be used: a {what} in {STORE} is damaged."
        ) from error


def write_log(database: sqlite3.Connection, record: EditRecord, next_id: int = 0) -> None:
    """Append a line to the log, after everything else of the edit was written.

    Parameters
    ----------
    next_id : larger than every integer id of the entries; it never falls below earlier ones
    """
    database.execute(
        "insert into log select ?, ?, ?, ?, ?, ?, max(?, coalesce(max(next_id), 0)), "
        "(select count(*) from versions where until is null) from log",
        (*astuple(record), next_id),
    )


def now() -> str:
    """The time in UTC, as it is stored."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def take_snapshot(database: sqlite3.Connection, head: int, name: str, by: str) -> Snapshot:
    """Save the current state as a snapshot."""
    known = {snapshot.name: snapshot for snapshot in read_snapshots(database)}
    if name in known:
        raise InvalidSettingError(
            f"There is a snapshot {name!r} already, of {known[name].at}. Choose another name."
        )
    taken = Snapshot(name, head, now(), by)
    with acknowledged(database, head):
        line = (name, taken.edit, taken.at, by)
        database.execute("insert into snapshots values (?, ?, ?, ?)", line)
    return taken


def edit_of_snapshot(database: sqlite3.Connection, name: str) -> int:
    """The edit whose state a snapshot is."""
    known = {snapshot.name: snapshot.edit for snapshot in read_snapshots(database)}
    if name not in known:
        hint = f"Known: {', '.join(map(repr, known))}." if known else "The model has no snapshots."
        raise InvalidSettingError(f"There is no snapshot {name!r}. {hint}")
    return known[name]


def find_undo(database: sqlite3.Connection, path: object) -> tuple[EditRecord, EditRecord]:
    """The last edit that was not undone yet, and the edit whose state undo restores."""
    lines = read_log(database)
    if lines[-1].action == "erase":
        raise ModelFolderError(
            f"The last edit of {path} is an erasure, which cannot be undone. Roll back to an edit "
            "of the log for an earlier state, without the erased entries."
        )
    undone = lines[lines[-1].undo_target]
    if undone.edit == 0:
        raise ModelFolderError(
            f"Nothing to undo: {path} is in its original state. Roll back to an edit of the "
            "log for another state."
        )
    return undone, lines[undone.edit - 1]


def undo(
    database: sqlite3.Connection, head: int, undone: EditRecord, before: EditRecord, by: str
) -> None:
    """Restore the state after the edit `before`."""
    message = f"Undid edit {undone.edit}: {undone.message}"
    record = EditRecord(head + 1, before.undo_target, now(), by, "undo", message)
    _restore(database, before.edit, record)


def roll_back(
    database: sqlite3.Connection, head: int, target: int, by: str, name: str
) -> EditRecord:
    """Restore the state after the edit `target`; this can be undone."""
    record = EditRecord(head + 1, head + 1, now(), by, "rollback", f"Rolled back to {name}")
    _restore(database, target, record)
    return record


def recover(database: sqlite3.Connection, folder: Path, by: str) -> EditRecord | None:
    """Accept a store that lost acknowledged commits; returns the line in the log about it."""
    noted, found = read_head(folder), head_of(database)
    if is_complete(noted, found):
        return None
    message = f"Recovered the state after edit {found.edit}"
    if noted is not None and noted.edit > found.edit:
        message += f"; later edits up to {noted.edit} are lost"
    undo_target = read_log(database)[-1].undo_target
    record = EditRecord(found.edit + 1, undo_target, now(), by, "recover", message)
    with acknowledged(database, found.edit):
        if noted is not None:  # the number of a commit never falls
            database.execute(f"pragma user_version = {noted.commit}")
        write_log(database, record)
    return record


def check_edit(database: sqlite3.Connection, edit: SupportsIndex) -> int:
    """The number of an edit; an error if there is no such edit."""
    if isinstance(edit, bool) or not hasattr(edit, "__index__"):
        raise InvalidSettingError(f"An edit must be given by its number, an integer, got {edit!r}.")
    number, head = operator.index(edit), last_edit(database)
    if not 0 <= number <= head:
        raise InvalidSettingError(f"There is no edit {number}; the last one is {head}.")
    return number


def _restore(database: sqlite3.Connection, target: int, record: EditRecord) -> None:
    edits = {"edit": record.edit, "target": target}
    with acknowledged(database, record.edit - 1):
        for table, key, columns in (
            ("versions", "seq", f"{VERSION_COLUMNS}, digest"),
            ("parts", "name", "fitted_in, sha256, content"),
        ):
            database.execute(
                f"update {table} set until = :edit where until is null and since > :target", edits
            )
            database.execute(
                f"insert into {table} ({key}, since, until, {columns}) "
                f"select {key}, :edit, null, {columns} from {table} "
                "where since <= :target and until > :target and until <= :edit",
                edits,
            )
        write_log(database, record)
