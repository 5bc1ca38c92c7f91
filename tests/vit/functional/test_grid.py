"""Positions of tokens, and candidates."""

from __future__ import annotations

import pytest
import torch

from attnknn.errors import InvalidSettingError
from attnknn.vit.functional.grid import (
    Grid,
    check_grid_size,
    infer_grid,
    nearest_positions,
    random_candidates,
    spatial_candidates,
    spread_evenly,
    token_coordinates,
    token_positions,
)


def test_square_grids_are_inferred_and_others_must_be_stated():
    assert infer_grid(16, None, 0) == Grid(4, 4)
    assert infer_grid(7, (2, 3), 1) == Grid(2, 3, 1)
    with pytest.raises(InvalidSettingError, match=r"197 tokens, 0 of them .* a square grid"):
        infer_grid(197, None, 0)
    with pytest.raises(InvalidSettingError, match="do not fill the grid 2 × 3"):
        infer_grid(7, (2, 3), 0)
    with pytest.raises(InvalidSettingError):
        infer_grid(1, None, 1)


def test_coordinates_have_equal_steps_on_both_axes():
    at = token_coordinates(Grid(2, 5, n_prefix=1))
    assert at[0].tolist() == [0, 0]
    steps = at[1:].view(2, 5, 2)
    assert steps[0, 1, 1] - steps[0, 0, 1] == steps[1, 0, 0] - steps[0, 0, 0] == 0.5
    assert token_coordinates(Grid(1, 1)).tolist() == [[0, 0]]


def test_the_nearest_positions_are_the_square_around_in_raster_order():
    positions = token_positions(Grid(5, 5))
    distances, index = nearest_positions(positions, positions, 9)
    assert index[12].tolist() == [6, 7, 8, 11, 12, 13, 16, 17, 18]
    assert distances[12].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_an_excluded_position_never_selects_itself():
    positions = token_positions(Grid(2, 2))
    itself = torch.arange(4)
    distances, _ = nearest_positions(positions, positions, 4, excluded=itself)
    assert (distances[itself, itself] == torch.inf).all()
    _, index = nearest_positions(positions, positions, 3, excluded=itself)
    assert (index != itself[:, None]).all()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (3, 4), (14, 14), (2, 9), (1, 7)])
def test_evenly_spread_patches_are_centered(height, width):
    for n in range(1, height * width + 1):
        numbers = torch.tensor(spread_evenly(height, width, n))
        assert len(set(numbers.tolist())) == n
        assert (numbers.diff() > 0).all()
        middle = (numbers // width).double().mean(), (numbers % width).double().mean()
        assert abs(middle[0] - (height - 1) / 2) <= 0.5 + height / 8
        assert abs(middle[1] - (width - 1) / 2) <= 0.5 + width / 8


def test_invalid_grids_are_refused():
    with pytest.raises(InvalidSettingError, match="at most 4, the number of tokens, got 5"):
        infer_grid(4, None, 5)
    with pytest.raises(InvalidSettingError, match=r"one number or \(height, width\), got \(2,\)"):
        check_grid_size((2,))


def test_a_seed_draws_the_same_tokens_and_none_draws_others():
    same = [random_candidates(100, 10, 1, seed=3).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert random_candidates(100, 10, 1, seed=4).tolist() != same[0]
    assert random_candidates(100, 10, 1).tolist() != random_candidates(100, 10, 1).tolist()


@pytest.mark.parametrize("seed", [None, 0])
def test_prefix_tokens_are_kept_and_no_token_is_drawn_twice(seed):
    drawn = random_candidates(20, 18, 2, seed=seed)
    assert drawn.tolist() == list(range(20))


def test_spatial_candidates_are_a_coarser_grid_of_rows_and_columns():
    found = spatial_candidates(Grid(6, 9, n_prefix=1), 3, padding=1) - 1
    assert found[0] == -1  # the prefix token
    rows, columns = found[1:] // 9, found[1:] % 9
    assert sorted(set(rows.tolist())) == [1, 2, 4]
    assert sorted(set(columns.tolist())) == [1, 4, 7]
    assert len(found) == 10


def test_one_candidate_per_side_is_the_center():
    assert spatial_candidates(Grid(3, 3), 1).tolist() == [4]
    assert torch.equal(spatial_candidates(Grid(4, 4), 4), torch.arange(16))


def test_too_many_samples_are_refused():
    with pytest.raises(InvalidSettingError, match="`num_samples` must be at most 9, the number"):
        random_candidates(10, 10, 1, seed=0)
    with pytest.raises(InvalidSettingError, match=r"at most 2, the rows or columns.*padding=1"):
        spatial_candidates(Grid(4, 4), 3, padding=1)


@pytest.mark.parametrize("seed", [0, 1, 11, 2**32 - 1, 2**40 + 5])
@pytest.mark.parametrize(("n_tokens", "n_samples"), [(1, 1), (5, 0), (12, 5), (196, 196)])
def test_seeded_samples_are_those_of_a_generator_of_torch(n_tokens, n_samples, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(n_tokens, generator=generator)[:n_samples]
    found = random_candidates(n_tokens, n_samples, seed=seed)
    assert torch.equal(found, drawn.sort().values)
