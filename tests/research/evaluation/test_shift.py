"""Damaged images: as much as asked, of the same shape, and repeatable."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.evaluation.shift import SEVERITIES, SHIFTS, shifted
from attnknn.research.evaluation.stress import few_shots

IMAGES = np.random.default_rng(0).integers(40, 200, (6, 32, 32, 3)).astype(np.uint8)


@pytest.mark.parametrize("kind", SHIFTS)
@pytest.mark.parametrize("shape", ["gray", "last", "first"])
def test_shape_and_type_are_kept_and_damage_grows(kind, shape):
    images = {"gray": IMAGES[..., 0], "last": IMAGES, "first": IMAGES.transpose(0, 3, 1, 2)}[shape]
    before = images.copy()
    damage = []
    for severity in SEVERITIES:
        found = shifted(images, kind, severity, random_state=0)
        assert found.shape == images.shape
        assert found.dtype == np.uint8
        damage.append(np.abs(found.astype(float) - images).mean())
    assert damage == sorted(damage)
    assert damage[0] > 0
    assert (images == before).all()


@pytest.mark.parametrize("kind", ["blur", "contrast"])
def test_layouts_of_the_same_images_are_damaged_alike(kind):
    last = shifted(IMAGES, kind, 3)
    first = shifted(IMAGES.transpose(0, 3, 1, 2), kind, 3)
    assert (last == first.transpose(0, 2, 3, 1)).all()


def test_images_do_not_mix():
    alone = shifted(IMAGES[:1], "blur", 5)
    assert (alone[0] == shifted(IMAGES, "blur", 5)[0]).all()
    flat = np.full((1, 8, 8, 3), (10, 100, 200), dtype=np.uint8)
    assert (shifted(flat, "blur", 5) == flat).all()  # neither do channels


def test_noise_is_by_the_seed():
    first, same, other = (shifted(IMAGES, "noise", 2, random_state=seed) for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("images", "kind", "severity", "error", "message"),
    [
        (IMAGES / 255, "noise", 1, InvalidInputError, "`images` must be uint8"),
        (IMAGES[0, 0], "noise", 1, InvalidInputError, "`images` must be uint8"),
        (IMAGES, "fog", 1, InvalidSettingError, "No kind is called 'fog'"),
        (IMAGES, "blur", 6, InvalidSettingError, "from 1 to 5, got 6"),
        (IMAGES, "blur", 0, InvalidSettingError, "from 1 to 5, got 0"),
    ],
)
def test_bad_input_is_named(images, kind, severity, error, message):
    with pytest.raises(error, match=message):
        shifted(images, kind, severity)


def test_few_shots_are_drawn_of_every_class():
    y = np.random.default_rng(0).integers(0, 4, 200)
    first, same, other = (few_shots(y, 7, random_state=seed) for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()
    assert np.bincount(y[first]).tolist() == [7] * 4
    assert (np.diff(first) > 0).all()
    with pytest.raises(InvalidSettingError, match="`n_shots`"):
        few_shots(y, 0)
