"""The tables of a store, and connections to them.

Nothing is overwritten. An entry is a row of `rows`, which never changes; the columns that an edit
may change are in `versions`. A version is valid from the edit `since` up to the edit `until`, which
is null for the current one. `parts` holds the files of everything that was fitted, with the same
two columns; `fitted_in` is the edit that fitted a part. So the state after any edit can be read,
and undo makes an old state valid again.

SQLite does not notice bytes that other programs changed. Rows, versions and parts have checksums,
the log has the number of entries after each edit, and `head` notes the last commit.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from attnknn._limits import check_fits
from attnknn.errors import ModelFolderError
from attnknn.storage.folder import STORE
from attnknn.storage.store.head import check_head, head_of, read_head, write_head

MAX_VALUE_BYTES = 1 << 30
MIN_CHECKED_BYTES, READING_FACTOR = 1 << 20, 4  # memory for each byte of a store while it is read
TIMEOUT = 30.0  # seconds to wait for a commit of another process
NOT_DAMAGE = ("BUSY", "LOCKED", "READONLY", "IOERR", "FULL", "CANTOPEN", "PERM", "NOMEM")
PROGRAM_ERRORS = (sqlite3.ProgrammingError, sqlite3.IntegrityError)
TABLES = (
    "create table log (edit integer primary key, undo_target integer not null, at text not null, "
    "by text not null, action text not null, message text not null, next_id integer not null, "
    "n_entries integer not null)",
    "create table rows (seq integer primary key, id not null, grp integer not null, subject text, "
    "payload text, embedding blob not null, digest integer not null)",
    "create table versions (seq integer not null, since integer not null, until integer, "
    "label text not null, sample_weight real not null, decay real not null, "
    "held_out integer not null, digest integer not null, "
    "primary key (seq, since)) without rowid",
    "create table parts (name text not null, since integer not null, until integer, "
    "fitted_in integer not null, sha256 text not null, content blob not null, "
    "primary key (name, since))",
    "create table snapshots (name text primary key, edit integer not null, at text not null, "
    "by text not null)",
    "create table cache (name text primary key, edit integer not null, content blob not null)",
    "create index ends on versions (until)",
    "create index subjects on rows (subject)",
)


def create_store(folder: Path) -> sqlite3.Connection:
    """Create a store in an empty folder, open for writing."""
    database = _connect(folder, "rwc")
    database.execute("pragma journal_mode = wal")
    for table in TABLES:
        database.execute(table)
    return database


def open_to_write(folder: Path, *, may_be_behind: bool = False) -> sqlite3.Connection:
    """Open the store of a folder; each commit waits until it is on the disk.

    Parameters
    ----------
    may_be_behind : whether to open a store that lost acknowledged commits
    """
    # A connection that may write removes a damaged write-ahead log, so the store is checked first.
    with open_to_read(folder, may_be_behind=may_be_behind) as reader:
        head, noted = head_of(reader), read_head(folder)
    if noted is not None and head.commit > noted.commit:  # its writer was killed in between
        write_head(folder, head)
    return _connect(folder, "rw")


@contextmanager
def open_to_read(folder: Path, *, may_be_behind: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the store of a folder as it is now; later edits are not visible."""
    noted = read_head(folder)
    with wrap_database_errors(folder), closing(_connect_to_read(folder)) as database:
        database.execute("begin")
        _check_tables(database, folder)
        if not may_be_behind:
            check_head(folder, noted, head_of(database))
        yield database


