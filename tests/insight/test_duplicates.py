"""Exact and near duplicates against a comparison of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn.insight.duplicates import find_duplicates, group_copies
from attnknn.leave_one_out import leave_one_out_batch
from attnknn.memory import NumpyMemory, make_entries

points = st.lists(st.sampled_from([0.0, 0.1, 0.2, 5.0, 5.1, 9.0, 20.0]), min_size=2, max_size=12)


def sets_of(groups):
    return {frozenset(np.flatnonzero(groups == g).tolist()) for g in set(groups.tolist()) - {-1}}


def linked(distances, reach):
    """Sets of two and more that a chain of distances up to `reach` links."""
    found = []
    for row in range(len(distances)):
        near = {row, *np.flatnonzero(distances[row] <= reach).tolist()}
        touching = [those for those in found if those & near]
        found = [those for those in found if not those & near]
        found.append(near.union(*touching))
    return {frozenset(those) for those in found if len(those) > 1}


@given(values=points, near=st.sampled_from([0.0, 0.1, 0.5, 1.5]), k=st.integers(1, 12))
def test_sets_are_those_that_all_pairs_give_however_few_neighbors_are_listed(values, near, k):
    X = np.array(values)[:, None]
    memory = NumpyMemory().remember(make_entries(X, np.zeros(len(X), dtype=int)))
    neighbors = leave_one_out_batch(memory, np.array([len(X)]), k).batch.neighbors
    found = find_duplicates(memory, neighbors, near)
    embeddings = memory.vectors.all().astype(float)
    distances = np.abs(embeddings - embeddings.T)
    exact = linked(distances, 0.0)
    assert sets_of(found.exact) == exact
    assert sets_of(found.near) == (
        linked(distances, found.near_distance) - exact if near else set()
    )


@given(values=points, k=st.integers(1, 12))
def test_near_distance_is_a_share_of_the_typical_nearest_distance(values, k):
    X = np.array(values)[:, None]
    memory = NumpyMemory().remember(make_entries(X, np.zeros(len(X), dtype=int)))
    neighbors = leave_one_out_batch(memory, np.array([len(X)]), k).batch.neighbors
    found = find_duplicates(memory, neighbors, 0.5)
    embeddings = memory.vectors.all().astype(float)
    distances = np.abs(embeddings - embeddings.T)
    nearest = np.where(distances > 0, distances, np.inf).min(axis=1)
    known = nearest[np.isfinite(nearest)]
    assert np.isclose(found.near_distance, 0.5 * np.median(known) if len(known) else 0.0)


@pytest.mark.parametrize(
    ("values", "typical"),
    [([0, 0, 0, 1, 9, 9, 9, 9, 12], 3.0), ([0, 0, 5, 5, 9, 9, 9, 9, 12], 3.0)],
)
def test_copies_that_list_only_copies_are_searched_for_their_nearest_other(values, typical):
    X = np.array(values, dtype=float)[:, None]
    memory = NumpyMemory().remember(make_entries(X, np.zeros(len(X), dtype=int)))
    neighbors = leave_one_out_batch(memory, np.array([len(X)]), 1).batch.neighbors
    assert find_duplicates(memory, neighbors, 0.5).near_distance == 0.5 * typical


def test_entries_of_no_width_are_all_copies():
    assert group_copies(np.zeros((3, 0))).tolist() == [0, 0, 0]


def test_groups_of_copies_are_numbered_without_gaps():
    found = group_copies(np.array([[1.0], [2.0], [2.0], [3.0], [4.0], [4.0], [5.0]]))
    assert sorted(found.tolist()) == [-1, -1, -1, 0, 0, 1, 1]
    assert sets_of(found) == {frozenset({1, 2}), frozenset({4, 5})}
