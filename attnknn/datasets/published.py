"""Image sets in the files in which they are published: CIFAR's batches, MNIST's idx files, NPZ."""

from __future__ import annotations

import gzip
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.datasets.base import Rows
from attnknn.datasets.images import CLOTHES, DIGITS, THINGS
from attnknn.errors import InvalidInputError, MissingDataError, unknown_name

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Split = tuple[Images, Labels]
N_PIXELS, SIDE = 3072, 32  # of an image of CIFAR
HARMLESS = {  # what numpy's arrays are made of in a pickle
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_published(name: str, folder: Path) -> Rows:
    """The training and test images of `name` in `folder`, or in its usual folder there.

    Checksums are not asked for: whoever names a folder knows what is in it.
    """
    if name not in FORMS:
        raise unknown_name("set of published images", name, FORMS)
    forms = {f"{name}.npz": _read_npz, **FORMS[name]}
    for place, read in forms.items():
        if (folder / place).exists():
            return read(folder / place, name)
    raise MissingDataError(f"{folder} holds none of {', '.join(forms)}, in which {name!r} comes.")


def _read_npz(path: Path, name: str) -> Rows:
    with np.load(path, allow_pickle=False) as file:
        absent = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in file]
        if absent:
            raise InvalidInputError(f"{path} must hold the array {absent[0]!r}.")
        train, test = (
            (file[f"x_{part}"], file[f"y_{part}"].ravel().astype(np.int64))
            for part in ("train", "test")
        )
    return _rows(train, test, _classes(name), path)


def _read_binary(path: Path, name: str) -> Rows:
    """Records of one label (CIFAR-10) or two (CIFAR-100, the second is the finer) and an image."""
    n_labels = 1 if name == "cifar10" else 2
    files = _batches(path, ".bin", name)

    def read(file: Path) -> Split:
        content = np.frombuffer(_content(file), dtype=np.uint8)
        if not len(content) or len(content) % (n_labels + N_PIXELS):
            raise InvalidInputError(f"{file} is cut off: it holds no whole number of images.")
        records = content.reshape(-1, n_labels + N_PIXELS)
        return _unpacked(records[:, n_labels:]), records[:, n_labels - 1].astype(np.int64)

    return _rows(_joined(files["train"], read), _joined(files["test"], read), _classes(name), path)


def _read_pickled(path: Path, name: str) -> Rows:
    key = b"labels" if name == "cifar10" else b"fine_labels"
    files = _batches(path, "", name)

    def read(file: Path) -> Split:
        batch = _Harmless(io.BytesIO(_content(file)), encoding="bytes").load()
        try:
            return _unpacked(batch[b"data"]), np.array(batch[key], dtype=np.int64)
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"{file} is no batch of {name}: {error}.") from error

    return _rows(_joined(files["train"], read), _joined(files["test"], read), _classes(name), path)


class _Harmless(pickle.Unpickler):
    """Reads arrays and plain values; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in HARMLESS:
            raise InvalidInputError(
                f"A batch of images names {module}.{name}, which is no array: it is not read."
            )
        return super().find_class(module, name)


def _batches(path: Path, ending: str, name: str) -> dict[str, list[Path]]:
    if name == "cifar100":
        names = {"train": ["train"], "test": ["test"]}
    else:
        names = {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]}
    return {part: [path / f"{file}{ending}" for file in files] for part, files in names.items()}


def _joined(files: list[Path], read: Callable[[Path], Split]) -> Split:
    parts = [read(file) for file in files]
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _unpacked(pixels: Images) -> Images:
    """Rows of 3 × 32 × 32 pixels as (n, 32, 32, 3)."""
    return pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def _read_idx_folder(path: Path, name: str) -> Rows:
    folder = path if path.is_dir() else path.parent
    train, test = (
        (
            _read_idx(_either(folder / f"{part}-images-idx3-ubyte"), 3),
            _read_idx(_either(folder / f"{part}-labels-idx1-ubyte"), 1).astype(np.int64),
        )
        for part in ("train", "t10k")
    )
    return _rows(train, test, _classes(name), folder)


def _read_idx(path: Path, n_axes: int) -> Images:
    """An array of bytes: two zeros, its type, its number of axes, their lengths, the bytes."""
    content = _content(path)
    header = 4 + 4 * n_axes
    if content[:4] != bytes([0, 0, 8, n_axes]):
        raise InvalidInputError(f"{path} is no idx file of bytes with {n_axes} axes.")
    shape = np.frombuffer(content[4:header], dtype=">i4").tolist()
    if len(content) - header != np.prod(shape):
        raise InvalidInputError(f"{path} is cut off: it holds no array of the shape {shape}.")
    return np.frombuffer(content[header:], dtype=np.uint8).reshape(shape)


def _either(path: Path) -> Path:
    """The file, or the compressed one."""
    zipped = path.with_name(f"{path.name}.gz")
    return zipped if zipped.exists() else path


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise MissingDataError(f"There is no {path}.")
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _rows(train: Split, test: Split, classes: tuple[str, ...], path: Path) -> Rows:
    for images, labels in (train, test):
        if len(images) != len(labels):
            raise InvalidInputError(f"{path} has {len(images)} images and {len(labels)} labels.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise InvalidInputError(f"{path} must have labels from 0 to {len(classes) - 1}.")
    return Rows(*train, *test, classes=classes)


def _classes(name: str) -> tuple[str, ...]:
    known = {"cifar10": THINGS, "mnist": DIGITS, "fashion-mnist": CLOTHES}
    return known.get(name, tuple(map(str, range(100))))


IDX = {f"train-images-idx3-ubyte{ending}": _read_idx_folder for ending in ("", ".gz")}
FORMS: dict[str, dict[str, Callable[[Path, str], Rows]]] = {
    "cifar10": {"cifar-10-batches-py": _read_pickled, "cifar-10-batches-bin": _read_binary},
    "cifar100": {"cifar-100-python": _read_pickled, "cifar-100-binary": _read_binary},
    "mnist": {"MNIST/raw": _read_idx_folder, **IDX},
    "fashion-mnist": {"FashionMNIST/raw": _read_idx_folder, **IDX},
}
