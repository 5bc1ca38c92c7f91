"""The contract of memories that several processes share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from attnknn.errors import AttnKNNError
from attnknn.memory import Entries, Memory, NumpyMemory, make_entries
from attnknn.testing.memory import check_memory

CLOSE = 1e-6
N_EDITS = 5


def check_remote_memory(
    make: Callable[[str], Any],
    *,
    restart: Callable[[], None] | None = None,
    cut: Callable[[], None] | None = None,
    random_state: int = 0,
) -> None:
    """Check that a memory in a database keeps the contract of memories that are shared.

    It must also keep the contract of all memories, see `check_memory`. The entries that the checks
    make are not removed from the database.

    Parameters
    ----------
    make : callable
        Takes a name and returns a memory for the model of that name, which is not opened yet; an
        empty name is a model that nobody else sees. Another process must be able to import it.
    restart : callable, default=None
        Ends the server abruptly and starts it again; None skips the check.
    cut : callable, default=None
        Cuts all connections of clients; None skips the check.
    random_state : int, default=0
        Seed of the test vectors.

    Raises
    ------
    AssertionError
        With a sentence that says what is wrong.

    Examples
    --------
    >>> from attnknn.memory import PostgresMemory
    >>> def make(name):
    ...     return PostgresMemory(f"postgres://ann@db.example/data?model={name}")
    >>> check_remote_memory(make)  # doctest: +SKIP
    """
    check_memory(make(""), random_state=random_state)
    for check in CHECKS:
        check(_Case(make, f"check-{uuid.uuid4().hex[:12]}", random_state))
    for disturb in (restart, cut):
        if disturb is not None:
            _survives(_Case(make, f"check-{uuid.uuid4().hex[:12]}", random_state), disturb)


@dataclass(frozen=True)
class _Case:
    """A maker of memories, a name that nobody has used, and the seed of test vectors."""

    make: Callable[[str], Any]
    name: str
    random_state: int

    def vectors(self, n: int) -> np.ndarray:
        return np.random.default_rng(self.random_state).standard_normal((n, 5)) + 0.5

    def entries(self, n: int, first: int = 0) -> Entries:
        rows = np.arange(first, first + n)
        return make_entries(self.vectors(first + n)[first:], rows % 3, ids=rows, groups=rows // 4)

    def stored(self, n: int = 40) -> Memory:
        """The first `n` entries, in the database."""
        memory: Memory = self.make(self.name).remember(self.entries(n))
        memory.commit()
        return memory

    def opened(self) -> Memory:
        """The same model, as another process would open it."""
        memory: Memory = self.make(self.name).open()
        return memory


def _edits_reach_others_when_they_are_committed(case: _Case) -> None:
    one = case.stored()
    other = case.opened()
    one.add(case.entries(3, first=100))
    one.relabel([0, 1], [2, 2])
    one.forget([5])
    _expect(not other.follow(), "An edit that was not committed must not be seen by others.")
    one.commit()
    _expect(len(other) == 40, "A memory must stay at its state until it follows.")
    _expect(other.follow(), "`follow` must find the edits that others committed.")
    _expect_alike(one, other, case)
    _expect(not other.follow(), "`follow` must be done once there is nothing new.")


def _a_state_stays_whole_while_others_edit(case: _Case) -> None:
    one = case.stored()
    other = case.opened()
    before = copy(other)
    expected = before.search(case.vectors(60)[50:], 9)
    one.forget(np.arange(0, 40, 2))
    one.add(case.entries(30, first=200))
    one.commit()
    other.follow()
    found = before.search(case.vectors(60)[50:], 9)
    same = np.array_equal(
        before.entries.ids[found.positions], np.asarray(before.entries.ids)[expected.positions]
    )
    _expect(same, "A copy of an earlier state must find what it found before the edits of others.")


def _edits_of_several_are_all_kept(case: _Case) -> None:
    one = case.stored()
    other = case.opened()
    for edit in range(N_EDITS):
        one.add(case.entries(2, first=100 + 10 * edit))
        other.add(case.entries(2, first=500 + 10 * edit))
        one.forget([edit])
        other.relabel([10 + edit], [1])
        one.commit()
        other.commit()
    one.follow()
    other.follow()
    _expect(len(one) == 40 + 4 * N_EDITS - N_EDITS, "No edit of two writers may be lost.")
    _expect_alike(one, other, case)


def _another_process_edits(case: _Case) -> None:
    memory = case.stored()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(_edit_elsewhere, case).result()
    _expect(memory.follow(), "The edits of another process must be found.")
    _expect(bool(np.isin([300, 301, 302], memory.entries.ids).all()), "Its entries must be there.")
    _expect(0 not in memory.entries.ids, "An entry that it forgot must be gone.")
    _expect_alike(memory, case.opened(), case)


def _edit_elsewhere(case: _Case) -> None:
    memory = case.opened()
    memory.add(case.entries(3, first=300))
    memory.forget([0])
    memory.commit()


def _an_id_is_added_once(case: _Case) -> None:
    one = case.stored()
    other = case.opened()
    for memory in (one, other):
        memory.add(case.entries(1, first=100))
    one.commit()
    try:
        other.commit()
    except AttnKNNError:
        pass
    else:
        raise AssertionError("Of two entries with one id the second must be refused.")
    found = case.opened()
    _expect(len(found) == 41, "A refused edit must change nothing.")


def _a_detached_copy_is_never_written(case: _Case) -> None:
    memory = case.stored()
    trial = memory.detached()
    trial.forget(np.arange(10))
    trial.commit()
    _expect(len(trial) == 30, "A detached copy must show its own edits.")
    _expect(len(case.opened()) == 40, "The edits of a detached copy must not be written.")


def _vectors_are_read_by_position(case: _Case) -> None:
    memory, reference = case.stored(), NumpyMemory().remember(case.entries(40))
    memory.add(case.entries(4, first=100))
    reference.add(case.entries(4, first=100))
    for positions in (np.array([[3, 3], [42, 0]]), np.arange(44) % 5 == 0, slice(2, 43, 7)):
        same = np.array_equal(memory.vectors[positions], reference.vectors[positions])
        _expect(same, "Vectors must be those of the positions, to the last bit.")


def _survives(case: _Case, disturb: Callable[[], None]) -> None:
    memory = case.stored()
    memory.search(case.vectors(1), 3)
    disturb()
    queries = case.vectors(60)[50:]
    found = memory.search(queries, 5)
    expected = NumpyMemory().remember(case.entries(40)).search(queries, 5)
    close = np.allclose(found.distances, expected.distances, rtol=CLOSE, atol=CLOSE)
    _expect(close, "A search after a lost connection must find what it found before.")
    memory.add(case.entries(2, first=100))
    memory.commit()
    _expect(len(case.opened()) == 42, "An edit after a lost connection must be kept.")


CHECKS: tuple[Callable[[_Case], None], ...] = (
    _edits_reach_others_when_they_are_committed,
    _a_state_stays_whole_while_others_edit,
    _edits_of_several_are_all_kept,
    _another_process_edits,
    _an_id_is_added_once,
    _a_detached_copy_is_never_written,
    _vectors_are_read_by_position,
)


def _expect_alike(one: Memory, other: Memory, case: _Case) -> None:
    for name in ("ids", "labels", "groups", "sample_weight", "held_out"):
        same = np.array_equal(getattr(one.entries, name), getattr(other.entries, name))
        _expect(same, f"Two memories of one model must have the same `{name}`.")
    queries = case.vectors(60)[50:]
    first, second = one.search(queries, 9), other.search(queries, 9)
    same = np.array_equal(first.positions, second.positions)
    _expect(same, "Two memories of one model must find the same entries.")


def _expect(condition: bool, sentence: str) -> None:
    if not condition:
        raise AssertionError(sentence)
