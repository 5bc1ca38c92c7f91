"""Entries leave a store for good: every state, free pages, the log, and the write-ahead log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnknn.errors import ModelFolderError
from attnknn.storage.store.history import log_of, write_log
from attnknn.storage.store.schema import transaction
from attnknn.storage.store.state import head_of

UNFINISHED = "erasure"  # in the cache while freed pages may still hold what was erased
SHORTEST = 4  # letters of a name that is looked for in the log


def seqs_of_subject(database: sqlite3.Connection, subject: str) -> list[int]:
    """The entries of a subject, in whatever state they are."""
    query = "select seq from rows where subject = ? order by seq"
    return [row[0] for row in database.execute(query, (subject,))]


def contents_of(database: sqlite3.Connection, seqs: Iterable[int]) -> list[tuple[Any, bytes, str]]:
    """Ids, embeddings and payloads of some entries."""
    query = "select id, embedding, coalesce(payload, '') from rows where seq = ?"
    return [database.execute(query, (seq,)).fetchone() for seq in seqs]


def seen_by(database: sqlite3.Connection, seqs: list[int]) -> set[str]:
    """The parts in force that were fitted, or given a new class, when some of these were there."""
    marks = ", ".join("?" * len(seqs))
    query = (
        "select distinct name from parts join versions v on "
        "(v.since <= made and (v.until is null or v.until > made)) "
        "or (parts.since != made and v.since = parts.since) "
        f"where parts.until is null and v.seq in ({marks})"
    )
    return {row[0] for row in database.execute(query, seqs)}


def were_there(database: sqlite3.Connection, seqs: list[int], edit: int) -> bool:
    """Whether any of these entries was in the state after an edit."""
    marks = ", ".join("?" * len(seqs))
    query = (
        f"select 1 from versions where seq in ({marks}) and since <= ? "
        "and (until is null or until > ?) limit 1"
    )
    return database.execute(query, [*seqs, edit, edit]).fetchone() is not None


def erase(
    database: sqlite3.Connection, seqs: list[int], names: list[str], *, by: str, words: str
) -> None:
    """Delete entries from all states, and what the log says about them by name."""
    lines = log_of(database)
    next_id = database.execute("select max(next_id) from log").fetchone()[0]
    with transaction(database):
        for table in ("versions", "rows"):
            database.executemany(f"delete from {table} where seq = ?", [(seq,) for seq in seqs])
        database.execute("delete from cache")
        for line in lines:
            if any(len(name) >= SHORTEST and name in line.words for name in names):
                said = "(erased)"
                database.execute("update log set words = ? where edit = ?", (said, line.edit))
        edit = head_of(database) + 1
        write_log(database, edit, lines[-1].state, by, "erase", words, next_id)
        database.execute("insert into cache values (?, ?, x'')", (UNFINISHED, edit))


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
