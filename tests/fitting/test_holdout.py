"""Which rows stay fresh: a share of every class, groups whole, all rows with the same chance."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.errors import InvalidInputError
from attnknn.fitting.holdout import trained_rows

ALONE = -1


@pytest.mark.parametrize("seed", range(5))
def test_every_class_keeps_its_share_of_held_out_rows(seed):
    counts = np.array([100, 100, 40, 20, 7, 1])
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(6), counts))
    groups = np.full(len(labels), ALONE)
    held_out = ~trained_rows(labels, groups, 0.15, 1000, np.random.default_rng(seed))
    assert held_out.sum() == round(0.15 * len(labels))
    assert np.abs(np.bincount(labels[held_out], minlength=6) - 0.15 * counts).max() < 2


def test_every_row_has_the_same_chance_to_be_held_out_however_rare_its_class():
    labels = np.repeat([0, 1, 2], [30, 9, 1])
    groups = np.full(len(labels), ALONE)
    generator = np.random.default_rng(0)
    drawn = [~trained_rows(labels, groups, 0.3, 1000, generator) for _ in range(3000)]
    assert np.mean(drawn, axis=0) == pytest.approx(0.3, abs=0.05)


def test_groups_are_held_out_whole():
    rng = np.random.default_rng(0)
    groups = np.append(np.repeat(np.arange(20), 4), np.full(20, ALONE))
    labels = rng.integers(0, 3, 100)
    held_out = ~trained_rows(labels, groups, 0.2, 1000, rng)
    is_grouped = groups != ALONE
    assert not set(groups[held_out & is_grouped]) & set(groups[~held_out & is_grouped])
    assert 20 <= held_out.sum() < 24


def test_no_more_than_asked_for_are_trained_on():
    labels, groups = np.arange(50) % 5, np.full(50, ALONE)
    is_trained_on = trained_rows(labels, groups, 0.1, 15, np.random.default_rng(0))
    assert np.bincount(labels[is_trained_on]).tolist() == [3] * 5


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sizes", [(95, 5), (90, *[1] * 10), (40, 30, 20, 10), (50, 50)])
def test_a_large_group_is_neither_split_nor_all_that_is_held_out(sizes, seed):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.random.default_rng(seed).integers(0, 2, len(groups))
    held_out = ~trained_rows(labels, groups, 0.15, 1000, np.random.default_rng(seed))
    held = {group: held_out[groups == group] for group in range(len(sizes))}
    assert all(rows.all() or not rows.any() for rows in held.values())
    assert 1 <= held_out.sum() <= 50
    if min(sizes) <= 15:
        assert held_out.sum() <= 20


def test_rows_of_one_group_cannot_validate_each_other():
    labels, groups = np.arange(20) % 2, np.zeros(20, dtype=int)
    with pytest.raises(InvalidInputError, match="All rows belong to one group"):
        trained_rows(labels, groups, 0.2, 1000, np.random.default_rng(0))
