"""Images come as arrays, PIL images or paths, and what cannot be used is named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn.encoders.image.rows import ImageShape, image_rows
from attnknn.errors import InvalidInputError

ALL = np.arange(6)


def taken(X, size=None, shape=None):
    rows = image_rows(X)
    return rows.take(np.arange(len(rows)), shape or rows.shape(size), may_resize=size is not None)


def test_every_way_to_hold_images_gives_the_same_pixels(images, folder):
    first = images.transpose(0, 3, 1, 2)
    paths = sorted(folder.rglob("*.png"))
    ways = [
        images,
        first,
        list(images),
        [Image.fromarray(image) for image in images],
        paths,
        [str(path) for path in paths],
        np.array([str(path) for path in paths]),
        pd.DataFrame({"file": [str(path) for path in paths]}),
        pd.Series(paths),
    ]
    for way in ways:
        assert np.array_equal(taken(way), first)


def test_gray_images_have_one_channel(images):
    gray = images[..., 0]
    for way in (gray, gray[..., None], [Image.fromarray(image) for image in gray]):
        assert image_rows(way).shape(None) == ImageShape(1, 16, 16)
        assert np.array_equal(taken(way), gray[:, None])


def test_gray_images_among_colored_ones_get_three_equal_channels(images):
    mixed = [Image.fromarray(images[0]), Image.fromarray(images[1, ..., 0])]
    found = taken(mixed)
    assert found.shape == (2, 3, 16, 16)
    assert (found[1] == images[1, ..., 0]).all()


def test_palettes_and_opaque_layers_are_colors(images):
    picture = Image.fromarray(images[0])
    palette, layered = picture.convert("P"), picture.convert("RGBA")
    assert np.array_equal(taken([layered])[0], images[0].transpose(2, 0, 1))
    assert taken([palette]).shape == (1, 3, 16, 16)


def test_turned_photographs_are_set_upright(tmp_path, rng):
    pixels = rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    rows = image_rows([tmp_path / "turned.png"])
    assert rows.shape(None) == ImageShape(3, 12, 8)
    upright = np.rot90(pixels, -1).transpose(2, 0, 1)
    assert np.array_equal(taken([tmp_path / "turned.png"])[0], upright)


def test_images_are_resized_alike_wherever_they_come_from(images):
    small = taken(images, size=(8, 10))
    assert small.shape == (6, 3, 8, 10)
    assert np.array_equal(taken([Image.fromarray(image) for image in images], (8, 10)), small)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 8, 8)), "uint8, from 0 to 255, got float64"),
        (np.zeros((2, 8, 8, 4), np.uint8), r"got \(2, 8, 8, 4\)"),
        (np.zeros((2, 3, 8, 3), np.uint8), r"got \(2, 3, 8, 3\)"),
        (np.zeros((8, 8), np.uint8), r"got \(8, 8\)"),
        ("cat.png", "got one path: 'cat.png'"),
        (Image.new("RGB", (4, 4)), "got one image"),
        ([None], "row 0 is 'None'"),
        ([np.zeros((4, 4, 2), np.uint8)], r"row 0 is uint8 of shape \(4, 4, 2\)"),
        (["no/such.png"], "There is no image at no/such.png"),
        ([Image.new("I;16", (4, 4))], "8 bits per channel.*row 0 has mode 'I;16'"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), "one column of paths, got 2"),
    ],
)
def test_what_is_no_image_is_named(X, message):
    with pytest.raises(InvalidInputError, match=message):
        taken(X)


def test_files_that_cannot_be_read_are_named(tmp_path, images):
    text, cut = tmp_path / "text.png", tmp_path / "cut.png"
    text.write_text("not an image")
    Image.fromarray(images[0]).save(cut)
    cut.write_bytes(cut.read_bytes()[:200])
    with pytest.raises(InvalidInputError, match=r"text\.png cannot be read as an image"):
        taken([text])
    with pytest.raises(InvalidInputError, match=r"cut\.png cannot be read as an image"):
        taken([cut])
    with pytest.raises(InvalidInputError, match="is a folder, not an image"):
        taken([tmp_path])


def test_transparent_images_are_refused_by_name(tmp_path):
    Image.new("RGBA", (4, 4), (1, 2, 3, 0)).save(tmp_path / "glass.png")
    with pytest.raises(InvalidInputError, match=r"glass\.png has transparent"):
        taken([tmp_path / "glass.png"])


def test_mixed_sizes_name_both_files(tmp_path):
    for name, side in (("a", 8), ("b", 9)):
        Image.new("RGB", (side, 8)).save(tmp_path / f"{name}.png")
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    message = r"b\.png is 8 × 9, .*a\.png is 8 × 8. Set `image_size`"
    with pytest.raises(InvalidInputError, match=message):
        taken(paths)
    assert taken(paths, size=(8, 8)).shape == (2, 3, 8, 8)


def test_images_unlike_those_of_fit_are_named(images):
    gray = ImageShape(1, 16, 16)
    for way in (images, list(images)):
        with pytest.raises(InvalidInputError, match=r"has 3 channels.*fitted on gray"):
            taken(way, shape=gray)
    for way, name in ((images, "The array"), (list(images), "row 0")):
        with pytest.raises(InvalidInputError, match=f"{name} has 16 × 16 pixels, .* 8 × 8"):
            taken(way, shape=ImageShape(3, 8, 8))
