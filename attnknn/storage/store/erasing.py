"""Delete a person's entries from a store: every state, free pages, the log, the write-ahead log."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from attnknn.errors import ModelFolderError
from attnknn.storage.classes import TRANSITION, without_classes
from attnknn.storage.files import SETTINGS
from attnknn.storage.folder import STORE
from attnknn.storage.names import Names
from attnknn.storage.parts import ATTENTION_FILE as ATTENTION
from attnknn.storage.parts import without_prototypes
from attnknn.storage.store.history import EditRecord, now, read_log, write_log
from attnknn.storage.store.pending import PendingReceipt, save_pending
from attnknn.storage.store.schema import acknowledged
from attnknn.storage.store.state import IS_VALID, TRUST
from attnknn.storage.traces import json_leaves

NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR")  # the beginnings of names of errors
UNFINISHED = "erasure"  # in the cache while freed pages may still hold erased bytes
COUNTED = r"(?i:added|relabeled|forgot|changed the weight of) [\d,]+ (?:entry|entries)"
RECOVERED = r"Recovered the state after edit \d+(?:; later edits up to \d+ are lost)?"
# Generated messages hold no name, only numbers; text written by people may follow them.
GENERATED = re.compile(
    r"(?:Undid edit \d+: )?"
    r"(?:Rolled back to snapshot |(?:"
    rf"Rolled back to edit \d+|{RECOVERED}|Refitted|Changed nothing|{COUNTED}(?: and {COUNTED})*|"
    r"Opened for editing with [\d,]+ entries|Erased [\d,]+ (?:entry|entries) of a subject"
    r")$)?"
)


@dataclass(frozen=True)
class SubjectEntry:
    """An entry of a subject, in any state of the store."""

    seq: int
    id: Any
    embedding: bytes
    payload: str


@dataclass(frozen=True)
class OtherEntries:
    """The contents of all entries that do not belong to a subject.

    Parameters
    ----------
    payloads : payloads and labels, as JSON
    texts : subjects, text ids and the names of columns
    """

    embeddings: set[bytes]
    payloads: list[str]
    texts: list[str]


def entries_of(database: sqlite3.Connection, subject: str) -> list[SubjectEntry]:
    """The entries of a subject."""
    query = (
        "select seq, id, embedding, coalesce(payload, '') from rows where subject = ? order by seq"
    )
    return [SubjectEntry(*row) for row in database.execute(query, (subject,))]


def entries_of_others(database: sqlite3.Connection, subject: str) -> OtherEntries:
    """The contents of all entries that do not belong to a subject."""
    query = "select embedding, payload, subject, id from rows where subject != ?"
    found = database.execute(query, (subject,)).fetchall()
    query = "select distinct label from versions join rows using (seq) where subject != ?"
    labels = {row[0] for row in database.execute(query, (subject,))}
    query = "select content from parts where name = ? and until is null"
    settings = json.loads(database.execute(query, (SETTINGS,)).fetchone()[0])
    columns = settings["feature_names_in"] or []  # payloads repeat these names
    texts = {text for row in found for text in row[2:] if isinstance(text, str)}
    payloads = labels.union(row[1] for row in found if row[1])
    return OtherEntries({row[0] for row in found}, [*payloads], [*texts, *columns])


def subjects_of(database: sqlite3.Connection) -> set[str]:
    """The subjects of all entries, in any state."""
    return {row[0] for row in database.execute("select distinct subject from rows")}


def parts_fitted_on(database: sqlite3.Connection, subject: str) -> set[str]:
    """The current parts that were fitted on entries of a subject, or extended by their new class.

    A part that was extended by a class is a new version of the one that was fitted before, so all
    versions since then count.
    """
    query = (
        "select distinct p.name from parts p "
        "join parts old on old.name = p.name and old.since between p.fitted_in and p.since "
        "join versions v on (v.since <= p.fitted_in and (v.until is null or v.until > p.fitted_in))"
        " or (old.since != p.fitted_in and v.since = old.since) "
        "where p.until is null and v.seq in (select seq from rows where subject = ?)"
    )
    return {row[0] for row in database.execute(query, (subject,))}


def has_entries_after(database: sqlite3.Connection, subject: str, edit: int) -> bool:
    """Whether the state after an edit has any entry of a subject."""
    query = f"select 1 from versions join rows using (seq) where subject = :subject and {IS_VALID}"
    found = database.execute(query, {"subject": subject, "edit": edit}).fetchone()
    return found is not None


def erase_entries(
    database: sqlite3.Connection,
    subject: str,
    copies: list[bytes],
    *,
    head: int,
    by: str,
    message: str,
    pending: PendingReceipt,
) -> PendingReceipt:
    """Delete the entries of a subject from all states; returns the receipt with the classes.

    Parameters
    ----------
    copies : embeddings; prototypes that equal one of them become zeros, in all states
    head : the edit that must still be the last one
    pending : kept until the receipt is delivered
    """
    edit, undo_target = head + 1, read_log(database)[-1].undo_target
    with acknowledged(database, head):
        seqs = "(select seq from rows where subject = ?)"
        classes = _own_classes(database, subject)
        database.execute(
            "update log set n_entries = n_entries - (select count(*) from versions "
            f"where seq in {seqs} and since <= edit and (until is null or until > edit))",
            (subject,),
        )
        database.execute(f"delete from versions where seq in {seqs}", (subject,))
        database.execute("delete from rows where subject = ?", (subject,))
        database.execute("delete from cache where name = ?", (TRUST,))
        _overwrite_copies(database, copies)
        removed = classes if _drop_classes(database, classes) else []
        remaining = [label for label in classes if label not in removed]
        pending = replace(pending, removed_classes=removed, remaining_classes=remaining)
        write_log(database, EditRecord(edit, undo_target, now(), by, "erase", message))
        _erase_names(database, subject, pending.ids)  # last: `by` may be the person
        database.execute("insert or replace into cache values (?, ?, x'')", (UNFINISHED, edit))
        save_pending(database, edit, subject, pending)
    return pending


def _own_classes(database: sqlite3.Connection, subject: str) -> list[Any]:
    """The labels that only entries of a subject have, in all states."""
    query = "select distinct label from versions join rows using (seq) where subject {} ?"
    theirs, others = (
        {row[0] for row in database.execute(query.format(operator), (subject,))}
        for operator in ("=", "!=")
    )
    return [json.loads(label) for label in sorted(theirs - others)]


def _drop_classes(database: sqlite3.Connection, labels: list[Any]) -> bool:
    """Remove classes from all states, or from none if any state has a part that needs them."""
    changed: dict[tuple[str, int], bytes] = {}
    edits = database.execute("select distinct since from parts").fetchall() if labels else []
    names = f"name in ('{SETTINGS}', '{ATTENTION}', '{TRANSITION}')"
    for (edit,) in edits:
        query = f"select name, since, content from parts where {names} and {IS_VALID}"
        found = database.execute(query, {"edit": edit}).fetchall()
        parts = without_classes({name: content for name, _, content in found}, labels)
        if parts is None:
            return False
        changed |= {(name, since): parts[name] for name, since, _ in found if name in parts}
    for (name, since), content in changed.items():
        _rewrite_part(database, name, since, content)
    return True


def _rewrite_part(database: sqlite3.Connection, name: str, since: int, content: bytes) -> None:
    database.execute(
        "update parts set content = ?, sha256 = ? where name = ? and since = ?",
        (content, hashlib.sha256(content).hexdigest(), name, since),
    )


def _overwrite_copies(database: sqlite3.Connection, copies: list[bytes]) -> None:
    """Overwrite prototypes: that of a class with one entry is the entry, byte for byte."""
    query = "select since, content from parts where name = ?"
    for since, content in database.execute(query, (ATTENTION,)).fetchall():
        _rewrite_part(database, ATTENTION, since, without_prototypes(content, copies))


def finish_erasure(database: sqlite3.Connection, folder: Path) -> None:
    """Rewrite the file without deleted bytes, also after an erasure that was killed."""
    query = "select 1 from cache where name = ?"
    if not database.execute(query, (UNFINISHED,)).fetchone():
        return
    try:
        _empty_write_ahead_log(database, folder)  # makes room for the new file
        database.execute("vacuum")
        _empty_write_ahead_log(database, folder)
        database.execute("delete from cache where name = ?", (UNFINISHED,))
        _empty_write_ahead_log(database, folder)
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith(NO_ROOM):
            raise
        why = f"{STORE} could not be rewritten ({error})"
        raise _unfinished(folder, why, f"When {_room(folder)}") from error


@contextmanager
def explain_no_room(folder: Path) -> Iterator[None]:
    """Say that nothing was erased, and what to free, if the disk is full."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith(NO_ROOM):
            raise
        raise ModelFolderError(
            f"Nothing was erased: {STORE} could not be written ({error}). When {_room(folder)}, "
            "try again."
        ) from error


