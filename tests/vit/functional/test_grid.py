"""Places of tokens."""

from __future__ import annotations

import pytest
import torch

from attnknn.errors import InvalidSettingError
from attnknn.vit.functional.grid import Grid, check_grid_size, grid_of, nearest_places, spread_out


def test_a_square_is_found_and_anything_else_must_be_stated():
    assert grid_of(16, None, 0) == Grid(4, 4)
    assert grid_of(7, (2, 3), 1) == Grid(2, 3, 1)
    with pytest.raises(InvalidSettingError, match=r"197 tokens, 0 of them .* a square grid"):
        grid_of(197, None, 0)
    with pytest.raises(InvalidSettingError, match="do not fill the grid 2 × 3"):
        grid_of(7, (2, 3), 0)
    with pytest.raises(InvalidSettingError):
        grid_of(1, None, 1)


def test_coordinates_have_equal_steps_on_both_axes():
    at = Grid(2, 5, n_prefix=1).coordinates()
    assert at[0].tolist() == [0, 0]
    steps = at[1:].view(2, 5, 2)
    assert steps[0, 1, 1] - steps[0, 0, 1] == steps[1, 0, 0] - steps[0, 0, 0] == 0.5
    assert Grid(1, 1).coordinates().tolist() == [[0, 0]]


def test_the_nearest_places_are_the_square_around_in_raster_order():
    places = Grid(5, 5).places()
    distances, index = nearest_places(places, places, 9)
    assert index[12].tolist() == [6, 7, 8, 11, 12, 13, 16, 17, 18]
    assert distances[12].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_a_place_that_is_excluded_is_never_near_to_itself():
    places = Grid(2, 2).places()
    itself = torch.arange(4)
    distances, _ = nearest_places(places, places, 4, excluded=itself)
    assert (distances[itself, itself] == torch.inf).all()
    _, index = nearest_places(places, places, 3, excluded=itself)
    assert (index != itself[:, None]).all()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (3, 4), (14, 14), (2, 9), (1, 7)])
def test_patches_spread_out_are_as_many_on_each_side(height, width):
    for n in range(1, height * width + 1):
        numbers = torch.tensor(spread_out(height, width, n))
        assert len(set(numbers.tolist())) == n
        assert (numbers.diff() > 0).all()
        middle = (numbers // width).double().mean(), (numbers % width).double().mean()
        assert abs(middle[0] - (height - 1) / 2) <= 0.5 + height / 8
        assert abs(middle[1] - (width - 1) / 2) <= 0.5 + width / 8


def test_what_is_no_grid_is_named():
    with pytest.raises(InvalidSettingError, match="at most the 4 tokens there are, got 5"):
        grid_of(4, None, 5)
    with pytest.raises(InvalidSettingError, match=r"one number or \(height, width\), got \(2,\)"):
        check_grid_size((2,))
