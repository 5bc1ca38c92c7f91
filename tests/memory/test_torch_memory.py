"""Products propose and differences decide: the answer is the reference's, to the last bit."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnknn.errors import InvalidSettingError
from attnknn.memory import METRICS, NumpyMemory, TorchMemory, make_entries, selection, torch_memory
from attnknn.records import Neighbors

pytestmark = pytest.mark.usefixtures("many_blocks")


def assert_same(one: Neighbors, other: Neighbors) -> None:
    for name in ("mask", "positions", "labels", "distances"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def both(vectors, metric="euclidean", **options):
    entries = make_entries(vectors, np.arange(len(vectors)) % 3, **options)
    return NumpyMemory().remember(entries, metric), TorchMemory().remember(entries, metric)


HARD = {
    "gaussian": lambda x: x,
    "near duplicates at a large offset": lambda x: 1000 + 1e-4 * x,
    "whole numbers with many ties": lambda x: np.round(x) + 5,
    "all the same": lambda x: np.ones_like(x),
    "clusters of duplicates": lambda x: np.repeat(x[:7], -(-len(x) // 7), axis=0)[: len(x)],
    "near the largest float32": lambda x: x * 1e37,
    "near the smallest float32": lambda x: x * 1e-30,
    "one far outlier": lambda x: np.concatenate([x[:-1], np.full_like(x[-1:], 1e6)]),
    "columns of different size": lambda x: x * 10.0 ** np.arange(-3, x.shape[1] - 3),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("n", [3, 130, 700])
def test_hard_vectors_get_the_answer_of_the_reference(kind, n, metric, rng) -> None:
    vectors = HARD[kind](rng.standard_normal((n, 6)))
    queries = np.concatenate([vectors[:9], vectors[-9:] * (1 + 1e-6)])
    plain, fast = both(vectors, metric)
    assert_same(fast.search(queries, 5), plain.search(queries, 5))
    k = min(5, n)
    for query in queries[:, None]:
        assert_same(fast.search(query, k), plain.search(query, k))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n_groups", [1, 2, 100])
def test_exclusion_of_groups_agrees_with_the_reference(metric, n_groups, rng) -> None:
    vectors, own = rng.standard_normal((300, 4)), np.arange(0, 300, 11)
    plain, fast = both(vectors, metric, groups=rng.integers(-1, n_groups, 300))
    asked = plain.vectors[own]
    assert_same(
        fast.search_prepared(asked, 6, exclude=own), plain.search_prepared(asked, 6, exclude=own)
    )


@pytest.mark.parametrize("n_queries", [1, 2, 31, 32, 40])
def test_a_query_gets_the_same_bits_in_any_batch(n_queries, rng, monkeypatch) -> None:
    monkeypatch.setattr(torch_memory, "ROWS", 64)
    _, fast = both(rng.standard_normal((900, 16)))
    queries = rng.standard_normal((40, 16))
    together = fast.search(queries, 7)
    assert_same(fast.search(queries[:n_queries], 7), together.rows(slice(n_queries)))


def test_order_of_entries_changes_no_bit(rng) -> None:
    vectors = np.round(2 * rng.standard_normal((500, 3)))
    order = rng.permutation(500)
    _, fast = both(vectors)
    _, shuffled = both(vectors[order], ids=order)
    one, other = fast.search(vectors[:40], 9), shuffled.search(vectors[:40], 9)
    np.testing.assert_array_equal(one.positions, order[other.positions])
    np.testing.assert_array_equal(one.distances, other.distances)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_of_lower_precision_change_no_bit(precision, rng) -> None:
    torch = pytest.importorskip("torch")
    plain, fast = both(rng.standard_normal((600, 8)))
    queries = rng.standard_normal((20, 8))
    expected = fast.search(queries, 5)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = fast.search(queries, 5)
    finally:
        torch.set_float32_matmul_precision(before)
    assert_same(found, expected)
    assert_same(found, plain.search(queries, 5))


def test_threads_may_search_at_once(rng) -> None:
    _, fast = both(rng.standard_normal((2000, 8)))
    queries = rng.standard_normal((64, 8))
    expected, found = fast.search(queries, 5), []
    threads = [
        threading.Thread(target=lambda: found.append(fast.search(queries, 5))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in found:
        assert_same(answer, expected)


def test_caches_are_not_pickled(rng) -> None:
    _, fast = both(rng.standard_normal((500, 8)))
    size = len(pickle.dumps(fast))
    fast.search(rng.standard_normal((50, 8)), 5)
    assert len(pickle.dumps(fast)) == size


def test_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidSettingError, match=r"No device is called 'cudo'. Did you mean"):
        TorchMemory(device="cudo").remember(make_entries([[1.0]], [0]))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    vectors=arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(1, 4)),
        elements=st.one_of(
            st.integers(-3, 3).map(float),
            st.floats(-(2.0**50), 2.0**50, width=32, allow_subnormal=False),
        ),
    ),
    k=st.integers(1, 45),
    metric=st.sampled_from(["euclidean", "inner_product"]),
    data=st.data(),
)
def test_any_vectors_get_the_answer_of_the_reference(vectors, k, metric, data) -> None:
    n = len(vectors)
    groups = data.draw(arrays(np.int64, n, elements=st.integers(-1, 3)))
    plain, fast = both(vectors, metric, groups=groups, ids=np.arange(n)[::-1])
    own = np.arange(n)
    asked = plain.vectors.all()
    assert_same(fast.search(vectors, k), plain.search(vectors, k))
    assert_same(
        fast.search_prepared(asked, k, exclude=own), plain.search_prepared(asked, k, exclude=own)
    )


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_one_product_serves_both_searches(metric, rng):
    vectors = rng.normal(size=(3000, 24))
    memory = TorchMemory().remember(
        make_entries(vectors, np.zeros(3000), groups=rng.integers(-1, 400, 3000)), metric
    )
    rows = np.arange(2400, 3000)
    queries = memory.vectors[rows]
    assert len(queries) * memory.vectors.all().size > torch_memory.SMALL
    radii = memory.search_keys(memory.vectors.all(), 9, exclude=np.arange(3000))[1][:, -1]
    (positions, keys), found = memory.search_both(queries, 9, radii, rows)
    expected, expected_keys = memory.search_keys(queries, 9, exclude=rows)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(keys, expected_keys)
    left_out = set(zip(*memory.exclusion.pairs(rows), strict=True))
    plain = memory.range_search(queries, radii)
    pairs = zip(plain.queries.tolist(), plain.positions.tolist(), strict=True)
    assert {pair for pair in pairs if pair not in left_out} == set(
        zip(found.queries.tolist(), found.positions.tolist(), strict=True)
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("limit", [0, 1 << 60])
def test_products_of_numpy_and_of_torch_find_what_the_reference_finds(
    limit, metric, rng, products_always, monkeypatch
):
    monkeypatch.setattr(selection, "SMALL_PRODUCT", limit)
    vectors = rng.normal(size=(300, 7)).round(1)
    entries = make_entries(vectors, np.arange(300) % 3, groups=np.arange(300) // 2)
    fast, plain = (memory.remember(entries, metric) for memory in (TorchMemory(), NumpyMemory()))
    asked, own = plain.vectors[:90], np.arange(90)
    radii = np.full(300, np.median(plain.search_keys(asked, 9)[1][:, -1]))
    for found, expected in zip(
        fast.search_both(asked, 9, radii, own)[0],
        plain.search_both(asked, 9, radii, own)[0],
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    assert len(fast.range_search(asked, radii).keys) == len(plain.range_search(asked, radii).keys)


def test_a_small_search_does_not_look_for_a_device(rng, products_always, monkeypatch):
    monkeypatch.setattr(selection, "SMALL_PRODUCT", 300)
    monkeypatch.setattr("attnknn.training.devices.device_of", None)
    memory = TorchMemory("auto").remember(make_entries(rng.normal(size=(50, 3)), np.zeros(50, int)))
    assert memory.search(rng.normal(size=(2, 3)), 4).positions.shape == (2, 4)
    with pytest.raises(TypeError):
        memory.search(rng.normal(size=(3, 3)), 4)