def _room(folder: Path) -> str:
    """What rewriting the file needs."""
    return (
        f"{(folder / STORE).stat().st_size:,} bytes are free on the disk of {folder}, and as many "
        "for temporary files of SQLite (SQLITE_TMPDIR or /var/tmp)"
    )


def _empty_write_ahead_log(database: sqlite3.Connection, folder: Path) -> None:
    is_busy = database.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
    if is_busy:
        raise _unfinished(folder, "another process is reading it", "When that process has ended")


def _unfinished(folder: Path, why: str, when: str) -> ModelFolderError:
    return ModelFolderError(
        f"The entries are deleted, but {folder} still holds their bytes, because {why}. {when}, "
        "open the model for editing, which finishes the erasure, and forget the subject again for "
        "the receipt."
    )


def _erase_names(database: sqlite3.Connection, subject: str, ids: list[Any]) -> None:
    """Replace the name of a person, and the ids of their entries, in all texts that people wrote.

    A number in the name of an author is not an id.
    """
    authors = Names([subject, *(each for each in ids if isinstance(each, str))])
    names = Names([subject, *map(str, ids)])
    for edit, by, message in database.execute("select edit, by, message from log").fetchall():
        written = written_by_people(message)
        erased = message.removesuffix(written) + names.erase(written) if written else message
        query = "update log set by = ?, message = ? where edit = ?"
        database.execute(query, (authors.erase(by), erased, edit))
    found = database.execute("select name, by from snapshots order by edit, name").fetchall()
    taken = {snapshot for snapshot, _ in found}
    for snapshot, by in found:
        new = erased = names.erase(snapshot)
        if erased != snapshot:
            others = (f"{erased} ({n})" for n in count(2))
            new = erased if erased not in taken else next(o for o in others if o not in taken)
            taken.add(new)
        query = "update snapshots set name = ?, by = ? where name = ?"
        database.execute(query, (new, authors.erase(by), snapshot))


def written_by_people(message: str) -> str:
    """The part of a log message that was not generated.

    >>> written_by_people("Undid edit 3: Forgot 3 entries and relabeled 1 entry")
    ''
    >>> written_by_people("Rolled back to snapshot before 3 asked")
    'before 3 asked'
    """
    found = GENERATED.match(message)
    return message[found.end() :] if found else message


def written_texts(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Each text that people wrote, after the place where it is stored."""
    for by, message in database.execute("select by, message from log"):
        yield f"{STORE} (log)", f"{by}\n{written_by_people(message)}"
    for name, by in database.execute("select name, by from snapshots"):
        yield f"{STORE} (snapshots)", f"{name}\n{by}"
    for settings in _settings(database):
        for text in json_leaves(settings["notes"]):
            yield f"{STORE} (notes)", text


def learned_texts(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """The names of classes and the texts that the encoder learned, of all states, likewise."""
    for settings in _settings(database):
        for text in json_leaves([settings["classes"]["values"], settings["encoder"]]):
            yield f"{STORE} ({SETTINGS})", text


def _settings(database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for (content,) in database.execute("select content from parts where name = ?", (SETTINGS,)):
        yield json.loads(content)
