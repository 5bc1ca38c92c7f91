"""FAISS proposes: flat gives the reference's answer, graphs and lists survive every edit."""

from __future__ import annotations

import builtins
import sys
from copy import copy

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.errors import InvalidSettingError, MissingExtraError, ModelFolderError
from attnknn.insight import what_if
from attnknn.memory import METRICS, FaissMemory, NumpyMemory, make_entries

faiss = pytest.importorskip("faiss")


def entries_of(vectors, **options):
    return make_entries(vectors, np.arange(len(vectors)) % 3, **options)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e18])
def test_flat_gives_the_answer_of_the_reference(metric, scale, rng) -> None:
    vectors = np.round(rng.standard_normal((300, 4)), 1) * scale + 3 * scale
    plain = NumpyMemory().remember(entries_of(vectors), metric)
    flat = FaissMemory().remember(entries_of(vectors), metric)
    for queries in (vectors[:30], vectors[:1]):
        one, other = flat.search(queries, 6), plain.search(queries, 6)
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_array_equal(one.distances, other.distances)


def test_the_size_of_a_memory_is_that_of_embeddings_and_index(rng) -> None:
    vectors = rng.standard_normal((300, 4))
    plain, flat = NumpyMemory(), FaissMemory().remember(entries_of(vectors))
    assert plain.remember(entries_of(vectors)).n_bytes == 300 * 4 * 4
    flat.search(vectors[:1], 1)  # the index is built when it is needed
    assert 2 * 300 * 4 * 4 <= flat.n_bytes < 2.2 * 300 * 4 * 4


@pytest.mark.parametrize("name", ["m", "ef_construction", "ef_search", "n_probe", "n_lists"])
def test_stored_settings_are_sizes_that_an_index_may_have(name) -> None:
    memory = FaissMemory("hnsw", n_lists=None)
    memory.check_stored_settings(10)
    for value in (1, 1 << 12):
        setattr(memory, name, value)
        memory.check_stored_settings(10)
    for value in (0, -1, 2.0, True, "1", (1 << 20) + 1):
        setattr(memory, name, value)
        with pytest.raises(ModelFolderError, match=f"`{name}` must be from 1 to"):
            memory.check_stored_settings(10)


def test_an_index_may_have_as_many_lists_as_entries() -> None:
    memory = FaissMemory("ivf", n_lists=100_000)
    memory.check_stored_settings(100_000)
    with pytest.raises(ModelFolderError, match="`n_lists` must be from 1 to 99999"):
        memory.check_stored_settings(99_999)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_missing_places_are_searched_for_and_not_padded(kind, rng) -> None:
    vectors = rng.standard_normal((400, 4))
    memory = FaissMemory(kind, n_lists=10, n_probe=1, ef_search=1)
    memory.remember(entries_of(vectors))
    found = memory.search(vectors[:20], 300)
    assert found.mask.all()
    assert (np.diff(np.sort(found.positions, axis=1), axis=1) > 0).all()


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_forgotten_entries_are_never_found(kind, rng) -> None:
    vectors = rng.standard_normal((600, 4))
    memory = FaissMemory(kind, n_lists=5, rebuild_share=0.5).remember(entries_of(vectors))
    for ids in (np.arange(0, 600, 5), [1, 2, 3], np.arange(301, 600, 5)):
        memory.forget(ids)
        found = memory.search(vectors, 4)
        assert not np.isin(memory.entries.ids[found.positions], ids).any()
        assert memory.recall(vectors[:50], 4) > 0.8
    memory.add(make_entries(vectors[:1], [0], ids=[10_000]))
    assert memory.entries.ids[memory.search(vectors[:1], 1).positions].tolist() == [[10_000]]


def test_graph_is_rebuilt_once_too_much_of_it_is_forgotten(rng) -> None:
    memory = FaissMemory("hnsw", rebuild_share=0.2)
    memory.remember(entries_of(rng.standard_normal((100, 3))))
    memory.forget(np.arange(20))
    assert memory._built.index.ntotal == 100
    memory.forget(np.arange(20, 25))
    assert memory._built.index.ntotal == 75


def test_lists_wait_for_enough_entries_to_train(rng) -> None:
    vectors = rng.standard_normal((80, 3))
    memory = FaissMemory("ivf", n_lists=2).remember(entries_of(vectors[:50]))
    assert memory.recall(vectors, 5) == 1.0
    assert "_built" not in vars(memory)
    memory.add(make_entries(vectors[50:], np.zeros(30), first_id=50))
    memory.search(vectors, 5)
    assert memory._built.index.nlist == 2


def test_recall_grows_with_the_width_of_the_search(rng) -> None:
    vectors = rng.standard_normal((2000, 16))
    memory = FaissMemory("ivf", n_lists=20, n_probe=1).remember(entries_of(vectors))
    own = np.arange(100)
    narrow = memory.recall(vectors[own], 10, exclude=own)
    wide = memory.set_params(n_probe=20).recall(vectors[own], 10, exclude=own)
    assert narrow < wide == 1.0
    assert not memory.is_exact


