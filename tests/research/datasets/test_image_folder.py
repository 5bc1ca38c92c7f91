"""Folders of images by class are data sets."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from attnknn.encoders.image.rows import image_rows
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.datasets import load_folder
from attnknn.research.evaluation import protocol


def write(root, *parts, classes=("cat", "dog"), n=3):
    """n gray images of each class in each part; '' is the folder itself."""
    for part in parts:
        for code, label in enumerate(classes):
            folder = root / part / label
            folder.mkdir(parents=True)
            for number in range(n):
                pixels = np.full((4, 4), 40 * code + number, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.mark.parametrize("test", ["val", "valid", "validation", "test"])
@pytest.mark.parametrize("train", ["train", "training"])
def test_a_part_for_training_stands_beside_one_for_testing(tmp_path, train, test):
    write(tmp_path, train, test)
    data = load_folder(tmp_path, name="pets")
    assert repr(data) == "Dataset('pets', images, 6 training rows, 6 test rows, 2 classes)"
    assert data.classes == ("cat", "dog")
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert [path.relative_to(tmp_path).as_posix() for path in data.X_test[2:4]] == [
        f"{test}/cat/2.png",
        f"{test}/dog/0.png",
    ]


def test_rows_are_read_as_images(tmp_path):
    write(tmp_path, "train", "val")
    rows = image_rows(load_folder(tmp_path).X_train)
    shape = rows.shape(None)
    assert rows.take(np.array([1, 5]), shape, may_resize=False)[:, 0, 0, 0].tolist() == [1, 42]


def test_validation_images_beside_a_test_are_extras(tmp_path):
    write(tmp_path, "train", "val", "test")
    data = load_folder(tmp_path)
    assert {path.parts[-3] for path in data.X_test} == {"test"}
    assert {path.parts[-3] for path in data.extras["x_calibration"]} == {"val"}
    assert data.extras["y_calibration"].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_test_part_without_classes_is_not_for_testing(tmp_path):
    """As in ImageNet, whose test labels are kept back."""
    write(tmp_path, "train", "val")
    (tmp_path / "test").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "test" / "0.png")
    data = load_folder(tmp_path)
    assert {path.parts[-3] for path in data.X_test} == {"val"}
    assert not data.extras


def test_of_a_folder_without_parts_a_fifth_is_for_testing(tmp_path):
    write(tmp_path, "", n=10)
    data = load_folder(tmp_path, name="pets")
    assert np.bincount(data.y_test).tolist() == [2, 2]
    assert not set(data.X_train) & set(data.X_test)
    again = load_folder(tmp_path, name="pets")
    assert (data.X_test == again.X_test).all()
    parts = data.parts()
    assert np.bincount(parts.y_calibration).tolist() == [2, 2]
    assert len(set(parts.X_train) | set(parts.X_calibration) | set(parts.X_test)) == 20


def test_a_class_may_be_called_like_a_part(tmp_path):
    write(tmp_path, "", classes=("plane", "train"))
    assert load_folder(tmp_path).classes == ("plane", "train")


def test_the_checksum_is_of_names_and_sizes(tmp_path):
    write(tmp_path, "train", "val")
    before = load_folder(tmp_path)
    assert before.checksum == load_folder(tmp_path).checksum
    path = before.X_test[0]
    path.write_bytes(path.read_bytes() + b" ")
    longer = load_folder(tmp_path).checksum
    path.rename(path.with_name("other.png"))
    assert len({before.checksum, longer, load_folder(tmp_path).checksum}) == 3


def test_the_folder_gives_its_name_and_stands_as_source(tmp_path, monkeypatch):
    write(tmp_path / "pets", "train", "val")
    monkeypatch.chdir(tmp_path / "pets")
    data = load_folder(".")
    assert (data.name, data.source) == ("pets", ".")


def test_files_that_are_no_images_give_a_warning(tmp_path):
    write(tmp_path, "train", "val")
    (tmp_path / "val" / "cat" / "notes.txt").write_text("")
    with pytest.warns(UserWarning, match=r"Left out as no images: 1 files, as .*notes\.txt"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "There is no folder at"),
        (["train"], "must hold a folder 'test' or 'val' beside 'train'"),
        (["val"], "must hold a folder 'train' beside 'val'"),
    ],
)
def test_what_a_folder_lacks_is_said(tmp_path, parts, message):
    write(tmp_path / "pets", *parts)
    with pytest.raises(InvalidInputError, match=message):
        load_folder(tmp_path / "pets")


def test_classes_without_training_images_are_named(tmp_path):
    write(tmp_path, "train")
    write(tmp_path, "val", classes=("cat", "cow"))
    with pytest.raises(InvalidInputError, match="class 'cow', but none of them to train on"):
        load_folder(tmp_path)


def test_a_fifth_of_two_images_is_none(tmp_path):
    write(tmp_path, "", n=2)
    with pytest.raises(InvalidInputError, match="at least three images"):
        load_folder(tmp_path)


def test_the_protocol_asks_for_an_encoder_of_files(tmp_path):
    write(tmp_path, "train", "val")
    method = protocol.Method("any", lambda seed: None)
    with pytest.raises(InvalidSettingError, match="takes images that are arrays, got paths"):
        protocol.run(load_folder(tmp_path), [method], [0])
