"""Augmentation: every setting acts, random numbers come from the generator, layout is kept."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.training.augmentation import (
    ACROSS,
    DOWN,
    Augmentation,
    alternating_flip,
    augment,
    brighten,
    contrast,
    cutout,
    flip,
    move,
    random_crop,
    random_flip,
    random_rotation,
    random_shift,
    rotate,
    saturate,
    turn_hue,
)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(9, 3, 8, 6, generator=torch.Generator().manual_seed(1))


ACTIVE = {
    "horizontal_flip": "random",
    "vertical_flip": "random",
    "crop": 2,
    "shift": 2,
    "rotation": 20.0,
    "brightness": 0.3,
    "contrast": 0.3,
    "saturation": 0.3,
    "hue": 0.2,
    "cutout": 3,
}


def run(images, recipe, seed=0, **where):
    return augment(images, recipe, torch.Generator().manual_seed(seed), **where)


def test_the_default_changes_nothing(images):
    assert run(images, Augmentation()) is images


def test_every_field_is_tried():
    assert set(ACTIVE) == {field.name for field in fields(Augmentation)}


@pytest.mark.parametrize("name", ACTIVE)
def test_every_field_acts_and_repeats_for_a_generator(images, name):
    recipe = Augmentation(**{name: ACTIVE[name]})
    once = run(images, recipe)
    assert once.shape == images.shape
    assert once.dtype == images.dtype
    assert not torch.equal(once, images)
    assert torch.equal(once, run(images, recipe))
    assert not torch.equal(once, run(images, recipe, seed=1))


@pytest.mark.parametrize("name", [*ACTIVE, "all"])
def test_channels_last_stays_so_and_changes_no_number(images, name):
    recipe = Augmentation(**(ACTIVE if name == "all" else {name: ACTIVE[name]}))
    last = images.contiguous(memory_format=torch.channels_last)
    out = run(last, recipe)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(out, run(images, recipe), atol=1e-5)
    assert run(images, recipe).is_contiguous()


def test_alternating_sides_need_no_generator(images):
    recipe = Augmentation(horizontal_flip="alternating", vertical_flip="alternating")
    rows = torch.arange(len(images))
    where = {"rows": rows, "seed": 5}
    first = augment(images, recipe, torch.Generator().manual_seed(0), epoch=3, **where)
    other = augment(images, recipe, torch.Generator().manual_seed(1), epoch=5, **where)
    assert torch.equal(first, other)
    assert not torch.equal(first, augment(images, recipe, torch.Generator(), epoch=4, **where))
    with pytest.raises(InvalidInputError, match="`rows`"):
        run(images, recipe)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizontal_flip": "altrenating"}, "Did you mean 'alternating'"),
        ({"crop": -1}, "`crop` must be an integer of at least 0, got -1"),
        ({"crop": 1.5}, "`crop`"),
        ({"brightness": 1.0}, "`brightness` must be a finite number of at least 0 and below 1"),
        ({"hue": 0.7}, "`hue` must be at most 0.5, got 0.7"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        Augmentation(**settings)


def test_an_empty_batch_stays_empty():
    recipe = Augmentation(**ACTIVE)
    assert run(torch.zeros(0, 3, 8, 8), recipe).shape == (0, 3, 8, 8)


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


def sides(images: torch.Tensor, result: torch.Tensor, axis: int) -> list[bool]:
    """Which images came out mirrored."""
    mirrored = images.flip(axis)
    for image, mirror, out in zip(images, mirrored, result, strict=True):
        assert torch.equal(out, image) or torch.equal(out, mirror)
    return [torch.equal(out, mirror) for out, mirror in zip(result, mirrored, strict=True)]


def test_only_marked_images_are_mirrored(images):
    for axis in (ACROSS, DOWN):
        marks = torch.arange(len(images)) % 3 == 0
        assert sides(images, flip(images, marks, axis), axis) == marks.tolist()


def test_random_flips_turn_about_half():
    images = torch.randn(400, 1, 2, 3)
    flipped = sides(images, random_flip(images, torch.Generator().manual_seed(0)), ACROSS)
    assert 150 < sum(flipped) < 250


@given(seed=st.integers(0, 2**40), epoch=st.integers(0, 50), axis=st.sampled_from([ACROSS, DOWN]))
def test_alternating_flips_show_the_other_side_next(seed, epoch, axis):
    images, rows = torch.randn(12, 1, 3, 3), torch.arange(12) * 1_000_003
    now = sides(images, alternating_flip(images, rows, epoch, seed, axis), axis)
    later = sides(images, alternating_flip(images, rows, epoch + 1, seed, axis), axis)
    assert [not side for side in now] == later


def test_the_side_depends_on_the_row_and_the_seed_only():
    images, rows = torch.randn(2000, 1, 2, 2), torch.arange(2000)
    first = sides(images, alternating_flip(images, rows, 0, seed=1), ACROSS)
    other = sides(images, alternating_flip(images, rows, 0, seed=2), ACROSS)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    moved = sides(images[order], alternating_flip(images[order], order, 0, seed=1), ACROSS)
    assert moved == [first[row] for row in order.tolist()]
    assert 900 < sum(first) < 1100
    assert 900 < sum(a == b for a, b in zip(first, other, strict=True)) < 1100
    pairs = sum(a == b for a, b in zip(first[::2], first[1::2], strict=True))
    assert 430 < pairs < 570  # neighbors in the order of rows know nothing of each other


def test_both_directions_alternate_on_their_own():
    images, rows = torch.randn(600, 1, 2, 2), torch.arange(600)
    across = sides(images, alternating_flip(images, rows, 0, 3, ACROSS), ACROSS)
    down = sides(images, alternating_flip(images, rows, 0, 3, DOWN), DOWN)
    assert 230 < sum(a == b for a, b in zip(across, down, strict=True)) < 370


NEUTRAL = [(brighten, 1.0), (contrast, 1.0), (saturate, 1.0), (turn_hue, 0.0), (turn_hue, 1.0)]


def numbers(value: float, images: torch.Tensor) -> torch.Tensor:
    return torch.full((len(images),), value)


@pytest.mark.parametrize(("change", "neutral"), NEUTRAL)
def test_neutral_factors_change_nothing(images, change, neutral):
    assert torch.allclose(change(images, numbers(neutral, images)), images, atol=1e-5)


def test_factors_are_per_image(images):
    factors = torch.linspace(0.5, 1.5, len(images))
    for change in (brighten, contrast, saturate, turn_hue):
        together = change(images, factors)
        apart = [change(images[i : i + 1], factors[i : i + 1]) for i in range(len(images))]
        assert torch.allclose(together, torch.cat(apart), atol=1e-6)


def test_extremes(images):
    assert brighten(images, numbers(0.0, images)).abs().max() == 0
    flat = contrast(images, numbers(0.0, images))
    assert torch.allclose(flat, images.mean(dim=(1, 2, 3), keepdim=True).expand_as(flat))
    gray = saturate(images, numbers(0.0, images))
    assert torch.allclose(gray, images.mean(dim=1, keepdim=True).expand_as(gray))


def test_a_third_of_the_circle_moves_each_channel_to_the_next(images):
    turned = turn_hue(images, numbers(1 / 3, images))
    assert torch.allclose(turned, images.roll(1, dims=1), atol=1e-5)


@given(first=st.floats(-0.5, 0.5), second=st.floats(-0.5, 0.5))
def test_turns_of_hue_add_up_and_keep_gray(first, second):
    images = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    twice = turn_hue(turn_hue(images, numbers(first, images)), numbers(second, images))
    once = turn_hue(images, numbers(first + second, images))
    assert torch.allclose(twice, once, atol=1e-5)
    assert torch.allclose(once.mean(dim=1), images.mean(dim=1), atol=1e-5)
    assert torch.allclose(once.square().sum(1), images.square().sum(1), atol=1e-4)


@pytest.mark.parametrize("change", [saturate, turn_hue])
def test_images_without_color_are_refused(images, change):
    with pytest.raises(InvalidInputError, match="three channels, got 1"):
        change(images[:, :1], numbers(1.0, images))
