"""Lists of nearest others stay those that a search would find, whatever is added and forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from attnknn.memory import FaissMemory, NumpyMemory, TorchMemory, make_entries
from attnknn.memory.base import Memory
from attnknn.memory.neighbor_graph import NeighborGraph
from attnknn.memory.range_search import range_search_reference

COORDINATE = st.integers(0, 4)  # few values: rows meet, and distances tie


def from_scratch(memory: Memory, k: int):
    everyone = np.arange(len(memory))
    width = max(1, min(k, len(memory) - 1))
    return memory.search_prepared(memory.entries.embeddings, width, exclude=everyone)


def check(others: NeighborGraph, memory: Memory, k: int) -> None:
    """The same entries at the same distances in the same order."""
    kept, found = others.neighbors(memory, k), from_scratch(memory, k)
    np.testing.assert_array_equal(kept.mask, found.mask)
    np.testing.assert_array_equal(kept.positions, found.positions)
    np.testing.assert_array_equal(kept.distances, found.distances)
    np.testing.assert_array_equal(kept.labels, found.labels)


class Edits(RuleBasedStateMachine):
    """Any sequence of edits, on few rows with many ties, groups, and ids out of order."""

    memory_class: type[Memory] = NumpyMemory

    @initialize(k=st.integers(1, 4), margin=st.integers(0, 3), metric=st.sampled_from("ep"))
    def start(self, k: int, margin: int, metric: str) -> None:
        entries = make_entries([[0, 0], [1, 0], [4, 4]], [0, 1, 1], ids=[50, 10, 30])
        self.metric = {"e": "euclidean", "p": "inner_product"}[metric]
        self.memory = self.memory_class().remember(entries, self.metric)
        self.k, self.free = k, [n for n in range(200) if n not in (50, 10, 30)]
        self.others = NeighborGraph(self.memory, k, margin)

    @rule(
        rows=st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=6),
        draw=st.data(),
    )
    def add(self, rows, draw) -> None:
        ids = [self.free.pop(draw.draw(st.integers(0, len(self.free) - 1))) for _ in rows]
        groups = [draw.draw(st.sampled_from([-1, -1, 0, 1])) for _ in rows]
        labels = np.arange(len(rows)) % 2
        self.memory.add(make_entries(np.array(rows), labels, ids=ids, groups=groups))
        self.others.added(self.memory, len(rows))

    @rule(draw=st.data(), share=st.sampled_from([0.1, 0.5]))
    def forget(self, draw, share) -> None:
        n = len(self.memory)
        count = min(max(1, int(share * n)), n - 2)
        if count < 1:
            return
        chosen = draw.draw(st.permutations(range(n)))[:count]
        positions = np.array(sorted(chosen))
        ids = self.memory.entries.ids[positions]
        self.memory.forget(ids)
        self.others.forgot(self.memory, positions)
        self.free += ids.tolist()

    @rule(draw=st.data())
    def relabel(self, draw) -> None:
        who = draw.draw(st.integers(0, len(self.memory) - 1))
        self.memory.relabel([self.memory.entries.ids[who]], [draw.draw(st.integers(0, 1))])

    @invariant()
    def lists_are_those_of_a_search(self) -> None:
        if hasattr(self, "others"):
            check(self.others, self.memory, self.k)


class TorchEdits(Edits):
    memory_class = TorchMemory


MACHINE = settings(max_examples=30, stateful_step_count=15, deadline=None, derandomize=True)
TestEdits = Edits.TestCase
TestEdits.settings = MACHINE
TestTorchEdits = TorchEdits.TestCase
TestTorchEdits.settings = MACHINE


@pytest.mark.parametrize("n_queries", [1, 40])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_products_reach_whom_differences_reach(metric, n_queries, rng):
    X = rng.normal(2.0, 1.0, (3000, 16)).astype(np.float32)
    memory = TorchMemory().remember(make_entries(X, np.zeros(3000, int)), metric)
    queries = memory.prepare(rng.normal(2.0, 1.0, (n_queries, 16)))
    reach = np.quantile(memory.ranked(queries, 400)[1], 0.3) * rng.uniform(0.8, 1.2, 3000)
    reach[:20], reach[20:40] = np.inf, -np.inf
    found = memory.reached(queries, reach)
    plain = range_search_reference(queries, memory.entries.embeddings, reach, metric)
    order, other = (np.lexsort((p.positions, p.queries)) for p in (found, plain))
    np.testing.assert_array_equal(found.positions[order], plain.positions[other])
    np.testing.assert_array_equal(found.queries[order], plain.queries[other])
    np.testing.assert_array_equal(found.keys[order], plain.keys[other])
    assert len(plain.keys) > 20 * n_queries


def test_many_edits_of_many_rows(rng):
    X = rng.normal(size=(1500, 8)).round(1)
    memory = TorchMemory().remember(make_entries(X, np.arange(1500) % 3))
    others = NeighborGraph(memory, 5)
    for turn in range(12):
        new = rng.normal(size=(int(rng.integers(1, 40)), 8)).round(1)
        first = 10_000 + 100 * turn
        ids = np.arange(first, first + len(new))
        memory.add(make_entries(new, np.zeros(len(new), int), ids=ids))
        others.added(memory, len(new))
        positions = np.sort(rng.choice(len(memory), int(rng.integers(1, 60)), replace=False))
        memory.forget(memory.entries.ids[positions])
        others.forgot(memory, positions)
        check(others, memory, 5)


def test_an_index_that_may_miss_keeps_lists_that_hold_what_they_promise(rng):
    pytest.importorskip("faiss")
    X = rng.normal(size=(400, 6))
    memory = FaissMemory("hnsw").remember(make_entries(X, np.zeros(400, int)))
    others = NeighborGraph(memory, 4)
    memory.forget([3, 5])
    others.forgot(memory, np.array([3, 5]))
    memory.add(make_entries(X[[3]], [0], ids=[900]))
    others.added(memory, 1)
    kept, found = others.neighbors(memory, 4), from_scratch(memory, 4)
    assert (kept.positions == found.positions).mean() > 0.95
    assert not (kept.positions == np.arange(len(memory))[:, None]).any()


def test_lists_know_whose_they_are():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [2.0]], [0, 0, 1]))
    others = NeighborGraph(memory, 1)
    memory.relabel([0], [1])
    assert others.is_of(memory)
    memory.forget([2])
    assert not others.is_of(memory)


def test_a_list_that_was_cut_reaches_no_farther_than_its_end():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [2.0], [90.0]], [0] * 4))
    others = NeighborGraph(memory, 1, margin=1)
    for places, gone in (([0.5, 0.6], 0.6), ([1.5], 0.5)):
        ids = [int(100 * place) for place in places]
        memory.add(make_entries([[place] for place in places], [0] * len(ids), ids=ids))
        others.added(memory, len(ids))
        position = memory.positions_of([int(100 * gone)])
        memory.forget([int(100 * gone)])
        others.forgot(memory, position)
    assert others.neighbors(memory, 1).positions[0, 0] == 1  # cut off earlier, and nearer than 1.5
