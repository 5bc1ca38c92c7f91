"""Lists of nearest graph stay those that a search would find, whatever is added and forgotten."""

from __future__ import annotations

import pickle
import threading
from copy import copy, deepcopy

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
    return memory.search_prepared(memory.vectors.all(), width, exclude=everyone)


def check(graph: NeighborGraph, memory: Memory, k: int) -> None:
    """The same entries at the same distances in the same order."""
    kept, found = graph.neighbors(memory, k), from_scratch(memory, k)
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
        self.graph = NeighborGraph(self.memory, k, margin)

    @rule(
        rows=st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=6),
        draw=st.data(),
    )
    def add(self, rows, draw) -> None:
        ids = [self.free.pop(draw.draw(st.integers(0, len(self.free) - 1))) for _ in rows]
        groups = [draw.draw(st.sampled_from([-1, -1, 0, 1])) for _ in rows]
        labels = np.arange(len(rows)) % 2
        self.memory.add(make_entries(np.array(rows), labels, ids=ids, groups=groups))
        self.graph.add_entries(self.memory, len(rows))

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
        self.graph.remove_entries(self.memory, positions)
        self.free += ids.tolist()

    @rule(draw=st.data())
    def relabel(self, draw) -> None:
        who = draw.draw(st.integers(0, len(self.memory) - 1))
        self.memory.relabel([self.memory.entries.ids[who]], [draw.draw(st.integers(0, 1))])

    @invariant()
    def lists_are_those_of_a_search(self) -> None:
        if hasattr(self, "graph"):
            check(self.graph, self.memory, self.k)


class TorchEdits(Edits):
    memory_class = TorchMemory


MACHINE = settings(max_examples=30, stateful_step_count=15, deadline=None, derandomize=True)
TestEdits = Edits.TestCase
TestEdits.settings = MACHINE
TestTorchEdits = TorchEdits.TestCase
TestTorchEdits.settings = MACHINE


@pytest.mark.parametrize("n_queries", [1, 40])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_range_search_by_products_agrees_with_the_reference(metric, n_queries, rng):
    X = rng.normal(2.0, 1.0, (3000, 16)).astype(np.float32)
    memory = TorchMemory().remember(make_entries(X, np.zeros(3000, int)), metric)
    queries = memory.prepare(rng.normal(2.0, 1.0, (n_queries, 16)))
    radii = np.quantile(memory.search_keys(queries, 400)[1], 0.3) * rng.uniform(0.8, 1.2, 3000)
    radii[:20], radii[20:40] = np.inf, -np.inf
    found = memory.range_search(queries, radii)
    plain = range_search_reference(queries, memory.vectors.all(), radii, metric)
    order, other = (np.lexsort((p.positions, p.queries)) for p in (found, plain))
    np.testing.assert_array_equal(found.positions[order], plain.positions[other])
    np.testing.assert_array_equal(found.queries[order], plain.queries[other])
    np.testing.assert_array_equal(found.keys[order], plain.keys[other])
    assert len(plain.keys) > 20 * n_queries


def test_many_edits_of_many_rows(rng):
    X = rng.normal(size=(1500, 8)).round(1)
    memory = TorchMemory().remember(make_entries(X, np.arange(1500) % 3))
    graph = NeighborGraph(memory, 5)
    for turn in range(12):
        new = rng.normal(size=(int(rng.integers(1, 40)), 8)).round(1)
        first = 10_000 + 100 * turn
        ids = np.arange(first, first + len(new))
        memory.add(make_entries(new, np.zeros(len(new), int), ids=ids))
        graph.add_entries(memory, len(new))
        positions = np.sort(rng.choice(len(memory), int(rng.integers(1, 60)), replace=False))
        memory.forget(memory.entries.ids[positions])
        graph.remove_entries(memory, positions)
        check(graph, memory, 5)


def test_an_approximate_index_keeps_nearly_the_lists_of_a_search(rng):
    pytest.importorskip("faiss")
    X = rng.normal(size=(400, 6))
    memory = FaissMemory("hnsw").remember(make_entries(X, np.zeros(400, int)))
    graph = NeighborGraph(memory, 4)
    memory.forget([3, 5])
    graph.remove_entries(memory, np.array([3, 5]))
    memory.add(make_entries(X[[3]], [0], ids=[900]))
    graph.add_entries(memory, 1)
    kept, found = graph.neighbors(memory, 4), from_scratch(memory, 4)
    assert (kept.positions == found.positions).mean() > 0.95
    assert not (kept.positions == np.arange(len(memory))[:, None]).any()


def test_lists_belong_to_the_entries_they_were_built_for():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [2.0]], [0, 0, 1]))
    graph = NeighborGraph(memory, 1)
    memory.relabel([0], [1])
    assert graph.matches(memory)
    memory.forget([2])
    assert not graph.matches(memory)
    assert graph.neighbors(memory, 1) is None


def test_readers_beside_an_editing_thread_get_their_own_neighbors_or_none(rng):
    memory = TorchMemory().remember(make_entries(rng.normal(size=(300, 4)), np.zeros(300, int)))
    graph, stop, wrong, n_read = NeighborGraph(memory, 3), threading.Event(), [], 0
    states = [copy(memory)]

    def read() -> None:
        nonlocal n_read
        while not stop.is_set():
            state = states[-1]
            found = graph.neighbors(state, 3)
            if found is not None:
                n_read += 1
                if not np.array_equal(found.positions, from_scratch(state, 3).positions):
                    wrong.append(len(state))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        memory = copy(memory)
        memory.add(make_entries(rng.normal(size=(3, 4)), [0] * 3, first_id=1000 + 3 * turn))
        graph.add_entries(memory, 3)
        states.append(copy(memory))
        memory.forget(memory.entries.ids[[turn]])
        graph.remove_entries(memory, np.array([turn]))
        states.append(copy(memory))
    stop.set()
    for reader in readers:
        reader.join()
    assert n_read > 0
    assert not wrong


def test_a_copy_and_a_pickle_keep_the_lists():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [2.0]], [0, 0, 1]))
    graph = NeighborGraph(memory, 1)
    restored, entries = pickle.loads(pickle.dumps((graph, memory)))
    check(restored, entries, 1)
    check(deepcopy(graph, {id(memory.vectors): memory.vectors}), memory, 1)


def test_the_radius_of_a_cut_list_is_its_last_key():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [2.0], [90.0]], [0] * 4))
    graph = NeighborGraph(memory, 1, margin=1)
    for places, gone in (([0.5, 0.6], 0.6), ([1.5], 0.5)):
        ids = [int(100 * place) for place in places]
        memory.add(make_entries([[place] for place in places], [0] * len(ids), ids=ids))
        graph.add_entries(memory, len(ids))
        position = memory.positions_of([int(100 * gone)])
        memory.forget([int(100 * gone)])
        graph.remove_entries(memory, position)
    assert graph.neighbors(memory, 1).positions[0, 0] == 1  # cut off earlier, and nearer than 1.5
