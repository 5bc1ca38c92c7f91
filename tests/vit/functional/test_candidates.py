"""Who may be chosen."""

from __future__ import annotations

import pytest
import torch

from attnknn.errors import InvalidSettingError
from attnknn.vit.functional import Grid, random_candidates, spatial_candidates


def test_a_seed_draws_the_same_and_none_draws_anew():
    same = [random_candidates(100, 10, 1, seed=3).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert random_candidates(100, 10, 1, seed=4).tolist() != same[0]
    assert random_candidates(100, 10, 1).tolist() != random_candidates(100, 10, 1).tolist()


@pytest.mark.parametrize("seed", [None, 0])
def test_prefix_tokens_are_kept_and_nobody_is_drawn_twice(seed):
    drawn = random_candidates(20, 18, 2, seed=seed)
    assert drawn.tolist() == list(range(20))


def test_spatial_candidates_are_a_coarser_grid_of_rows_and_columns():
    found = spatial_candidates(Grid(6, 9, n_prefix=1), 3, padding=1) - 1
    assert found[0] == -1  # the prefix token
    rows, columns = found[1:] // 9, found[1:] % 9
    assert sorted(set(rows.tolist())) == [1, 2, 4]
    assert sorted(set(columns.tolist())) == [1, 4, 7]
    assert len(found) == 10


def test_one_per_side_is_the_middle_and_all_are_all():
    assert spatial_candidates(Grid(3, 3), 1).tolist() == [4]
    assert torch.equal(spatial_candidates(Grid(4, 4), 4), torch.arange(16))


def test_more_than_there_are_is_refused():
    with pytest.raises(InvalidSettingError, match="`num_samples` must be at most the 9 tokens"):
        random_candidates(10, 10, 1, seed=0)
    with pytest.raises(InvalidSettingError, match=r"at most the 2 rows or columns.*padding=1"):
        spatial_candidates(Grid(4, 4), 3, padding=1)
