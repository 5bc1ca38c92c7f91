"""Labels that a reviewer looked at and kept: a decision that is stored like an edit.

Kept are hashes of ids with their labels, in a note of the model. So a note names nobody whose
entries were erased, and a decision ends when the label of the entry changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from attnknn.classifier import AttnKNNClassifier
from attnknn.insight import Audit, audit
from attnknn.records import Booleans
from attnknn.serving.state import State

NOTE = "kept_labels"
MAX_KEPT = 5000  # the oldest are forgotten


def keep(notes: dict[str, str], classifier: AttnKNNClassifier, ids: Iterable[Any]) -> None:
    """Note that the labels of entries are right."""
    asked = list(ids)
    entries = classifier.memory_.entries
    codes = entries.labels[classifier.memory_.positions_of(asked)]
    labels = classifier.classes_[codes].tolist()
    new = [_mark(name, label) for name, label in zip(asked, labels, strict=True)]
    known = [mark for mark in _marks(notes) if mark not in set(new)]
    notes[NOTE] = json.dumps([*known, *dict.fromkeys(new)][-MAX_KEPT:])


def are_kept(state: State) -> Booleans:
    """Which entries have a label that was looked at and kept."""
    return state.derived("kept", lambda: _are_kept(state))


def audit_of(state: State) -> Audit:
    """The audit of a state, computed once."""
    return state.derived("audit", lambda: audit(state.classifier))


def _are_kept(state: State) -> Booleans:
    marks = set(_marks(state.notes))
    if not marks:
        return np.zeros(state.n_entries, dtype=bool)
    entries = state.classifier.memory_.entries
    labels = state.classifier.classes_[entries.labels].tolist()
    pairs = zip(entries.ids.tolist(), labels, strict=True)
    return np.array([_mark(name, label) in marks for name, label in pairs], dtype=bool)


def _marks(notes: dict[str, str]) -> list[str]:
    try:
        found = json.loads(notes.get(NOTE, "[]"))
    except ValueError:
        return []
    return [mark for mark in found if isinstance(mark, str)] if isinstance(found, list) else []


def _mark(name: Any, label: Any) -> str:
    return hashlib.blake2b(f"{name!r} {label!r}".encode(), digest_size=8).hexdigest()
