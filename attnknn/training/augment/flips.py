"""Mirrored images: at random, or one side and then the other."""

from __future__ import annotations

import torch
from torch import Tensor

from attnknn.training.augment.chance import uniform

ACROSS, DOWN = 3, 2  # the axis that a horizontal and a vertical flip turn around


def flip(images: Tensor, is_flipped: Tensor, axis: int = ACROSS) -> Tensor:
    """Images (B, C, H, W), those marked in `is_flipped` (B,) mirrored."""
    return torch.where(is_flipped[:, None, None, None], images.flip(axis), images)


def random_flip(images: Tensor, generator: torch.Generator, axis: int = ACROSS) -> Tensor:
    """Each image mirrored with probability one half."""
    return flip(images, uniform(images, 0.0, 1.0, generator) < 0.5, axis)


def alternating_flip(
    images: Tensor, rows: Tensor, epoch: int, seed: int, axis: int = ACROSS
) -> Tensor:
    """Each image from a random side in epoch 0, then from the other side in every next epoch.

    Two epochs in a row show each row from both sides, where random flips would show half of the
    rows twice from one. The side is a function of `seed`, the row's number and the epoch, so it
    does not matter in which order or in which process rows are seen.

    Parameters
    ----------
    rows : numbers of the rows (B,)
    """
    first = _random_bits(rows, 2 * seed + (axis == DOWN))
    return flip(images, ((first + epoch) % 2 == 1).to(images.device), axis)


def _random_bits(rows: Tensor, seed: int) -> Tensor:
    """One bit per row (B,), on the CPU: a finalizing hash of row and seed in 64 bits."""
    mixed = rows.cpu().to(torch.int64) + _signed(seed * 0x9E3779B97F4A7C15)
    for factor, shift in ((0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)):
        mixed = (mixed ^ _shifted(mixed, shift)) * _signed(factor)  # wraps, as hashes do
    return (mixed ^ _shifted(mixed, 31)) & 1


def _shifted(value: Tensor, by: int) -> Tensor:
    """A shift to the right that fills with zeros; torch's own repeats the sign."""
    return (value >> by) & ((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
