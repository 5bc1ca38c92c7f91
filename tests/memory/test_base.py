"""What all memories share: input checks, edits, and the mistakes that must not come back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    NotFittedYetError,
    UnknownEntryError,
)
from attnknn.memory import METRICS, NumpyMemory, TorchMemory, make_entries


@pytest.fixture(params=[NumpyMemory, TorchMemory], ids=lambda kind: kind.__name__)
def memory(request):
    return request.param().remember(make_entries([[0.0, 0.0], [3.0, 4.0]], [0, 1]))


def test_squared_l2_is_not_called_l2(memory) -> None:
    assert memory.search([[0.0, 0.0]], 2).distances.tolist() == [[0.0, 5.0]]


def test_padding_is_never_read_as_a_label(memory) -> None:
    found = memory.search_prepared(memory.vectors.all(), 2, exclude=np.array([0, 1]))
    assert found.mask.tolist() == [[True, False], [True, False]]
    assert found.labels.tolist() == [[1, 0], [0, 0]]
    assert np.isinf(found.distances[:, 1]).all()


def test_k_beyond_the_memory_gives_every_entry_and_says_so(memory) -> None:
    found = memory.search([[0.0, 0.0]], 10)
    assert found.positions.tolist() == [[0, 1]]
    assert found.mask.all()


def test_a_memory_may_begin_again_with_another_width(memory) -> None:
    memory.remember(make_entries([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]], [1, 0]), "inner_product")
    assert memory.search([[0.0, 0.0, 1.0]], 1).positions.tolist() == [[1]]


def test_similar_means_near_for_every_metric(rng) -> None:
    vectors, queries = rng.standard_normal((50, 6)), rng.standard_normal((9, 6))
    oracles = {
        "euclidean": cdist(queries, vectors),
        "cosine": cdist(queries, vectors, "cosine"),
        "inner_product": -(queries @ vectors.T),
    }
    for metric in METRICS:
        found = TorchMemory().remember(make_entries(vectors, np.zeros(50)), metric)
        expected = np.sort(oracles[metric], axis=1)[:, :7]
        np.testing.assert_allclose(found.search(queries, 7).distances, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.float32, np.float64])
def test_queries_of_any_number_type_mean_the_same(memory, dtype) -> None:
    memory.add(make_entries([[7.0, 8.0], [1.0, 0.0], [2.0, 9.0]], [0, 0, 0], first_id=2))
    found = memory.search(np.array([[3, 5]], dtype=dtype), 2)
    assert found.distances.tolist() == [[1.0, 17.0**0.5]]


def test_later_writes_to_the_given_array_change_nothing() -> None:
    vectors = np.eye(3, dtype=np.float32)
    for metric in METRICS:
        memory = NumpyMemory().remember(make_entries(vectors, [0, 1, 2]), metric)
        before = memory.vectors.all().copy()
        vectors *= 2
        np.testing.assert_array_equal(memory.vectors.all(), before)


def test_wrong_width_names_both_widths(memory) -> None:
    with pytest.raises(InvalidInputError, match=r"Queries have 3 columns .* embeddings of 2"):
        memory.search([[1.0, 2.0, 3.0]], 1)
    with pytest.raises(InvalidInputError, match=r"Queries have shape \(2,\)"):
        memory.search([1.0, 2.0], 1)
    with pytest.raises(InvalidInputError, match="New entries have 1 columns"):
        memory.add(make_entries([[1.0]], [0], first_id=9))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_numbers_that_float32_cannot_hold_are_refused(memory, bad) -> None:
    with pytest.raises(InvalidInputError, match="row 1 does not"):
        memory.search([[0.0, 0.0], [bad, 0.0]], 1)
    with pytest.raises(InvalidInputError, match="fit into float32"):
        memory.add(make_entries([[bad, 0.0]], [0], ids=[77]))
    assert len(memory) == 2


def test_a_row_without_direction_is_refused_by_cosine() -> None:
    with pytest.raises(InvalidInputError, match="row 1 is all zeros"):
        NumpyMemory().remember(make_entries([[1.0], [0.0]], [0, 1]), "cosine")


def test_search_before_remember_says_what_to_call() -> None:
    with pytest.raises(NotFittedYetError, match="Call `remember` before `search`"):
        NumpyMemory().search_prepared(np.zeros((1, 2), np.float32), 1)


def test_unknown_metric_and_k_are_refused(memory) -> None:
    with pytest.raises(InvalidSettingError, match="Did you mean 'euclidean'"):
        memory.remember(memory.entries, "euclidian")
    with pytest.raises(InvalidSettingError, match="`k` must be an integer of at least 1, got 0"):
        memory.search([[0.0, 0.0]], 0)
    assert len(memory) == 2


def test_exclude_must_fit_the_queries(memory) -> None:
    with pytest.raises(InvalidInputError, match="one position for each of the 1 queries"):
        memory.search([[0.0, 0.0]], 1, exclude=np.array([0, 1]))
    with pytest.raises(InvalidInputError, match="positions from 0 to 1, got -1 to -1"):
        memory.search([[0.0, 0.0]], 1, exclude=np.array([-1]))


def test_labels_must_fit_the_ids(memory) -> None:
    with pytest.raises(InvalidInputError, match="one code for each of the 2 ids"):
        memory.relabel([0, 1], [1])
    with pytest.raises(InvalidInputError, match="one id twice with two different labels"):
        memory.relabel([0, 0], [1, 2])
    assert memory.entries.labels.tolist() == [0, 1]


@pytest.mark.parametrize("step", ["extend_index", "shrink_index", "build_index"])
def test_an_edit_that_breaks_down_half_way_leaves_everything(memory, step, monkeypatch) -> None:
    def break_down(*_):
        raise MemoryError

    before = memory.entries
    monkeypatch.setattr(type(memory), step, break_down)
    edits = {
        "extend_index": lambda: memory.add(make_entries([[1.0, 1.0]], [0], first_id=9)),
        "shrink_index": lambda: memory.forget([0]),
        "build_index": lambda: memory.remember(make_entries([[1.0]], [0]), "cosine"),
    }
    with pytest.raises(MemoryError):
        edits[step]()
    assert memory.entries is before
    assert memory.metric_ == "euclidean"
    assert memory.search([[0.0, 0.0]], 2).distances.tolist() == [[0.0, 5.0]]


def test_unknown_ids_of_any_kind_are_refused(memory) -> None:
    for wrong in (5, "zero", [0, 5], ["0"]):
        with pytest.raises(UnknownEntryError, match="No entry has the id"):
            memory.forget(wrong)


@pytest.mark.slow  # tests/test_import.py asks the same beside the classifier
def test_importing_the_room_imports_neither_torch_nor_faiss() -> None:
    code = (
        "import sys, attnknn.memory as m; m.make_memory('auto');"
        "sys.exit(any(name in sys.modules for name in ('torch', 'faiss')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=40, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.sampled_from(["add", "forget", "relabel"]), st.integers(0, 19)), max_size=15
    )
)
def test_any_edits_end_as_if_remembered_at_once(edits) -> None:
    vectors = np.random.default_rng(0).integers(-2, 3, (20, 3)).astype(float)
    memory = TorchMemory().remember(make_entries(vectors[:5], np.zeros(5)))
    known = dict.fromkeys(range(5), 0)
    for verb, given_id in edits:
        if verb == "add" and given_id not in known:
            memory.add(make_entries(vectors[[given_id]], [1], ids=[given_id]))
            known[given_id] = 1
        elif verb == "forget" and given_id in known:
            memory.forget(given_id)
            del known[given_id]
        elif verb == "relabel" and given_id in known:
            memory.relabel(given_id, 2)
            known[given_id] = 2
    ids = list(known)
    anew = NumpyMemory().remember(make_entries(vectors[ids], list(known.values()), ids=ids))
    one, other = memory.search(vectors, 20), anew.search(vectors, 20)
    np.testing.assert_array_equal(
        memory.entries.ids[one.positions], anew.entries.ids[other.positions]
    )
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.distances, other.distances)
