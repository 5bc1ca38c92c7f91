"""MNIST, Fashion-MNIST and CIFAR, human labels of CIFAR-10, and principal components."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from attnknn.errors import InvalidInputError
from attnknn.research.datasets.base import KNOWN, DataFile, Rows, Source
from attnknn.research.datasets.published import CLASSES, FORMS, arrays_of, read_form

N_COMPONENTS = 64
CIFAR100_COUNTS = (500, 100)  # training and test images of each class
CIFAR10N = {  # name: key in the file
    "aggregate": "aggre_label",
    **{f"random{number}": f"random_label{number}" for number in (1, 2, 3)},
    "worst": "worse_label",
}


def _reader(name: str) -> Callable[[list[Path]], Rows]:
    return lambda paths: read_form(name, paths[0])


def _read_hundred(paths: list[Path]) -> Rows:
    """Read CIFAR-100, and verify the number of images of each class."""
    rows = read_form("cifar100", paths[0])
    for labels, count in zip((rows.y_train, rows.y_test), CIFAR100_COUNTS, strict=True):
        if (np.bincount(labels, minlength=100) != count).any():
            raise InvalidInputError(
                f"{paths[0]} must hold {CIFAR100_COUNTS[0]} training and {CIFAR100_COUNTS[1]} test "
                "images of each of the 100 classes. Get the file again."
            )
    return rows


def _relabeled_reader(key: str) -> Callable[[list[Path]], Rows]:
    """Read CIFAR-10 with human training labels; test labels are the true ones."""

    def read(paths: list[Path]) -> Rows:
        rows = read_form("cifar10", paths[0])
        with np.load(paths[1], allow_pickle=False) as file:
            given = file[key].astype(np.int64)
        return replace(rows, y_train=given, extras={"y_true": rows.y_train})

    return read


def _component_reader(name: str) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        rows = _components(name, paths[0])
        return deepcopy(rows)  # so that nobody changes what the next caller gets

    return read


@lru_cache(maxsize=2)
def _components(name: str, path: Path) -> Rows:
    """Principal components, fitted on the training pixels."""
    images = read_form(name, path)
    train, test = _pixels(images.X_train), _pixels(images.X_test)
    n_components = min(N_COMPONENTS, *train.shape)
    pca = PCA(n_components, svd_solver="covariance_eigh").fit(train)
    train, test = (pca.transform(part).astype(np.float32) for part in (train, test))
    return replace(images, X_train=train, X_test=test)


def _pixels(images: NDArray[Any]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1).astype(np.float64) / 255.0


def _file(name: str) -> DataFile:
    """The NPZ file of a set of images, or the files in which it is published."""
    return DataFile(
        f"{name}.npz",
        arrays=KNOWN["arrays"].get(name, {}),
        md5=KNOWN["md5"].get(name, {}),
        others=tuple(FORMS[name]),
        read=partial(arrays_of, name),
    )


FILES = {name: _file(name) for name in ("mnist", "fashion-mnist", "cifar10", "cifar100")}


def _gray(name: str, origin: str, license: str) -> tuple[Source, Source]:
    """Images, and their components."""
    images = _images(name, 70_000, origin, license, _reader(name))
    reader = _component_reader(name)
    return images, replace(images, name=f"{name}-pca64", kind="vectors", read=reader)


def _images(
    name: str, n_rows: int, origin: str, license: str, read: Callable[[list[Path]], Rows]
) -> Source:
    return Source(
        name=name,
        kind="images",
        n_rows=n_rows,
        n_classes=len(CLASSES[name]),
        origin=f"{origin}, as published or as NPZ with x_train, y_train, x_test, y_test (uint8)",
        license=license,
        read=read,
        files=(FILES[name],),
    )


def _relabeled(name: str) -> Source:
    key = CIFAR10N[name]
    checksum = KNOWN["arrays"]["cifar10n"][key]
    return Source(
        name=f"cifar10n-{name}",
        kind="images",
        n_rows=60_000,
        n_classes=10,
        origin="https://github.com/UCSC-REAL/cifar-10-100n (CIFAR-10_human as NPZ, uint8); cifar10",
        license="CC BY-NC 4.0",
        read=_relabeled_reader(key),
        files=(FILES["cifar10"], DataFile("cifar10n.npz", arrays={key: checksum})),
    )


CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
SOURCES: tuple[Source, ...] = (
    *_gray("mnist", "http://yann.lecun.com/exdb/mnist", "CC BY-SA 3.0"),
    *_gray("fashion-mnist", "https://github.com/zalandoresearch/fashion-mnist", "MIT"),
    _images("cifar10", 60_000, CIFAR, "not stated", _reader("cifar10")),
    _images("cifar100", 60_000, CIFAR, "not stated", _read_hundred),
    *map(_relabeled, CIFAR10N),
)
