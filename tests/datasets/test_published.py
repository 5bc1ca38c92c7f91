"""Image sets are read from the files in which they are published."""

from __future__ import annotations

import gzip
import pickle

import numpy as np
import pytest

from attnknn.datasets.published import read_published
from attnknn.errors import AttnKNNError, InvalidInputError, MissingDataError

CHANCE = np.random.default_rng(0)
N_OF = {"cifar10": 10, "cifar100": 100}


def batch(n, n_classes):
    return CHANCE.integers(0, 256, (n, 3072), dtype=np.uint8), CHANCE.integers(0, n_classes, n)


def files_of(name):
    if name == "cifar100":
        return ["train", "test"]
    return [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]


def write_binary(folder, name):
    known = {}
    for file in files_of(name):
        pixels, labels = known[file] = batch(4, N_OF[name])
        columns = [labels.astype(np.uint8)[:, None], pixels]
        if name == "cifar100":
            columns.insert(0, np.zeros((4, 1), dtype=np.uint8))
        (folder / f"{file}.bin").write_bytes(np.hstack(columns).tobytes())
    return known


def write_pickled(folder, name):
    known = {}
    for file in files_of(name):
        pixels, labels = known[file] = batch(4, N_OF[name])
        key = b"labels" if name == "cifar10" else b"fine_labels"
        content = {b"data": pixels, key: labels.tolist(), b"filenames": [b"a.png"] * 4}
        (folder / file).write_bytes(pickle.dumps(content))
    return known


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("form", ["binary", "pickled"])
def test_batches_of_cifar(tmp_path, name, form):
    places = {
        ("cifar10", "binary"): "cifar-10-batches-bin",
        ("cifar10", "pickled"): "cifar-10-batches-py",
        ("cifar100", "binary"): "cifar-100-binary",
        ("cifar100", "pickled"): "cifar-100-python",
    }
    folder = tmp_path / places[name, form]
    folder.mkdir()
    known = (write_binary if form == "binary" else write_pickled)(folder, name)
    rows = read_published(name, tmp_path)
    *train, test = known.values()
    pixels = np.concatenate([part[0] for part in train])
    assert (rows.y_train == np.concatenate([part[1] for part in train])).all()
    assert (rows.X_train[3, 5, 7] == pixels[3].reshape(3, 32, 32)[:, 5, 7]).all()
    assert (rows.y_test == test[1]).all()
    assert len(rows.classes) == N_OF[name]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("place", [".", "MNIST/raw"])
def test_idx_files_of_mnist(tmp_path, ending, place):
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    images = CHANCE.integers(0, 256, (6, 28, 28), dtype=np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            content = header + array.tobytes()
            content = gzip.compress(content) if ending else content
            (folder / f"{part}-{kind}-ubyte{ending}").write_bytes(content)
    rows = read_published("mnist", tmp_path)
    assert (rows.X_train == images).all()
    assert (rows.y_test == labels).all()


def test_npz_files(tmp_path):
    images = np.zeros((3, 32, 32, 3), dtype=np.uint8)
    arrays = {"x_train": images, "x_test": images}
    np.savez(tmp_path / "cifar100.npz", **arrays, y_train=[[1], [2], [99]], y_test=[0, 1, 2])
    rows = read_published("cifar100", tmp_path)
    assert rows.y_train.tolist() == [1, 2, 99]


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    class Harmful:
        def __reduce__(self):
            return print, ("harm",)

    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(InvalidInputError, match=r"builtins\.print, which is no array"):
        read_published("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("cifar10", "cifar-10-batches-bin/data_batch_1.bin", b"123", "no whole number of images"),
        ("mnist", "train-images-idx3-ubyte", b"1234", "no idx file"),
        ("mnist", "train-images-idx3-ubyte", bytes([0, 0, 8, 3] + [0, 0, 0, 2] * 3), "cut off"),
        ("cifar100", "cifar-100-python/train", pickle.dumps({}), "no batch of cifar100"),
        ("cifar100", "cifar-100-python/other", b"", "There is no"),
        ("cifar10", "else", b"", "holds none of cifar10.npz, cifar-10-batches-py"),
    ],
)
def test_damaged_and_missing_files_are_named(tmp_path, name, file, content, message):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(AttnKNNError, match=message):
        read_published(name, tmp_path)


def test_labels_beyond_the_classes_are_refused(tmp_path):
    images = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    arrays = {"x_train": images, "x_test": images, "y_test": [0]}
    np.savez(tmp_path / "cifar10.npz", **arrays, y_train=[10])
    with pytest.raises(InvalidInputError, match="labels from 0 to 9"):
        read_published("cifar10", tmp_path)
    with pytest.raises(MissingDataError):
        read_published("cifar100", tmp_path)
