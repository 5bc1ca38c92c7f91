"""Vectors are moved and scaled without losing digits, rows or memory."""

from __future__ import annotations

import tracemalloc

import numpy as np

from attnknn.memory import METRICS, TorchMemory, make_entries
from attnknn.memory.distances import ROWS, center_of, centered, unit_length


def test_whole_numbers_stay_whole(rng) -> None:
    vectors = rng.integers(0, 16, (500, 6)) + 1000
    moved = centered(vectors, center_of(vectors))
    assert (moved == np.round(moved)).all()


def test_the_order_of_rows_does_not_move_the_center(rng) -> None:
    vectors = rng.standard_normal((3 * ROWS, 3)) * [1e-3, 1.0, 1e6] + 17
    np.testing.assert_array_equal(center_of(vectors), center_of(vectors[::-1]))


def test_far_from_the_origin_near_duplicates_keep_their_distance() -> None:
    vectors = 1e6 + np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.25]])
    memory = TorchMemory().remember(make_entries(vectors, [0, 1, 2]))
    assert memory.search(vectors[:1], 3).distances.tolist() == [[0.0, 0.5, np.sqrt(0.3125)]]


def test_rows_have_unit_length_across_chunks(rng) -> None:
    vectors = rng.standard_normal((ROWS + 5, 3)) * 1e25
    lengths = np.linalg.norm(unit_length(vectors).astype(float), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_remembering_takes_the_memory_of_one_copy(rng) -> None:
    vectors = rng.standard_normal((200_000, 32), dtype=np.float32)
    entries = make_entries(vectors, np.zeros(len(vectors)))
    for metric in METRICS:
        tracemalloc.start()
        memory = TorchMemory().remember(entries, metric)
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(memory) == len(vectors)
        assert kept < 1.1 * vectors.nbytes
        assert peak < 1.5 * vectors.nbytes
