"""Flips: each image whole or mirrored, and alternating ones from the other side each epoch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from attnknn.training.augment.flips import ACROSS, DOWN, alternating_flip, flip, random_flip


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
