"""The entries of a model that is edited, in one SQLite file: every edit whole, every state kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from attnknn.storage.folder import has_store
from attnknn.storage.reading import ModelFolder
from attnknn.storage.store.schema import last_edit, open_to_read
from attnknn.storage.store.state import StoredModel

__all__ = ["has_store", "kept_by", "read_store"]

_Result = TypeVar("_Result")


def read_store(path: Path, read: Callable[[ModelFolder], _Result]) -> _Result:
    """What `read` makes of the state after the last edit."""
    with open_to_read(path) as database:
        folder = StoredModel(path, database, last_edit(database))
    return read(folder)


def kept_by(path: Path) -> tuple[int, int]:
    """How many edits and how many snapshots a store keeps."""
    with open_to_read(path) as database:
        n_snapshots = database.execute("select count(*) from snapshots").fetchone()[0]
        return last_edit(database), int(n_snapshots)
