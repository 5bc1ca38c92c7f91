"""Mixing: labels in exactly the proportion of the images."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnknn.errors import InvalidSettingError
from attnknn.training.augmentation import Mixing, cutmix, mix, mixup
from attnknn.training.losses import one_hot


def batch(n: int, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Image i is i everywhere and belongs to class i, so that pixels tell whose they are."""
    images = torch.arange(float(n))[:, None, None, None].expand(n, 3, size, size + 2)
    return images.contiguous(), one_hot(torch.arange(n), n)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(n=st.integers(1, 9), strength=st.floats(0.05, 4.0), seed=st.integers(0, 999))
def test_mixup_blends_images_and_labels_alike(n, strength, seed):
    images, labels = batch(n)
    mixed = mixup(images, labels, strength, generator(seed))
    for i in range(n):
        partner, own = int(mixed.partners[i]), float(mixed.shares[i])
        expected = own * i + (1 - own) * partner
        assert torch.allclose(mixed.images[i], torch.tensor(expected), atol=1e-5)
        assert float(mixed.labels[i] @ torch.arange(float(n))) == pytest.approx(expected, abs=1e-5)
    assert sorted(mixed.partners.tolist()) == list(range(n))


@given(n=st.integers(1, 9), strength=st.floats(0.05, 4.0), seed=st.integers(0, 999))
def test_cutmix_labels_count_the_pasted_pixels(n, strength, seed):
    images, labels = batch(n)
    mixed = cutmix(images, labels, strength, generator(seed))
    for i in range(n):
        for c in range(n):
            pixels = (mixed.images[i, 0] == c).float().mean()
            assert float(mixed.labels[i, c]) == pytest.approx(float(pixels), abs=1e-6)
    assert torch.allclose(mixed.labels.sum(dim=1), torch.ones(n))


def test_the_pasted_part_is_one_box_of_all_channels():
    images, labels = batch(40)
    mixed = cutmix(images, labels, 1.0, generator())
    own = torch.arange(40.0)[:, None, None]
    for image, mine in zip(mixed.images, own, strict=True):
        assert torch.equal(image[0], image[1])
        rows, columns = (image[0] != mine[0]).nonzero().unbind(1)
        if len(rows):
            area = (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1)
            assert int(area) == len(rows)


def test_even_strength_gives_even_shares_and_little_strength_whole_images():
    images, labels = batch(2000, size=2)
    even = mixup(images, labels, 1.0, generator()).shares
    whole = mixup(images, labels, 0.05, generator()).shares
    assert 0.45 < float(even.mean()) < 0.55
    assert float(((even > 0.25) & (even < 0.75)).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert float(((whole > 0.25) & (whole < 0.75)).float().mean()) < 0.1


def test_a_mix_is_one_way_per_batch_in_the_asked_shares():
    images, labels = batch(6)
    drawn = generator()
    settings = Mixing(mixup=0.3, cutmix=0.5)
    kinds = []
    for _ in range(300):
        mixed = mix(images, labels, settings, drawn)
        is_whole = torch.equal(mixed.images, images) and torch.equal(mixed.labels, labels)
        is_pasted = torch.equal(mixed.images, mixed.images.round())
        kinds.append("none" if is_whole else "cutmix" if is_pasted else "mixup")
    assert kinds.count("mixup") == pytest.approx(90, abs=25)
    assert kinds.count("cutmix") == pytest.approx(150, abs=30)


def test_the_strength_of_the_settings_is_used():
    images, labels = batch(200, size=2)
    even, whole = (
        mix(images, labels, Mixing(mixup=1.0, strength=strength), generator()).shares
        for strength in (1.0, 0.02)
    )
    assert float((even * (1 - even)).mean()) > 2 * float((whole * (1 - whole)).mean())


def test_soft_labels_are_mixed_on():
    images, labels = batch(4)
    first = mixup(images, labels, 1.0, generator())
    second = cutmix(first.images, first.labels, 1.0, generator(1))
    assert torch.allclose(second.labels.sum(dim=1), torch.ones(4))


def test_a_generator_decides_everything():
    images, labels = batch(6)
    for way in (mixup, cutmix):
        once, again = (way(images, labels, 1.0, generator(3)) for _ in range(2))
        for field in fields(once):
            assert torch.equal(getattr(once, field.name), getattr(again, field.name))


def test_channels_last_stays_so():
    images, labels = batch(6)
    images = images.contiguous(memory_format=torch.channels_last)
    for way in (mixup, cutmix):
        mixed = way(images, labels, 1.0, generator())
        assert mixed.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixup": 0.6, "cutmix": 0.6}, "must add up to at most 1, got 0.6 and 0.6"),
        ({"mixup": -0.1}, "`mixup`"),
        ({"strength": 0.0}, "`strength` must be a finite number above 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        Mixing(**settings)
