"""Models that are edited in place: a store of record, a log, snapshots, the way back, erasure."""

from __future__ import annotations

from attnknn.durable.model import EditableModel
from attnknn.durable.opening import edits_of, open_for_editing, snapshots_of, touched_by
from attnknn.durable.receipt import Receipt

__all__ = ["EditableModel", "Receipt", "edits_of", "open_for_editing", "snapshots_of", "touched_by"]