@contextmanager
def wrap_database_errors(folder: Path) -> Iterator[None]:
    """Turn errors of SQLite into `ModelFolderError`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise ModelFolderError(_explain(folder, error)) from error


def _explain(folder: Path, error: Exception) -> str:
    """Distinguish changed bytes from other failures, such as a full disk."""
    name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_").partition("_")[0]
    if name in NOT_DAMAGE or isinstance(error, PROGRAM_ERRORS):
        return f"The model folder {folder} cannot be used: {STORE} fails ({error})."
    return (
        f"The model folder {folder} cannot be used: {STORE} is damaged. Restore a copy of the "
        f"folder. ({error})"
    )


@contextmanager
def transaction(database: sqlite3.Connection, head: int | None = None) -> Iterator[None]:
    """Commit all statements of the block or none; they are on the disk when it has ended.

    Parameters
    ----------
    head : the edit that must still be the last one
    """
    database.execute("begin immediate")
    try:
        if head is not None and last_edit(database) != head:
            raise ModelFolderError(
                "The model was edited by another process since it was opened. Nothing was changed; "
                "open it again."
            )
        yield
    except BaseException:
        database.execute("rollback")
        raise
    database.execute("commit")


@contextmanager
def acknowledged(database: sqlite3.Connection, head: int | None = None) -> Iterator[None]:
    """A transaction that is noted outside of the SQLite file, so that its loss is noticed."""
    with transaction(database, head):
        yield
        commit = database.execute("pragma user_version").fetchone()[0] + 1
        database.execute(f"pragma user_version = {commit}")
        noted = head_of(database)
    file = database.execute("pragma database_list").fetchone()[2]
    write_head(Path(file).parent, noted)


def last_edit(database: sqlite3.Connection) -> int:
    """The number of the last edit."""
    found = database.execute("select max(edit) from log").fetchone()[0]
    if not isinstance(found, int):
        raise ModelFolderError(f"The model cannot be used: the log of {STORE} is empty.")
    return found


def _connect_to_read(folder: Path) -> sqlite3.Connection:
    database = _connect(folder, "ro")
    try:
        database.execute("select count(*) from sqlite_master").fetchone()
    except BaseException as error:
        database.close()
        is_damaged = not isinstance(error, sqlite3.OperationalError)
        if is_damaged or (folder / f"{STORE}-wal").exists():
            raise
        return _connect(folder, "ro&immutable=1")  # a read-only folder
    return database


def _connect(folder: Path, mode: str) -> sqlite3.Connection:
    path = folder / STORE
    if mode != "rwc":
        _check_files(folder)
    uri = f"file:{quote(str(path.resolve()))}?mode={mode}"
    with wrap_database_errors(folder), ExitStack() as on_error:
        database = sqlite3.connect(uri, uri=True, timeout=TIMEOUT, isolation_level=None)
        on_error.callback(database.close)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        database.execute("pragma trusted_schema = off")
        if mode.startswith("rw"):
            database.execute("pragma synchronous = full")
            database.execute("pragma secure_delete = on")
        on_error.pop_all()
    return database


def _check_files(folder: Path) -> None:
    """Check that the store exists, and that it and what SQLite reads beside it are plain files."""
    n_bytes = 0
    for name in (STORE, f"{STORE}-wal", f"{STORE}-shm", f"{STORE}-journal"):
        path = folder / name
        if name != STORE and not os.path.lexists(path):
            continue
        try:
            # Not opened: closing a file drops the locks that SQLite has on it in this process.
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode):
                raise OSError("not a regular file")
            n_bytes += found.st_size
        except FileNotFoundError as error:
            if name == STORE:  # another process may have removed the others
                why = f"it has no file {STORE}"
                raise ModelFolderError(
                    f"The model folder {folder} cannot be used: {why}."
                ) from error
        except OSError as error:
            raise ModelFolderError(
                f"The model folder {folder} cannot be used: {name} cannot be read ({error})."
            ) from error
    if n_bytes > MIN_CHECKED_BYTES:
        need, remedy = READING_FACTOR * n_bytes, "Open it on a machine with more memory."
        check_fits(f"The model in {folder}", need, remedy)


def _check_tables(database: sqlite3.Connection, folder: Path) -> None:
    """Check that a store holds our tables and nothing else: no trigger, no view."""
    with wrap_database_errors(folder):
        found = database.execute("select sql from sqlite_master where sql is not null").fetchall()
    if {row[0].lower() for row in found} != set(TABLES):
        raise ModelFolderError(
            f"The model folder {folder} cannot be used: {STORE} must hold the tables of a "
            "store and nothing else."
        )
