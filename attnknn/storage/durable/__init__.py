"""Models that are edited in place: a store of record, a log, snapshots, the way back, erasure."""

from __future__ import annotations

from attnknn.storage.durable.model import EditableModel
from attnknn.storage.durable.opening import edits_of, open_for_editing, snapshots_of, touched_by
from attnknn.storage.durable.receipt import Receipt

__all__ = ["EditableModel", "Receipt", "edits_of", "open_for_editing", "snapshots_of", "touched_by"]
