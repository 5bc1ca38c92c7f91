"""Moves: crops equal slices of padded images, turns equal turns of the grid, holes have a size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attnknn.errors import InvalidSettingError
from attnknn.training.augment.moves import (
    cutout,
    move,
    random_crop,
    random_rotation,
    random_shift,
    rotate,
)


@given(
    down=st.integers(-3, 3), right=st.integers(-3, 3), edges=st.sampled_from(["reflect", "zero"])
)
def test_a_move_is_a_window_of_the_padded_image(down, right, edges):
    images = torch.rand(2, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    padded = F.pad(images, (3,) * 4, mode="reflect" if edges == "reflect" else "constant")
    expected = padded[:, :, 3 - down : 10 - down, 3 - right : 8 - right]
    by = torch.ones(2, dtype=torch.int64)
    assert torch.equal(move(images, by * down, by * right, edges=edges), expected)


@pytest.mark.parametrize(("change", "mode"), [(random_crop, "reflect"), (random_shift, "constant")])
def test_random_moves_reach_every_place_up_to_their_most(change, mode):
    image = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    padded = F.pad(image, (1,) * 4, mode=mode)
    windows = [padded[0, :, y : y + 6, x : x + 6] for y in range(3) for x in range(3)]
    moved = change(image.expand(300, 1, 6, 6), 1, torch.Generator().manual_seed(0))
    found = [[torch.equal(out, window) for window in windows].index(True) for out in moved]
    assert set(found) == set(range(9))


def test_a_crop_wider_than_the_image_is_refused(images):
    with pytest.raises(InvalidSettingError, match="got 6 for 6 pixels"):
        random_crop(images, 6, torch.Generator())


@pytest.mark.parametrize(("degrees", "quarters"), [(0, 0), (90, 1), (180, 2), (-90, 3)])
def test_quarter_turns_are_exact(degrees, quarters):
    images = torch.rand(4, 3, 7, 7, generator=torch.Generator().manual_seed(0))
    turned = rotate(images, torch.full((4,), float(degrees)))
    assert torch.allclose(turned, images.rot90(quarters, dims=(2, 3)), atol=1e-5)


def test_images_that_are_not_square_keep_their_shape_of_things():
    """A disk in the middle stays a disk, whatever the ratio of the sides."""
    y, x = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(41.0) - 20, indexing="ij")
    disk = torch.exp(-(y**2 + x**2) / 20)[None, None]
    middle = (..., slice(5, 16), slice(15, 26))  # farther out, reflections come in
    turned = rotate(disk, torch.tensor([37.0]))
    assert torch.allclose(turned[middle], disk[middle], atol=0.02)


def test_random_turns_stay_within_their_most(images):
    turned = random_rotation(images, 0.001, torch.Generator().manual_seed(0))
    assert torch.allclose(turned, images, atol=1e-3)
    assert not torch.allclose(random_rotation(images, 40.0, torch.Generator()), images, atol=1e-2)


def test_cutout_takes_exactly_one_square(images):
    cut = cutout(images, 3, torch.Generator().manual_seed(0))
    for image, out in zip(images, cut, strict=True):
        holes = (out == image.mean()).all(dim=0)
        assert torch.equal(out[:, ~holes], image[:, ~holes])
        rows, columns = holes.nonzero().unbind(1)
        assert len(rows) == 9
        assert int(rows.max() - rows.min()) == int(columns.max() - columns.min()) == 2


def test_a_hole_larger_than_the_image_is_refused(images):
    with pytest.raises(InvalidSettingError, match="`cutout`"):
        cutout(images, 6, torch.Generator())
