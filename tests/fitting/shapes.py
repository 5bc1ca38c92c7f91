"""Small images of shapes: a disk, a frame, a cross or stripes, anywhere, in any color, in noise."""

from __future__ import annotations

import numpy as np

SIDE = 16


def shapes(n_rows, seed=0, channels=3):
    """Images (n, 16, 16, 3) or (n, 16, 16), and what each shows (0 to 3)."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n_rows) % 4
    y, x = np.mgrid[:SIDE, :SIDE][:, None] - rng.integers(5, 11, (2, n_rows, 1, 1))
    far = np.maximum(np.abs(x), np.abs(y))
    inside = far <= 4
    drawn = np.select(
        [codes[:, None, None] == code for code in range(4)],
        [x**2 + y**2 <= 12, far == 4, inside & ((x == 0) | (y == 0)), inside & (x % 2 == 0)],
    )
    color = rng.integers(120, 256, (n_rows, channels, 1, 1))
    noise = rng.integers(0, 110, (n_rows, channels, SIDE, SIDE))
    images = np.where(drawn[:, None], color, noise).astype(np.uint8)
    return (images.transpose(0, 2, 3, 1) if channels == 3 else images[:, 0]), codes
