"""Entries leave a store for good: every state, free pages, the log, and the write-ahead log."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnknn.errors import ModelFolderError
from attnknn.storage.attentions import FILE as ATTENTION
from attnknn.storage.attentions import without_prototypes
from attnknn.storage.contents import SETTINGS
from attnknn.storage.store import pending, searching
from attnknn.storage.store.changes import sha256_of
from attnknn.storage.store.history import log_of, write_log
from attnknn.storage.store.names import take_out_name
from attnknn.storage.store.pending import Pending
from attnknn.storage.store.schema import last_edit, transaction
from attnknn.storage.store.state import TRUST

UNFINISHED = "erasure"  # in the cache while freed pages may still hold what was erased


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


@dataclass(frozen=True)
class Others:
    """What the entries hold that are not a subject's.

    Parameters
    ----------
    texts : payloads and labels as JSON, subjects, ids that are texts, and the names of columns
    """

    embeddings: set[bytes]
    texts: list[str]


def others_than(database: sqlite3.Connection, subject: str) -> Others:
    """The contents of all entries that are not a subject's."""
    query = "select embedding, coalesce(payload, ''), subject, id from rows where subject != ?"
    found = database.execute(query, (subject,)).fetchall()
    query = "select distinct label from versions join rows using (seq) where subject != ?"
    labels = [row[0] for row in database.execute(query, (subject,))]
    texts = {text for row in found for text in row[1:] if isinstance(text, str)}
    return Others({row[0] for row in found}, [*texts, *labels, *_columns(database)])


def _columns(database: sqlite3.Connection) -> list[str]:
    """The names of the columns, which payloads repeat."""
    query = "select content from parts where name = ? and until is null"
    found = database.execute(query, (SETTINGS,)).fetchone()
    return json.loads(found[0])["feature_names_in"] or []


def seen_by(database: sqlite3.Connection, subject: str) -> set[str]:
    """The parts in force that were fitted with entries of a subject, or given their new class.

    A part that made room for a class is a new version of what was fitted before: all versions since
    then count.
    """
    query = (
        "select distinct p.name from parts p "
        "join parts old on old.name = p.name and old.since between p.made and p.since "
        "join versions v on (v.since <= p.made and (v.until is null or v.until > p.made)) "
        "or (old.since != p.made and v.since = old.since) "
        "where p.until is null and v.seq in (select seq from rows where subject = ?)"
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
    *,
    head: int,
    by: str,
    words: str,
    noted: Pending,
) -> None:
    """Delete the entries of a subject from all states.

    Parameters
    ----------
    copies : embeddings; prototypes that are one of them become zeros, in all states
    head : the edit that must still be the last
    noted : for the receipt, until it is handed out
    """
    lines = log_of(database)
    next_id = database.execute("select max(next_id) from log").fetchone()[0]
    with transaction(database, head):
        theirs = "(select seq from rows where subject = ?)"
        database.execute(
            "update log set n_entries = n_entries - (select count(*) from versions "
            f"where seq in {theirs} and since <= edit and (until is null or until > edit))",
            (subject,),
        )
        database.execute(f"delete from versions where seq in {theirs}", (subject,))
        database.execute("delete from rows where subject = ?", (subject,))
        database.execute("delete from cache where name = ?", (TRUST,))
        _overwrite_copies(database, copies)
        edit = last_edit(database) + 1
        write_log(database, edit, lines[-1].state, by, "erase", words, next_id)
        take_out_name(database, subject)  # who erases themselves is in the last line too
        database.execute("insert or replace into cache values (?, ?, x'')", (UNFINISHED, edit))
        pending.note(database, edit, subject, noted)


def _overwrite_copies(database: sqlite3.Connection, copies: list[bytes]) -> None:
    """The only entry that a class has had is its prototype, byte for byte."""
    query = "select since, content from parts where name = ?"
    for since, content in database.execute(query, (ATTENTION,)).fetchall():
        cleared = without_prototypes(content, copies)
        database.execute(
            "update parts set content = ?, sha256 = ? where name = ? and since = ?",
            (cleared, sha256_of(cleared), ATTENTION, since),
        )


def finish_erasure(database: sqlite3.Connection, folder: Path) -> None:
    """Write the file again without what was deleted; what a killed process left is done too."""
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
            "is reading it. When that has ended open it for editing, which finishes the erasure, "
            "and forget the subject once more for the receipt."
        )


def files_that_hold(folder: Path, needles: list[bytes]) -> list[str]:
    """The names of the files in which any of these bytes are found; no connection is disturbed."""
    command = [sys.executable, "-I", "-S", searching.__file__, str(folder)]
    asked = "\n".join(needle.hex() for needle in needles)
    try:
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ModelFolderError(
            f"The rows are deleted, but the files of {folder} could not be searched ({error})."
        ) from error
    return list(json.loads(done.stdout))
