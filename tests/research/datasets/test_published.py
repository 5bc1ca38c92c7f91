"""Image sets are read from the files in which they are published."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from attnknn.errors import AttnKNNError, InvalidInputError, MissingDataError
from attnknn.research import datasets
from attnknn.research.datasets.published import read_published

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


PLACES = {
    ("cifar10", "binary"): "cifar-10-batches-bin",
    ("cifar10", "pickled"): "cifar-10-batches-py",
    ("cifar100", "binary"): "cifar-100-binary",
    ("cifar100", "pickled"): "cifar-100-python",
}
ARCHIVES = {
    ("cifar10", "binary"): "cifar-10-binary.tar.gz",
    ("cifar10", "pickled"): "cifar-10-python.tar.gz",
    ("cifar100", "binary"): "cifar-100-binary.tar.gz",
    ("cifar100", "pickled"): "cifar-100-python.tar.gz",
}


def write_batches(parent, name, form):
    folder = parent / PLACES[name, form]
    folder.mkdir(parents=True)
    return (write_binary if form == "binary" else write_pickled)(folder, name)


def pack(parent, name, form):
    """The folder becomes the archive in which it is published."""
    folder = parent / PLACES[name, form]
    with tarfile.open(parent / ARCHIVES[name, form], "w:gz") as archive:
        archive.add(folder, folder.name)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return parent / ARCHIVES[name, form]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("form", ["binary", "pickled"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_batches_of_cifar(tmp_path, name, form, is_packed):
    known = write_batches(tmp_path, name, form)
    if is_packed:
        pack(tmp_path, name, form)
    rows = read_published(name, tmp_path)
    *train, test = known.values()
    pixels = np.concatenate([part[0] for part in train])
    assert (rows.y_train == np.concatenate([part[1] for part in train])).all()
    assert (rows.X_train[3, 5, 7] == pixels[3].reshape(3, 32, 32)[:, 5, 7]).all()
    assert (rows.y_test == test[1]).all()
    assert len(set(rows.classes)) == N_OF[name]


def test_classes_of_cifar100_have_their_names(tmp_path):
    write_batches(tmp_path, "cifar100", "binary")
    classes = read_published("cifar100", tmp_path).classes
    assert (classes[0], classes[50], classes[99]) == ("apple", "mouse", "worm")


def test_damaged_archives_and_archives_of_something_else_are_named(tmp_path):
    write_batches(tmp_path, "cifar100", "pickled")
    path = pack(tmp_path, "cifar100", "pickled")
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive"):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"cifar-100-python\.tar\.gz is damaged"):
            read_published("cifar100", tmp_path)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("cifar-100-python/meta"))
    with pytest.raises(MissingDataError, match=r"There is no train in .*python\.tar\.gz"):
        read_published("cifar100", tmp_path)


def write_idx(folder, images, labels, ending):
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            content = header + array.tobytes()
            content = gzip.compress(content) if ending else content
            (folder / f"{part}-{kind}-ubyte{ending}").write_bytes(content)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("place", [".", "MNIST/raw"])
def test_idx_files_of_mnist(tmp_path, ending, place):
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    images = CHANCE.integers(0, 256, (6, 28, 28), dtype=np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    write_idx(folder, images, labels, ending)
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


@pytest.fixture
def small_cifar100(monkeypatch):
    """CIFAR-100 may have any number of images, and any checksum that is asked for."""

    def expect(n_train, n_test, md5):
        source = datasets.SOURCES["cifar100"]
        files = (replace(source.files[0], md5=md5),)
        monkeypatch.setitem(datasets.SOURCES, "cifar100", replace(source, files=files))
        monkeypatch.setattr("attnknn.research.datasets.images.CIFAR100_COUNTS", (n_train, n_test))

    return expect


def write_whole_cifar100(parent, form):
    """One image of each class to train on, and one to test on."""
    folder = parent / PLACES["cifar100", form]
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(1).integers(0, 256, (100, 3072), dtype=np.uint8)
    for file in ("train", "test"):
        if form == "pickled":
            batch = {b"data": pixels, b"fine_labels": list(range(100))}
            (folder / file).write_bytes(pickle.dumps(batch))
        else:
            columns = [np.zeros((100, 1)), np.arange(100)[:, None], pixels]
            (folder / f"{file}.bin").write_bytes(np.hstack(columns).astype(np.uint8).tobytes())


def md5_of(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_cifar100_has_one_checksum_in_all_its_forms(folder, small_cifar100):
    found = []
    for form in ("pickled", "binary"):
        write_whole_cifar100(folder, form)
        small_cifar100(1, 1, {})
        found.append(datasets.load("cifar100"))
        path = pack(folder, "cifar100", form)
        small_cifar100(1, 1, {path.name: md5_of(path)})
        found.append(datasets.load("cifar100"))
        path.unlink()
    arrays = {"x_train": found[0].X_train, "x_test": found[0].X_test}
    np.savez(folder / "cifar100.npz", **arrays, y_train=np.arange(100), y_test=np.arange(100))
    found.append(datasets.load("cifar100"))
    assert len({dataset.checksum for dataset in found}) == 1
    assert all((dataset.X_train == found[0].X_train).all() for dataset in found)
    assert found[0].y_train.tolist() == list(range(100))


def test_published_files_of_cifar100_must_have_the_published_md5(folder, small_cifar100):
    write_whole_cifar100(folder, "pickled")
    with pytest.raises(InvalidInputError, match="train must have the md5 16019d7e3df5f242"):
        datasets.load("cifar100")
    pack(folder, "cifar100", "pickled")
    with pytest.raises(InvalidInputError, match=r"tar\.gz must have the md5 eb9058c3a382ffc7"):
        datasets.load("cifar100")


def test_cifar100_of_another_size_is_refused(folder):
    folder.mkdir()
    images, labels = np.zeros((200, 1, 1, 3), dtype=np.uint8), np.arange(200) % 100
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(folder / "cifar100.npz", **arrays)
    with pytest.raises(InvalidInputError, match="must hold 500 training and 100 test images"):
        datasets.load("cifar100")


def test_published_files_stand_in_for_the_npz_file(folder, put_arrays):
    images = CHANCE.integers(0, 256, (20, 28, 28), dtype=np.uint8)
    labels = (np.arange(20) % 10).astype(np.uint8)
    path = put_arrays("mnist", x_train=images, y_train=labels, x_test=images, y_test=labels)
    known = datasets.load("mnist")
    path.unlink()
    with pytest.raises(MissingDataError, match=r"needs mnist\.npz \(or MNIST/raw\)"):
        datasets.load("mnist")
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    write_idx(raw, images, labels, ".gz")
    found = datasets.load("mnist")
    assert "mnist" in datasets.available()
    assert found.checksum == known.checksum
    assert (found.X_test == known.X_test).all()
    write_idx(raw, images[::-1], labels, ".gz")
    with pytest.raises(InvalidInputError, match=r"raw \(x_train\) must have the sha256"):
        datasets.load("mnist")
