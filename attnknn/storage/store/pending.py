"""Receipts of erasures that were not delivered yet, kept in the store without any name."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from dataclasses import asdict, dataclass, field
from typing import Any

from attnknn.storage.names import Names
from attnknn.storage.store.schema import transaction

RECEIPT = "receipt"  # in the cache, with the number of the edit
HASH_ROUNDS = 20_000  # make it slow to find a name by trying many


@dataclass(frozen=True)
class PendingReceipt:
    """The part of a receipt that cannot be computed again once the entries are deleted.

    Parameters
    ----------
    ids : of the entries; texts only as hashes
    affected_parts : fitted parts that were trained on the entries
    n_cached_embeddings : embeddings of texts that were erased from the user's cache
    removed_classes : classes that only these entries had; texts only as hashes
    remaining_classes : those that could not be removed
    n_searched, found_in, n_compared, predictions_agree : the outcome of the verification, which
        follows the deletion
    """

    ids: list[Any]
    affected_parts: list[str]
    n_cached_embeddings: int
    removed_classes: list[Any] = field(default_factory=list)
    remaining_classes: list[Any] = field(default_factory=list)
    n_searched: int = 0
    found_in: list[str] = field(default_factory=list)
    n_compared: int = 0
    predictions_agree: bool = True


def save_pending(
    database: sqlite3.Connection, edit: int, subject: str, pending: PendingReceipt
) -> None:
    """Keep a receipt until it is delivered, with hashes of the name, text ids and classes."""
    salt = secrets.token_hex(16)
    ids, removed = (
        [_hash(each, salt) if isinstance(each, str) else each for each in values]
        for values in (pending.ids, pending.removed_classes)
    )
    found_in = [Names([subject]).erase(place) for place in pending.found_in]
    hashed = {"ids": ids, "salt": salt, "subject": _hash(subject, salt, HASH_ROUNDS)}
    content = {
        **asdict(pending),
        "removed_classes": removed,
        "found_in": found_in,
        **hashed,
    }
    line = (f"{RECEIPT} {edit}", edit, json.dumps(content).encode())
    database.execute("insert or replace into cache values (?, ?, ?)", line)


def find_pending(database: sqlite3.Connection, subject: str) -> tuple[int, PendingReceipt] | None:
    """The last erasure of a subject whose receipt was not delivered: its edit and the receipt."""
    query = "select edit, content from cache where name like ? order by edit desc"
    for edit, content in database.execute(query, (f"{RECEIPT} %",)):
        try:
            stored = json.loads(content)
            if stored.pop("subject") == _hash(subject, stored.pop("salt"), HASH_ROUNDS):
                return edit, PendingReceipt(**stored)
        except (AttributeError, KeyError, TypeError, ValueError):
            continue  # bytes that were changed
    return None


def delete_pending(database: sqlite3.Connection, edit: int) -> None:
    """Delete the pending receipt of an erasure, which was delivered."""
    with transaction(database):
        database.execute("delete from cache where name = ?", (f"{RECEIPT} {edit}",))


def _hash(text: str, salt: str, rounds: int = 1) -> str:
    content = text.encode("utf-8", "surrogatepass")
    return "sha256:" + hashlib.pbkdf2_hmac("sha256", content, salt.encode(), rounds).hex()
