"""Groups find what a full sort finds."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.memory.selection import (
    MAX_TIES,
    largest,
    largest_of_one,
    largest_on_device,
    merged,
    stacked,
)

torch = pytest.importorskip("torch")

KINDS = ["distinct", "tied", "all the same", "mostly missing", "all missing"]


def some(kind, width, rng):
    values = rng.standard_normal((6, width)).astype(np.float32)
    if kind == "tied":
        values = np.round(values)
    if kind == "all the same":
        values[:] = 3
    if kind == "mostly missing":
        values[:, 3:] = -np.inf
    if kind == "all missing":
        values[:] = -np.inf
    return values


def assert_holds_the_largest(found, values, m) -> None:
    for row in range(len(values)):
        columns = found.columns[row][found.columns[row] >= 0]
        others = np.delete(values[row], columns)
        n_finite = np.isfinite(values[row]).sum()
        assert min(m, n_finite) <= len(columns) <= MAX_TIES * m
        assert len(set(columns.tolist())) == len(columns)
        assert (values[row][columns] == found.values[row][found.columns[row] >= 0]).all()
        assert (others <= found.rest[row]).all()


@pytest.mark.parametrize(("width", "m"), [(128, 1), (128, 128), (4096, 5), (8192, 100), (300, 7)])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_find_the_largest(width, m, kind, rng) -> None:
    values = some(kind, width, rng)
    assert_holds_the_largest(largest(values, m), values, m)
    assert_holds_the_largest(largest_of_one(values[0], m), values[:1], m)
    assert_holds_the_largest(largest_on_device(torch.from_numpy(values), m), values, m)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_put_together_in_both_directions(kind, rng) -> None:
    values = some(kind, 640, rng)
    left, right = largest(values[:, :384], 9), largest(values[:, 384:], 9)
    moved = np.where(right.columns < 0, -1, right.columns + 384)
    sideways = merged([left, type(right)(moved, right.values, right.rest)], 9)
    assert_holds_the_largest(sideways, values, 9)
    below = stacked([largest(values[:1], 9), largest(values[1:], 9)])
    assert_holds_the_largest(below, values, 9)


def test_few_more_than_asked_for_are_kept_of_distinct_numbers(rng) -> None:
    values = rng.standard_normal((50, 1 << 14)).astype(np.float32)
    assert (largest(values, 24).columns >= 0).sum(axis=1).mean() < 30
