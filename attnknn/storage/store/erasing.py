"""Entries leave a store for good: every state, free pages, the log, and the write-ahead log."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnknn.errors import ModelFolderError
from attnknn.storage.store.changes import sha256_of
from attnknn.storage.store.history import log_of, write_log
from attnknn.storage.store.schema import transaction
from attnknn.storage.store.state import head_of

UNFINISHED = "erasure"  # in the cache while freed pages may still hold what was erased
SHORTEST = 4  # letters of a name that is looked for in the log


@dataclass(frozen=True)
class Owned:
    """An entry of a subject, in whatever state it is."""

    seq: int
    id: Any
    embedding: bytes
    payload: str


def owned_by(database: sqlite3.Connection, subject: str) -> list[Owned]:
    """The entries of a subject."""
    query = (
        "select seq, id, embedding, coalesce(payload, '') from rows where subject = ? order by seq"
    )
    return [Owned(*row) for row in database.execute(query, (subject,))]


def contents_of_others(database: sqlite3.Connection, subject: str) -> tuple[set[bytes], list[str]]:
    """The embeddings and payloads of all entries that are not a subject's."""
    query = "select embedding, coalesce(payload, '') from rows where subject != ?"
    found = database.execute(query, (subject,)).fetchall()
    return {embedding for embedding, _ in found}, [payload for _, payload in found]


def seen_by(database: sqlite3.Connection, subject: str) -> set[str]:
    """The parts in force that were fitted, or given a new class, with entries of a subject."""
    query = (
        "select distinct name from parts join versions v on "
        "(v.since <= made and (v.until is null or v.until > made)) "
        "or (parts.since != made and v.since = parts.since) "
        "where parts.until is null and v.seq in (select seq from rows where subject = ?)"
    )
    return {row[0] for row in database.execute(query, (subject,))}


def were_there(database: sqlite3.Connection, subject: str, edit: int) -> bool:
    """Whether any entry of a subject was in the state after an edit."""
    query = (
        "select 1 from versions where seq in (select seq from rows where subject = ?) "
        "and since <= ? and (until is null or until > ?) limit 1"
    )
    return database.execute(query, (subject, edit, edit)).fetchone() is not None


def erase(
    database: sqlite3.Connection,
    subject: str,
    copies: list[bytes],
    names: list[str],
    *,
    by: str,
    words: str,
) -> None:
    """Delete the entries of a subject from all states.

    Parameters
    ----------
    copies : embeddings to be overwritten by zeros in the fitted parts of all states
    names : that lines of the log must not say
    """
    lines = log_of(database)
    next_id = database.execute("select max(next_id) from log").fetchone()[0]
    with transaction(database):
        theirs = "(select seq from rows where subject = ?)"
        database.execute(f"delete from versions where seq in {theirs}", (subject,))
        database.execute("delete from rows where subject = ?", (subject,))
        database.execute("delete from cache")
        _overwrite_copies(database, copies)
        for line in lines:
            if any(len(name) >= SHORTEST and name in line.words for name in names):
                said = "(erased)"
                database.execute("update log set words = ? where edit = ?", (said, line.edit))
        edit = head_of(database) + 1
        write_log(database, edit, lines[-1].state, by, "erase", words, next_id)
        database.execute("insert into cache values (?, ?, x'')", (UNFINISHED, edit))


def _overwrite_copies(database: sqlite3.Connection, copies: list[bytes]) -> None:
    """The only entry that a class has had is its prototype, byte for byte."""
    for name, since, content in database.execute(
        "select name, since, content from parts where name not like 'encoder!_%' escape '!'"
    ).fetchall():
        cleared = content
        for copy in copies:
            cleared = cleared.replace(copy, bytes(len(copy)))
        if cleared != content:
            database.execute(
                "update parts set content = ?, sha256 = ? where name = ? and since = ?",
                (cleared, sha256_of(cleared), name, since),
            )


def finish_erasure(database: sqlite3.Connection, folder: Path) -> None:
    """Write the file anew without what was deleted; what a killed process left is done too."""
    query = "select 1 from cache where name = ?"
    if not database.execute(query, (UNFINISHED,)).fetchone():
        return
    database.execute("vacuum")
    _empty_log(database, folder)
    database.execute("delete from cache where name = ?", (UNFINISHED,))
    _empty_log(database, folder)


def _empty_log(database: sqlite3.Connection, folder: Path) -> None:
    is_busy = database.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
    if is_busy:
        raise ModelFolderError(
            f"The rows are deleted, but {folder} still holds their bytes, because another process "
            "is reading it. Open it for editing once more when that has ended."
        )


def files_that_hold(folder: Path, needles: list[bytes]) -> list[str]:
    """The names of the files in which any of these bytes are found."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file() and any(needle in path.read_bytes() for needle in needles)
    )