def test_large_groups_are_left_out_whole(rng) -> None:
    vectors = rng.standard_normal((500, 4))
    memory = FaissMemory("hnsw").remember(entries_of(vectors, groups=np.arange(500) // 250))
    found = memory.search_prepared(memory.vectors.all(), 5, exclude=np.arange(500))
    assert found.mask.all()
    assert (found.positions // 250 != np.arange(500)[:, None] // 250).all()


def test_an_add_that_fails_inside_faiss_leaves_everything(rng, monkeypatch) -> None:
    vectors = rng.standard_normal((50, 3)).astype(np.float32)
    memory = FaissMemory().remember(entries_of(vectors))
    expected = memory.search(vectors, 3)

    def add_half(self, index, new, first_slot):
        index.add(new[:1])
        raise MemoryError

    more = make_entries(vectors[:2], [0, 0], ids=[90, 91])
    with monkeypatch.context() as patched:
        patched.setattr(FaissMemory, "_add_vectors", add_half)
        with pytest.raises(MemoryError):
            memory.add(more)
    assert len(memory) == 50
    np.testing.assert_array_equal(memory.search(vectors, 3).positions, expected.positions)


def test_search_leaves_the_number_of_threads_as_it_was(rng) -> None:
    before = faiss.omp_get_max_threads()
    vectors = rng.standard_normal((20, 3))
    FaissMemory().remember(entries_of(vectors)).search(vectors[:1], 3)
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"index": "hsnw"}, "No index is called 'hsnw'. Did you mean 'hnsw'"),
        ({"n_probe": 0}, "`n_probe` must be an integer of at least 1, got 0"),
        ({"m": 1}, "`m` must be an integer of at least 2, got 1"),
    ],
)
def test_impossible_settings_are_refused(settings, message) -> None:
    with pytest.raises(InvalidSettingError, match=message):
        FaissMemory(**settings).remember(entries_of(np.eye(3)))


def test_missing_faiss_names_the_extra(monkeypatch) -> None:
    find = builtins.__import__

    def without_faiss(name, *args, **kwargs):
        if name.split(".")[0] == "faiss":
            raise ImportError(name)
        return find(name, *args, **kwargs)

    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(builtins, "__import__", without_faiss)
    with pytest.raises(MissingExtraError, match=r"Install `attnknn\[faiss\]`, or use `memory="):
        FaissMemory().remember(entries_of(np.eye(3)))


KINDS = [FaissMemory("flat"), FaissMemory("ivf", n_lists=4, n_probe=4), FaissMemory("hnsw")]


@pytest.mark.parametrize("memory", KINDS, ids=lambda memory: memory.index)
def test_edits_of_a_classifier_do_not_rebuild_the_index(memory, rng, monkeypatch) -> None:
    X, y = rng.standard_normal((400, 4)), np.arange(400) % 3
    settings = {"encoder": "identity", "attention": "distance", "random_state": 0}
    clf = AttnKNNClassifier(8, memory=memory, **settings).fit(X, y)
    monkeypatch.setattr(FaissMemory, "_build", lambda _: pytest.fail("built again"))
    clf.relabel([0, 1], 2).add(X[:5] + 0.1, y[:5]).forget(np.arange(7)).relabel(9, 1)
    plain = AttnKNNClassifier(8, memory="numpy", **settings).fit(X, y)
    plain.relabel([0, 1], 2).add(X[:5] + 0.1, y[:5]).forget(np.arange(7)).relabel(9, 1)
    found, expected = clf.kneighbors(X)[1], plain.kneighbors(X)[1]
    assert (found == expected).mean() > (0.999 if memory.is_exact else 0.97)


@pytest.mark.parametrize("memory", KINDS, ids=lambda memory: memory.index)
def test_an_edit_of_a_copy_leaves_the_index_of_the_other_alone(memory, rng) -> None:
    X, y = rng.standard_normal((400, 4)), np.arange(400) % 3
    settings = {"encoder": "identity", "attention": "distance", "random_state": 0}
    clf = AttnKNNClassifier(8, memory=memory, **settings).fit(X, y)
    index = clf.memory_._ready().index
    before, ids = clf.predict_proba(X).tobytes(), clf.kneighbors(X)[1]
    what_if(clf, X[:9], forget=np.arange(60), add=(X[:60] + 0.01, y[:60]))
    other = copy(clf.memory_)
    other.add(entries_of(X[:20], ids=np.arange(900, 920)))
    other.forget(np.arange(30))
    assert clf.memory_._ready().index is index
    assert index.ntotal == 400
    assert clf.predict_proba(X).tobytes() == before
    assert (clf.kneighbors(X)[1] == ids).all()
    clf.memory_.forget(np.arange(100, 130))  # and the other way around
    assert len(other) == 390
    assert np.isin(other.search(X[100:110], 1).positions.ravel(), np.arange(390)).all()
    assert (other.search(X[100:110], 1).distances < 1e-3).all()
