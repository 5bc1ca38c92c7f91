"""Entries are checked when they are made, and their ids are found again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnknn.errors import InvalidInputError, UnknownEntryError
from attnknn.memory import NumpyMemory, make_entries


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": [1, 2, 1]}, "`ids` must be distinct, 1 occurs twice"),
        ({"ids": ["b", "a", "b"]}, "`ids` must be distinct, 'b' occurs twice"),
        ({"ids": [0.5, 1.5, 2.5]}, "`ids` must be integers or strings, got float64"),
        ({"ids": [1, 2]}, r"`ids` must hold one value for each of the 3 rows, got shape \(2,\)"),
        ({"groups": ["a", "b", "c"]}, "`groups` must be integers"),
        ({"sample_weight": [1.0, 0.0, 1.0]}, "`sample_weight` must be positive and finite"),
        ({"labels": [0, 1]}, "`labels` must hold one value for each of the 3 rows"),
        ({"embeddings": [1.0, 2.0]}, r"one row for each entry, got shape \(2,\)"),
    ],
)
def test_entries_that_do_not_fit_are_refused(given, message) -> None:
    settings = {"embeddings": np.eye(3), "labels": [0, 1, 2], **given}
    with pytest.raises(InvalidInputError, match=message):
        make_entries(settings.pop("embeddings"), settings.pop("labels"), **settings)


def test_a_long_id_added_later_is_not_cut() -> None:
    memory = NumpyMemory().remember(make_entries([[1.0]], [0], ids=["a"]))
    memory.add(make_entries([[2.0]], [1], ids=["a much longer id"]))
    assert memory.positions_of(["a much longer id", "a"]).tolist() == [1, 0]


def test_ids_of_another_kind_are_refused() -> None:
    memory = NumpyMemory().remember(make_entries([[1.0]], [0]))
    with pytest.raises(InvalidInputError, match=r"must be integers like those .* got strings"):
        memory.add(make_entries([[2.0]], [1], ids=["a"]))


def test_an_empty_memory_takes_ids_of_either_kind() -> None:
    for ids in ([7], ["seven"]):
        memory = NumpyMemory().remember(make_entries(np.empty((0, 1)), []))
        memory.add(make_entries([[2.0]], [1], ids=ids))
        assert memory.positions_of(ids).tolist() == [0]


def test_ids_in_any_order_are_found(rng) -> None:
    ids = rng.permutation(1000) * 7 - 500
    memory = NumpyMemory().remember(make_entries(rng.random((1000, 2)), np.zeros(1000), ids=ids))
    asked = rng.permutation(ids)[:50]
    assert (memory.entries.ids[memory.positions_of(asked)] == asked).all()
    for unknown in (-501, 6, 10**9):
        with pytest.raises(UnknownEntryError, match=f"No entry has the id {unknown}"):
            memory.positions_of([int(ids[0]), unknown])


def test_payloads_that_come_later_leave_the_earlier_ones_empty() -> None:
    memory = NumpyMemory().remember(make_entries([[1.0]], [0]))
    memory.add(make_entries([[2.0]], [1], first_id=1, payloads=["two"]))
    memory.add(make_entries([[3.0]], [1], first_id=2))
    assert memory.entries.payloads.tolist() == [None, "two", None]


def test_entries_are_held_out_and_weigh_one_unless_something_else_is_given() -> None:
    entries = make_entries([[1.0], [2.0]], [0, 1])
    assert entries.held_out.tolist() == [True, True]
    assert entries.sample_weight.tolist() == entries.effective_weight.tolist() == [1.0, 1.0]
    assert entries.ids.tolist() == [0, 1]
    given = make_entries([[1.0], [2.0]], [0, 1], held_out=[True, False], first_id=5)
    assert given.held_out.tolist() == [True, False]
    assert given.ids.tolist() == [5, 6]


def test_entries_that_fade_join_those_that_do_not():
    old = replace(make_entries([[0.0], [1.0]], [0, 1]), decay=np.array([0.25, 0.5]))
    new = make_entries([[2.0]], [1], ids=[7], sample_weight=[3.0])
    assert old.joined(new).decay.tolist() == [0.25, 0.5, 1.0]
    assert new.joined(old).effective_weight.tolist() == [3.0, 0.25, 0.5]
    assert new.joined(make_entries([[3.0]], [0], ids=[8])).decay is None


def test_ids_beyond_64_bits_are_refused_and_do_not_wrap_around() -> None:
    memory = NumpyMemory().remember(make_entries([[1.0], [2.0]], [0, 1], ids=[-1, 5]))
    with pytest.raises(InvalidInputError, match="must be at most 9223372036854775807"):
        memory.forget(np.array([2**64 - 1], dtype=np.uint64))
    assert len(memory) == 2
    memory.forget(np.array([5], dtype=np.uint64))
    assert memory.entries.ids.tolist() == [-1]
