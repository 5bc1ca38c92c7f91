"""One whole state of a served model: every answer comes from one, and edits make the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from attnknn.classifier import AttnKNNClassifier

_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class State:
    """A model as it is after an edit, and what was computed from it.

    Parameters
    ----------
    classifier : a copy that nobody edits
    version : the number of the last edit, 0 for a model that was never edited
    model : identifies the model that is edited; it changes when another one takes its place
    notes : what was stored with the model, such as the name of the target
    """

    classifier: AttnKNNClassifier
    version: int
    model: str
    notes: dict[str, str] = field(default_factory=dict)
    _derived: dict[str, Any] = field(default_factory=dict, repr=False)
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, classifier: AttnKNNClassifier, version: int, model: str, notes: dict[str, str]
    ) -> State:
        """The state of a classifier that may be edited afterwards."""
        return cls(copy(classifier), version, model, notes)

    @property
    def n_entries(self) -> int:
        """Number of entries."""
        return len(self.classifier.memory_)

    def derived(self, name: str, compute: Callable[[], _Value]) -> _Value:
        """What follows from the state, computed once; others who ask wait for it."""
        with self._locks.setdefault(name, threading.Lock()):
            if name not in self._derived:
                self._derived[name] = compute()
            value: _Value = self._derived[name]
            return value

    def known(self, name: str) -> Any:
        """What `derived` has computed, or None."""
        return self._derived.get(name)
