"""A note of the last acknowledged commit, in a file beside the store.

SQLite stops at the first damaged frame of its write-ahead log and opens the state before it as if
nothing had happened. So each commit that is acknowledged has a number, `user_version` of the SQLite
file, and the number is also in this file. The file is written after the commit and before the
acknowledgment: a crash between the two leaves a store that is ahead of the note, which is in order.
A store that is behind the note has lost acknowledged commits and is refused.

The commit is synced to disk, and the note is on its way there, because waiting for the disk twice
would double the time of an edit. Closing the model waits for the note. If power fails before that,
the note may be older than the store, which is in order too.

Two lines take turns, each in a disk sector of its own, so that a torn write spares the other one.
They hold numbers and checksums only, nothing of the entries and no names.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from attnknn._output_files import sync
from attnknn._stored import open_regular
from attnknn.errors import ModelFolderError
from attnknn.storage.folder import HEAD, STORE
from attnknn.storage.store.state import digest_of

LINE_BYTES = 512  # a sector, which is written as a whole or not at all
LAST_LINE = (
    "select edit, undo_target, at, action, next_id, n_entries from log order by edit desc limit 1"
)


@dataclass(frozen=True)
class Head:
    """The last commit of a store.

    Parameters
    ----------
    commit : how many edits and snapshots were committed
    edit : the last edit
    log : a checksum of the last line of the log, without what people wrote
    """

    commit: int
    edit: int
    log: int


def head_of(database: sqlite3.Connection) -> Head:
    """The last commit that a connection sees."""
    commit = database.execute("pragma user_version").fetchone()[0]
    line = database.execute(LAST_LINE).fetchone()
    if line is None:
        raise ModelFolderError(f"The model cannot be used: the log of {STORE} is empty.")
    return Head(int(commit), int(line[0]), digest_of(*line))


def read_head(folder: Path) -> Head | None:
    """The noted head of a store; None if the note is missing or damaged."""
    try:
        with open_regular(folder / HEAD) as file:
            content = file.read(2 * LINE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelFolderError(
            f"The model folder {folder} cannot be used: {HEAD} cannot be read "
            f"({error.strerror or error})."
        ) from error
    lines = (_parse(content[at : at + LINE_BYTES]) for at in (0, LINE_BYTES))
    return max(filter(None, lines), key=lambda head: head.commit, default=None)


def _parse(line: bytes) -> Head | None:
    try:
        values = json.loads(line)
        checksum, head = values.pop("checksum"), Head(**values)
        is_valid = all(type(value) is int for value in astuple(head))
        return head if is_valid and checksum == digest_of(*astuple(head)) else None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def write_head(folder: Path, head: Head) -> None:
    """Note a head; `sync_head` waits until it is on the disk."""
    values = {**asdict(head), "checksum": digest_of(*astuple(head))}
    line = json.dumps(values).ljust(LINE_BYTES - 1) + "\n"
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    is_new = not (folder / HEAD).exists()
    try:
        with os.fdopen(os.open(folder / HEAD, flags, 0o666), "r+b", buffering=0) as file:
            file.seek(head.commit % 2 * LINE_BYTES)
            file.write(line.encode())
            if hasattr(os, "posix_fadvise"):  # start writing it to the disk
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if is_new:
            sync_head(folder)
            sync(folder)
    except OSError as error:
        raise ModelFolderError(
            f"Edit {head.edit} of {folder} is stored, but {HEAD} cannot be written "
            f"({error.strerror or error}). Open the model again."
        ) from error


def sync_head(folder: Path) -> None:
    """Wait until the note is on the disk."""
    with contextlib.suppress(OSError), open(folder / HEAD, "r+b") as file:
        os.fsync(file.fileno())


def is_complete(noted: Head | None, found: Head) -> bool:
    """Whether a store holds everything that was acknowledged.

    Parameters
    ----------
    noted : read before the store, because others may commit in between
    """
    return noted is not None and (found == noted or found.commit > noted.commit)


def check_head(folder: Path, noted: Head | None, found: Head) -> None:
    """Raise an error if a store lacks anything that was acknowledged."""
    if is_complete(noted, found):
        return
    if noted is None:
        problem = f"{HEAD} is missing or damaged, so edits after edit {found.edit} may be lost"
    elif found.commit == noted.commit:
        problem = f"edit {found.edit} in the log of {STORE} is not what was written"
    else:
        last = f"edit {noted.edit}" if noted.edit > found.edit else "a snapshot"
        problem = (
            f"{last} was acknowledged, but {STORE} can be read only up to edit {found.edit}; "
            f"{STORE}-wal was removed or damaged"
        )
    raise ModelFolderError(
        f"The model folder {folder} cannot be used: {problem}. Restore a backup, or accept the "
        f"state after edit {found.edit} with `attnknn recover` (in Python "
        "`open_for_editing(..., recover=True)`). Everything later, erasures included, must then "
        "be done again."
    )
