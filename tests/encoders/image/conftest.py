"""Images for tests: a few of noise, and a folder of them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def images(rng):
    """Six images (6, 16, 16, 3) of noise."""
    return rng.integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, images):
    """The same images as files of two classes: cat has 0 to 2, dog 3 to 5."""
    root = tmp_path / "animals"
    for row, image in enumerate(images):
        path = root / ("cat" if row < 3 else "dog") / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return root
