"""Views: counted, without chance, of the images' shape and layout."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from attnknn.errors import InvalidSettingError
from attnknn.training.views import KINDS, Views, views_of

IMAGES = torch.rand(3, 3, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("kinds", "n_views"),
    [
        (("original",), 1),
        (("flip",), 1),
        (("vertical_flip",), 1),
        (("original", "flip"), 2),
        (("original", "vertical_flip"), 2),
        (("flip", "vertical_flip"), 3),
        (("original", "flip", "vertical_flip", "shift"), 20),
        (("shift",), 4),
        (("crop",), 5),
        (("original", "flip", "shift", "crop"), 20),
    ],
)
def test_views_are_counted_and_differ(kinds, n_views):
    views = Views(kinds=kinds)
    seen = list(views_of(IMAGES, views))
    assert len(seen) == len(views) == n_views
    assert all(view.shape == IMAGES.shape for view in seen)
    assert not any(torch.equal(a, b) for i, a in enumerate(seen) for b in seen[i + 1 :])
    assert all(torch.equal(a, b) for a, b in zip(seen, views_of(IMAGES, views), strict=True))


def test_the_first_views_are_the_image_and_its_mirror():
    first, second, *rest = views_of(IMAGES, Views(("original", "flip", "shift"), count=4, pixels=2))
    assert torch.equal(first, IMAGES)
    assert torch.equal(second, IMAGES.flip(3))
    assert len(rest) == 2
    padded = F.pad(IMAGES, (2,) * 4, mode="reflect")
    assert torch.equal(rest[0], padded[:, :, 4:12, 4:10])


def test_an_image_is_seen_from_every_side():
    seen = views_of(IMAGES, Views(("original", "flip", "vertical_flip")))
    sides = [IMAGES, IMAGES.flip(3), IMAGES.flip(2), IMAGES.flip(2, 3)]
    assert all(torch.equal(view, side) for view, side in zip(seen, sides, strict=True))


def test_crops_of_a_flat_image_are_flat():
    flat = torch.full((2, 1, 9, 9), 0.3)
    for view in views_of(flat, Views(("crop",), pixels=2)):
        assert torch.allclose(view, flat)


def test_channels_last_stays_so():
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    for view in views_of(last, Views(KINDS)):
        assert view.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ("orignal",)}, "Did you mean 'original'"),
        ({"kinds": ()}, "`count` must be at most 0"),
        ({"count": 2}, "`count` must be at most 1 for the kinds original, got 2"),
        ({"pixels": 0}, "`pixels` must be an integer of at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        Views(**settings)


def test_images_of_one_pixel_have_an_original_and_a_mirror_image():
    assert len(list(views_of(torch.zeros(1, 1, 1, 1), Views(("original", "flip"))))) == 2


def test_images_too_small_for_the_views_are_refused():
    with pytest.raises(InvalidSettingError, match="`pixels` must be below"):
        list(views_of(IMAGES, Views(("shift",), pixels=3)))
