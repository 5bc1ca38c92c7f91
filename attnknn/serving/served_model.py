"""What the server asks of a model: a whole state to read, and edits one at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidInputError
from attnknn.serving.state import State
from attnknn.storage.erasure import Receipt
from attnknn.storage.store.history import EditRecord, EntryChange, Snapshot

MAX_CHECKED_EDITS = 500  # edits that are looked through for a conflict


class ConflictError(InvalidInputError):
    """An edit of entries that changed since the client looked at them."""


@dataclass(frozen=True)
class Edit:
    """An edit to make.

    Parameters
    ----------
    change : edits the classifier
    by : who edits
    message : for the log; empty lets the model describe the edit
    ids : the entries that the edit is about
    expected_version : the version that the author saw; None does not check
    annotate : changes the notes of the model, after the classifier
    """

    change: Callable[[AttnKNNClassifier], Any]
    by: str
    message: str = ""
    ids: Iterable[Any] = ()
    expected_version: int | None = None
    annotate: Callable[[dict[str, str], AttnKNNClassifier], Any] | None = None


class ServedModel(ABC):
    """A model that is read by many and edited by one at a time.

    `state` may be read from any thread. The other methods are called from one thread, the
    writer's, and block.
    """

    name: str
    is_durable: bool

    @property
    @abstractmethod
    def state(self) -> State:
        """The last whole state."""

    @abstractmethod
    def edit(self, edit: Edit) -> tuple[State, str]:
        """Make an edit: the state after it, and what the log says; "" if nothing changed."""

    @abstractmethod
    def undo(self, by: str, expected_version: int | None) -> tuple[State, str]:
        """Undo the last edit that was not undone yet."""

    @abstractmethod
    def rollback(self, to: str | int, by: str, expected_version: int | None) -> tuple[State, str]:
        """Restore the state of a snapshot or after an edit."""

    @abstractmethod
    def take_snapshot(self, name: str, by: str) -> Snapshot:
        """Give the current state a name."""

    @abstractmethod
    def erase(self, subject: str, by: str) -> tuple[State, Receipt | None]:
        """Erase all entries of a person; a receipt if the model is on the disk."""

    @abstractmethod
    def log(self) -> list[EditRecord]:
        """All edits, the first one first."""

    @abstractmethod
    def changes(self, edit: int) -> list[EntryChange]:
        """What an edit did to each entry."""

    @abstractmethod
    def added_by(self, state: State) -> dict[Any, int]:
        """The edit that added each entry, by its id, as far as this is known."""

    @abstractmethod
    def snapshots(self) -> list[Snapshot]:
        """All snapshots."""

    @abstractmethod
    def refresh(self) -> bool:
        """Notice edits that others made; whether there were any."""

    @abstractmethod
    def release(self) -> None:
        """Let others edit."""

    def refuse_conflict(self, edit: Edit) -> None:
        """Raise if an entry of the edit changed since the version that its author saw."""
        head, seen = self.state.version, edit.expected_version
        if seen is None or seen == head:
            return
        if seen > head or head - seen > MAX_CHECKED_EDITS:
            raise ConflictError(
                f"The model is at version {head}, and the edit was made for version {seen}. Load "
                "the model again, and repeat the edit."
            )
        wanted = set(edit.ids)
        for number in range(seen + 1, head + 1):
            changed = next((c.id for c in self.changes(number) if c.id in wanted), None)
            if changed is not None:
                raise ConflictError(
                    f"The entry {changed!r} was changed by edit {number}, after version {seen}, "
                    "which the edit was made for. Look at the entry again, and repeat the edit."
                )

    def refuse_other_version(self, seen: int | None) -> None:
        """Raise if the model is not at the version that the author of an edit saw."""
        if seen is not None and seen != self.state.version:
            raise ConflictError(
                f"The model is at version {self.state.version}, not at version {seen}. Look at "
                "the log again, and repeat the edit."
            )


def refuse_empty(classifier: AttnKNNClassifier) -> None:
    """Raise if an edit left no entries."""
    if not len(classifier.memory_):
        raise InvalidInputError("A model must keep at least one entry; this removes all.")


def undo_target(log: list[EditRecord]) -> EditRecord | None:
    """The edit that undo would take back, if there is one."""
    last = log[-1]
    target = log[last.undo_target]
    return None if last.action == "erase" or target.edit == 0 else target
