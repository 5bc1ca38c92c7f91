"""Changes of a classifier become one transaction of its store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from attnknn.records import Floats, Integers
from attnknn.storage.folder import STORE_VERSION
from attnknn.storage.store.changes import Change, Kept, rows_of, sha256_of, versions_of
from attnknn.storage.store.history import write_log
from attnknn.storage.store.schema import create_store, transaction
from attnknn.storage.store.state import TRUST, digest_of, trust_to_bytes
from attnknn.storage.writing import write_manifest


def write_store(folder: Path, kept: Kept, trust: Floats | None, by: str) -> None:
    """Fill an empty folder with a store: the model as it is, edit number 0."""
    database = create_store(folder)
    try:
        with transaction(database):
            everyone = np.arange(len(kept.entries))
            _insert_rows(database, kept, everyone, 0, first_seq=0)
            for name, content in kept.parts.items():
                _insert_part(database, name, content, 0, 0)
            words = f"Opened for editing with {len(everyone):,} entries"
            write_log(database, 0, 0, by, "create", words, kept.next_id)
            if trust is not None:
                write_trust(database, trust, 0)
    finally:
        database.close()
    write_manifest(folder, {"version": STORE_VERSION, "files": {}})


def write_change(
    database: sqlite3.Connection,
    change: Change,
    kept: Kept,
    seqs: Integers,
    head: int,
    *,
    by: str,
    words: str,
    is_refit: bool,
) -> Integers:
    """Commit a change; returns the seqs of the entries after it.

    Parameters
    ----------
    kept : what is to be kept now
    seqs : of the entries before, in their order
    head : the edit that this one follows; it must still be the last
    is_refit : whether parts were fitted again, and did not only make room for a class
    """
    edit = head + 1
    ended = np.concatenate([seqs[change.removed], seqs[change.changed_before]])
    with transaction(database, head):
        database.executemany(
            "update versions set until = ? where seq = ? and until is null",
            [(edit, seq) for seq in ended.tolist()],
        )
        again = zip(
            seqs[change.changed_before].tolist(), versions_of(kept, change.changed), strict=True
        )
        _insert_versions(database, edit, again)
        last = database.execute("select coalesce(max(seq), -1) from rows").fetchone()[0]
        added = _insert_rows(database, kept, change.added, edit, first_seq=last + 1)
        for name in change.dropped:
            _end_part(database, name, edit)
        for name, content in change.parts.items():
            made = _end_part(database, name, edit)
            _insert_part(database, name, content, edit, edit if is_refit else made)
        write_log(database, edit, edit, by, "edit", words, kept.next_id)
    return np.concatenate([seqs[~change.removed], added])


def write_trust(database: sqlite3.Connection, trust: Floats, edit: int) -> None:
    """Keep what can be found again, so that it need not be."""
    line = (TRUST, edit, trust_to_bytes(trust))
    database.execute("insert or replace into cache values (?, ?, ?)", line)


def _insert_rows(
    database: sqlite3.Connection, kept: Kept, positions: Integers, edit: int, first_seq: int
) -> Integers:
    seqs = np.arange(first_seq, first_seq + len(positions))
    rows = zip(seqs.tolist(), rows_of(kept, positions), strict=True)
    database.executemany(
        "insert into rows values (?, ?, ?, ?, ?, ?, ?)",
        [(seq, *row, digest_of(seq, *row)) for seq, row in rows],
    )
    _insert_versions(database, edit, zip(seqs.tolist(), versions_of(kept, positions), strict=True))
    return seqs


def _insert_versions(
    database: sqlite3.Connection, edit: int, versions: Iterable[tuple[int, tuple[object, ...]]]
) -> None:
    database.executemany(
        "insert into versions values (?, ?, null, ?, ?, ?, ?, ?)",
        [(seq, edit, *version, digest_of(seq, *version)) for seq, version in versions],
    )


def _end_part(database: sqlite3.Connection, name: str, edit: int) -> int:
    """The edit in which the part was fitted that is valid no longer; this one if there is none."""
    found = database.execute("select made from parts where name = ? and until is null", (name,))
    made = found.fetchone()
    database.execute("update parts set until = ? where name = ? and until is null", (edit, name))
    return edit if made is None else int(made[0])


def _insert_part(
    database: sqlite3.Connection, name: str, content: bytes, edit: int, made: int
) -> None:
    part = (name, edit, made, sha256_of(content), content)
    database.execute("insert into parts values (?, ?, null, ?, ?, ?)", part)
