"""Erasures whose receipt was not handed out yet: enough to write it, and no name in clear."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from dataclasses import asdict, dataclass
from typing import Any

from attnknn.storage.store.schema import transaction

RECEIPT = "receipt"  # in the cache, with the number of the edit
ROUNDS = 20_000  # of hashing, so that a name is not found by trying many


@dataclass(frozen=True)
class Pending:
    """What a receipt says that cannot be found again once the entries are gone.

    Parameters
    ----------
    ids : of the entries; texts only as hashes
    seen_by : fitted parts that had seen the entries
    n_cached : embeddings of texts that were erased from the user's cache
    """

    ids: list[Any]
    seen_by: list[str]
    n_cached: int


def note(database: sqlite3.Connection, edit: int, subject: str, pending: Pending) -> None:
    """Keep what the receipt of an erasure needs; within the transaction of the erasure."""
    salt = secrets.token_hex(16)
    ids = [_hashed(each, salt) if isinstance(each, str) else each for each in pending.ids]
    noted = {**asdict(pending), "ids": ids, "salt": salt, "subject": _hashed(subject, salt, ROUNDS)}
    line = (f"{RECEIPT} {edit}", edit, json.dumps(noted).encode())
    database.execute("insert or replace into cache values (?, ?, ?)", line)


def noted_of(database: sqlite3.Connection, subject: str) -> tuple[int, Pending] | None:
    """The last erasure of a subject that has no receipt yet: its edit, and what was noted."""
    query = "select edit, content from cache where name like ? order by edit desc"
    for edit, content in database.execute(query, (f"{RECEIPT} %",)):
        pending = _read(content, subject)
        if pending is not None:
            return edit, pending
    return None


def _read(content: bytes, subject: str) -> Pending | None:
    """What was noted; None if it is about others, or its bytes were changed."""
    try:
        noted = json.loads(content)
        is_theirs = noted.pop("subject") == _hashed(subject, noted.pop("salt"), ROUNDS)
        return Pending(**noted) if is_theirs else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def drop(database: sqlite3.Connection, edit: int) -> None:
    """The receipt of an erasure is handed out."""
    with transaction(database):
        database.execute("delete from cache where name = ?", (f"{RECEIPT} {edit}",))


def _hashed(text: str, salt: str, rounds: int = 1) -> str:
    content = text.encode("utf-8", "surrogatepass")
    return "sha256:" + hashlib.pbkdf2_hmac("sha256", content, salt.encode(), rounds).hex()
