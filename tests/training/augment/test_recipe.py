"""Recipes: every field acts, chance comes from the generator, layout is kept."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.training.augment import Augmentation, augment

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
