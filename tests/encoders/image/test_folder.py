"""A folder of images by class becomes rows, labels and names."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from attnknn.encoders.image import ImageEncoder, ImageInference, read_image_folder
from attnknn.errors import InvalidInputError


def test_a_folder_gives_paths_labels_and_names(folder):
    found = read_image_folder(folder)
    assert found.classes == ["cat", "dog"]
    assert found.labels.tolist() == ["cat"] * 3 + ["dog"] * 3
    assert found.names[0] == "cat/0.png"
    assert all(path.exists() for path in found.paths)


def test_parts_are_read_one_at_a_time(folder, tmp_path):
    parts = tmp_path / "parts"
    for part in ("train", "test"):
        shutil.copytree(folder, parts / part)
    assert len(read_image_folder(parts, "test")) == 6
    assert read_image_folder(parts, "train").names[-1] == "dog/5.png"
    with pytest.raises(InvalidInputError, match=r"has the parts train, test\. Choose one"):
        read_image_folder(parts)
    with pytest.raises(InvalidInputError, match=r"no part 'val'\. It has: train, test"):
        read_image_folder(parts, "val")


def test_classes_may_be_called_like_parts(folder):
    (folder / "cat").rename(folder / "test")
    assert read_image_folder(folder).classes == ["dog", "test"]


def test_hidden_files_are_left_out_and_others_listed(folder):
    (folder / "cat" / ".DS_Store").write_text("")
    (folder / "cat" / "notes.txt").write_text("")
    (folder / ".cache").mkdir()
    found = read_image_folder(folder)
    assert len(found) == 6
    assert [path.name for path in found.skipped] == ["notes.txt"]


def test_folders_that_are_wrong_are_named(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="empty must have a subfolder"):
        read_image_folder(tmp_path / "empty")
    with pytest.raises(InvalidInputError, match=r"0\.png is a file, not a folder"):
        read_image_folder(folder / "cat" / "0.png")
    (folder / "bird").mkdir()
    with pytest.raises(InvalidInputError, match="bird has no image"):
        read_image_folder(folder)
    (folder / "bird").rmdir()
    Image.new("RGB", (4, 4)).save(folder / "stray.png")
    with pytest.raises(InvalidInputError, match=r"stray\.png is in no class"):
        read_image_folder(folder)


def test_blocks_hold_every_row_once(folder):
    found = read_image_folder(folder)
    blocks = list(found.blocks(4))
    assert [len(block) for block in blocks] == [4, 2]
    assert [name for block in blocks for name in block.names] == found.names


def test_files_and_arrays_have_the_same_embeddings(folder, images):
    encoder = ImageEncoder(widths=(4, 8, 8), inference=ImageInference(batch_size=4)).fit(
        read_image_folder(folder).paths
    )
    by_file = encoder.transform(read_image_folder(folder).paths)
    assert np.array_equal(by_file, encoder.transform(images))
