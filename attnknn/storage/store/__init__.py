"""The SQLite store of an edited model: entries, fitted parts, log and snapshots.

`schema` has the tables and connections, `state` reads the model after any edit, `changes` writes
an edit, `history` has the log, snapshots, undo and rollback, and `erasing` deletes a person's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from attnknn.storage.files import ModelFolder
from attnknn.storage.store.schema import last_edit, open_to_read
from attnknn.storage.store.state import StoredModel

_Result = TypeVar("_Result")


def read_store(path: Path, read: Callable[[ModelFolder], _Result]) -> _Result:
    """Apply `read` to the state after the last edit."""
    with open_to_read(path) as database:
        folder = StoredModel(path, database, last_edit(database))
    return read(folder)


def count_history(path: Path) -> tuple[int, int]:
    """The numbers of edits and of snapshots in a store."""
    with open_to_read(path) as database:
        n_snapshots = database.execute("select count(*) from snapshots").fetchone()[0]
        return last_edit(database), int(n_snapshots)
