"""The choice between exact search and an index is right, and says why."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from attnknn.memory import AutoMemory, FaissMemory, TorchMemory, make_entries


def clustered(rng, n=3000):
    centers = 10 * rng.standard_normal((30, 8))
    return centers[rng.integers(0, 30, n)] + rng.standard_normal((n, 8))


def test_small_memories_are_searched_exactly(rng) -> None:
    memory = AutoMemory().remember(make_entries(clustered(rng), np.zeros(3000)))
    assert memory.is_exact
    assert isinstance(memory.chosen_, TorchMemory)
    assert memory.reason_ == "Search is exact: 3,000 entries of 8 columns take milliseconds."


def test_large_memories_get_an_index_with_the_recall_asked_for(rng) -> None:
    pytest.importorskip("faiss")
    vectors = clustered(rng)
    memory = AutoMemory(exact_up_to=1000, n_neighbors=5)
    memory.remember(make_entries(vectors, np.zeros(3000)))
    assert isinstance(memory.chosen_, FaissMemory)
    assert not memory.is_exact
    assert "Search uses an index (ivf) that finds" in memory.reason_
    assert memory.chosen_.recall(vectors[:200], 5) > 0.97


def test_search_stays_exact_where_no_index_finds_enough(rng) -> None:
    pytest.importorskip("faiss")
    memory = AutoMemory(exact_up_to=0, recall=1.01)
    memory.remember(make_entries(clustered(rng, 500), np.zeros(500)))
    assert memory.is_exact
    assert "less than `recall=1.01`" in memory.reason_


def test_search_stays_exact_without_faiss_and_names_the_extra(rng, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    memory = AutoMemory(exact_up_to=0).remember(make_entries(rng.random((50, 2)), np.zeros(50)))
    assert memory.is_exact
    assert "Install `attnknn[faiss]`" in memory.reason_
    assert memory.search(rng.random((3, 2)), 4).mask.all()


def test_the_choice_is_made_again_once_the_entries_have_doubled(rng) -> None:
    pytest.importorskip("faiss")
    vectors = clustered(rng)
    memory = AutoMemory(exact_up_to=8 * 1500, n_neighbors=5)
    memory.remember(make_entries(vectors[:1000], np.zeros(1000)))
    memory.add(make_entries(vectors[1000:1900], np.zeros(900), first_id=1000))
    assert memory.is_exact
    memory.add(make_entries(vectors[1900:], np.zeros(1100), first_id=1900))
    assert not memory.is_exact
    memory.forget(np.arange(10))
    assert memory.search(vectors[:5], 3).mask.all()


def test_an_edit_that_breaks_down_leaves_the_chosen_memory_too(rng, monkeypatch) -> None:
    vectors = rng.random((30, 2))
    memory = AutoMemory().remember(make_entries(vectors, np.zeros(30)))

    def break_down(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(TorchMemory, "shrink_index", break_down)
        with pytest.raises(MemoryError):
            memory.forget([0])
    assert memory.search(vectors[:1], 1).distances.tolist() == [[0.0]]
    assert memory.chosen_.vectors.all() is memory.vectors.all()
