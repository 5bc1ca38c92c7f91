"""The contract of memories."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from sklearn.base import clone

from attnknn.errors import AttnKNNError
from attnknn.memory import METRICS, Entries, Memory, NumpyMemory, make_entries
from attnknn.records import Neighbors

CLOSE = 1e-5  # relative; a memory may compare in float32


def check_memory(memory: Memory, *, random_state: int = 0) -> None:
    """Check that a memory keeps the contract of `attnknn.memory.Memory`.

    An approximate memory (`is_exact` is False) may miss neighbors, but the distances, labels and
    order of those that it returns must be right.

    Parameters
    ----------
    memory : Memory
        The memory, which is cloned and stays unchanged.
    random_state : int, default=0
        Seed of the test vectors.

    Raises
    ------
    AssertionError
        With a sentence that says what is wrong.

    Examples
    --------
    >>> from attnknn.memory import TorchMemory
    >>> check_memory(TorchMemory())
    """
    for metric in METRICS:
        case = Case(memory, metric, random_state)
        for check in CHECKS:
            check(case)


@dataclass(frozen=True)
class Case:
    """A memory to clone, a metric, and the seed of test vectors."""

    memory: Memory
    metric: str
    random_state: int

    def remembering(self, entries: Entries) -> Memory:
        return cast(Memory, clone(self.memory)).remember(entries, self.metric)

    def reference(self, entries: Entries) -> Memory:
        return NumpyMemory().remember(entries, self.metric)

    def vectors(self, n: int, width: int = 5) -> np.ndarray:
        return np.random.default_rng(self.random_state).standard_normal((n, width)) + 0.5

    def entries(self, n: int = 60) -> Entries:
        return make_entries(
            self.vectors(n), np.arange(n) % 4, ids=1000 - 3 * np.arange(n), groups=np.arange(n) // 7
        )


def _agrees_with_reference(case: Case) -> None:
    entries, queries = case.entries(), case.vectors(75)[60:]
    memory, reference = case.remembering(entries), case.reference(entries)
    for k in (1, 7, 60):
        found, expected = memory.search(queries, k), reference.search(queries, k)
        _expect_true(memory, reference, queries, found)
        if memory.is_exact:
            _expect_close(found.distances, expected.distances, "the distances of the reference")
            _expect((found.mask == expected.mask).all(), "A search must find all entries.")


def _batch_does_not_matter(case: Case) -> None:
    entries, queries = case.entries(), case.vectors(70)[60:]
    memory = case.remembering(entries)
    together = memory.search(queries, 5)
    for row in range(len(queries)):
        alone = memory.search(queries[row : row + 1], 5)
        _expect_same(
            alone,
            together.rows([row]),
            "A query must have the same neighbors alone and in a batch.",
        )


def _ties_go_by_id(case: Case) -> None:
    vectors = np.repeat([[1.0, 2.0], [2.0, 1.0]], 20, axis=0)
    ids = np.random.default_rng(case.random_state).permutation(40)
    memory = case.remembering(make_entries(vectors, np.zeros(40), ids=ids))
    found = memory.search([[1.0, 2.0]], 12)
    chosen = memory.entries.ids[found.positions[0]]
    _expect((np.diff(chosen) > 0).all(), "Entries at the same distance must come in order of id.")
    if memory.is_exact:
        first = chosen if case.metric == "inner_product" else np.sort(ids[:20])[:12]
        _expect((chosen == first).all(), "Of entries at the same distance the lowest ids must win.")


def _order_of_entries_does_not_matter(case: Case) -> None:
    entries, queries = case.entries(), case.vectors(70)[60:]
    shuffled = entries.take(np.random.default_rng(case.random_state).permutation(len(entries)))
    one, other = case.remembering(entries), case.remembering(shuffled)
    if one.is_exact:
        first, second = one.search(queries, 9), other.search(queries, 9)
        same = one.entries.ids[first.positions] == other.entries.ids[second.positions]
        _expect(bool(same.all()), "Permuting the entries must not change the neighbors.")
        _expect_close(first.distances, second.distances, "the same distances in any order")


def _excludes_itself_and_its_group(case: Case) -> None:
    memory = case.remembering(case.entries())
    own = np.arange(len(memory))
    found = memory.search_prepared(memory.vectors.all(), 60, exclude=own)
    is_own = memory.entries.groups[found.positions] == memory.entries.groups[own][:, None]
    _expect(not (is_own & found.mask).any(), "An excluded query must not find itself or its group.")
    sizes = np.bincount(memory.entries.groups)[memory.entries.groups]
    complete = found.mask.sum(axis=1) == len(memory) - sizes
    _expect(bool(complete.all()), "Exclusion must leave out nothing but the query and its group.")


def _missing_places_are_masked(case: Case) -> None:
    entries = make_entries(case.vectors(3), [5, 6, 7], groups=[1, 1, -1])
    memory = case.remembering(entries)
    found = memory.search_prepared(memory.vectors[:1], 3, exclude=np.array([0]))
    _expect(found.mask.tolist() == [[True, False, False]], "A missing place must be masked.")
    _expect(found.labels[0, 0] == 7, "The entry left over must keep its label.")
    _expect(
        bool(np.isinf(found.distances[0, 1:]).all()),
        "A missing place must be at infinite distance.",
    )


def _k_beyond_the_memory_returns_all(case: Case) -> None:
    memory = case.remembering(case.entries(6))
    found = memory.search(case.vectors(2), 50)
    everyone = np.sort(found.positions, axis=1) == np.arange(6)
    _expect(found.mask.shape == (2, 6), "A `k` beyond the memory must return every entry once.")
    _expect(bool(found.mask.all() and everyone.all()), "Every entry must be found exactly once.")


def _empty_memory_works(case: Case) -> None:
    nothing = case.entries(6).take(np.zeros(6, dtype=bool))
    memory = case.remembering(nothing)
    _expect(
        memory.search(case.vectors(2), 3).mask.shape == (2, 0),
        "An empty memory must return no neighbors.",
    )
    memory.add(case.entries(6))
    _expect_as_if(memory, case.remembering(case.entries(6)), case, "Adding to an empty memory")
    memory.forget(memory.entries.ids)
    _expect(len(memory) == 0, "Forgetting every id must leave an empty memory.")
    _expect(
        memory.search(case.vectors(2), 3).mask.shape == (2, 0),
        "An empty memory must return no neighbors.",
    )


def _add_then_forget_cancels_out(case: Case) -> None:
    entries = case.entries()
    memory = case.remembering(entries.take(np.arange(40)))
    memory.add(entries.take(np.arange(40, 60)))
    if memory.is_exact:
        _expect_as_if(memory, case.remembering(entries), case, "Adding entries")
    memory.forget(entries.ids[40:])
    _expect_as_if(memory, case.remembering(entries.take(np.arange(40))), case, "Add then forget")
    memory.forget(entries.ids[[3, 3, 0]])
    _expect(len(memory) == 38, "An id given twice must be forgotten once.")
    _expect(
        not np.isin(entries.ids[[3, 0]], memory.entries.ids).any(), "Forgotten ids must be gone."
    )


def _relabel_changes_labels_only(case: Case) -> None:
    memory, queries = case.remembering(case.entries()), case.vectors(70)[60:]
    before = memory.search(queries, 9)
    memory.relabel(memory.entries.ids, np.full(len(memory), 9))
    after = memory.search(queries, 9)
    _expect(bool((after.labels == 9).all()), "A search must return the latest labels.")
    same = np.array_equal(before.positions, after.positions)
    _expect(same, "New labels must not change the neighbors.")


def _refused_edits_change_nothing(case: Case) -> None:
    entries = case.entries()
    memory = case.remembering(entries.take(np.arange(40)))
    novel = make_entries(case.vectors(2, width=3), [0, 0], ids=[-1, -2])
    known = make_entries(case.vectors(2), [0, 0], ids=[-1, int(entries.ids[0])])
    refused: dict[str, Callable[[], object]] = {
        "forget an unknown id": lambda: memory.forget([entries.ids[0], 12345]),
        "relabel an unknown id": lambda: memory.relabel([entries.ids[0], 12345], [1, 1]),
        "look up an unknown id": lambda: memory.positions_of(["nobody"]),
        "add an id it holds": lambda: memory.add(known),
        "add vectors of another width": lambda: memory.add(novel),
        "search with another width": lambda: memory.search(np.zeros((1, 3)), 2),
        "search for no neighbors": lambda: memory.search(case.vectors(1), 0),
    }
    for what, action in refused.items():
        try:
            action()
        except AttnKNNError:
            pass
        else:
            raise AssertionError(f"{type(memory).__name__} must refuse to {what}.")
    never = case.remembering(entries.take(np.arange(40)))
    _expect_as_if(memory, never, case, "A refused edit")


def _can_be_cloned_and_pickled(case: Case) -> None:
    memory = case.remembering(case.entries())
    memory.search(case.vectors(1), 3)
    _expect(len(cast(Memory, clone(memory))) == 0, "A clone must have the settings, not entries.")
    restored = pickle.loads(pickle.dumps(memory))
    _expect_as_if(restored, memory, case, "Pickling")


CHECKS: tuple[Callable[[Case], None], ...] = (
    _agrees_with_reference,
    _batch_does_not_matter,
    _ties_go_by_id,
    _order_of_entries_does_not_matter,
    _excludes_itself_and_its_group,
    _missing_places_are_masked,
    _k_beyond_the_memory_returns_all,
    _empty_memory_works,
    _add_then_forget_cancels_out,
    _relabel_changes_labels_only,
    _refused_edits_change_nothing,
    _can_be_cloned_and_pickled,
)


def _expect_true(memory: Memory, reference: Memory, queries: np.ndarray, found: Neighbors) -> None:
    """Neighbors are sorted, without repeats, with true distances and labels."""
    everyone = reference.search(queries, len(reference))
    truth = np.empty(everyone.distances.shape)
    np.put_along_axis(truth, everyone.positions, everyone.distances, axis=1)
    stated = np.take_along_axis(truth, found.positions, axis=1)
    _expect_close(found.distances[found.mask], stated[found.mask], "each entry's true distance")
    with np.errstate(invalid="ignore"):
        is_sorted = not (np.diff(found.distances, axis=1) < 0).any()
    _expect(is_sorted, "Neighbors must come nearest first.")
    repeated = any(len(set(row)) < len(row) for row in found.positions.tolist())
    _expect(not (repeated and found.mask.all()), "An entry must not be found twice.")
    labels = memory.entries.labels[found.positions]
    _expect(
        bool((labels == found.labels)[found.mask].all()), "Labels must be those of the entries."
    )


def _expect_as_if(one: Memory, other: Memory, case: Case, what: str) -> None:
    for name in ("ids", "labels", "groups", "effective_weight", "held_out"):
        same = np.array_equal(getattr(one.entries, name), getattr(other.entries, name))
        _expect(same, f"{what} must leave the right `{name}`.")
    if one.is_exact:
        queries = case.vectors(75)[60:]
        first, second = one.search(queries, 9), other.search(queries, 9)
        _expect_close(
            first.distances, second.distances, f"the same distances as without the edit: {what}"
        )
        _expect(np.array_equal(first.labels, second.labels), f"{what} must not change labels.")


def _expect_same(one: Neighbors, other: Neighbors, sentence: str) -> None:
    for name in ("positions", "labels", "mask"):
        _expect(np.array_equal(getattr(one, name), getattr(other, name)), sentence)
    _expect(np.allclose(one.distances, other.distances, rtol=CLOSE, atol=CLOSE), sentence)


def _expect_close(one: np.ndarray, other: np.ndarray, what: str) -> None:
    same = one.shape == other.shape and np.allclose(one, other, rtol=CLOSE, atol=CLOSE)
    _expect(same, f"A search must return {what}.")


def _expect(condition: bool, sentence: str) -> None:
    if not condition:
        raise AssertionError(sentence)
