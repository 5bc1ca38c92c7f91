"""Small images, the labels that people gave to some, and principal components of gray ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from attnknn.errors import InvalidInputError
from attnknn.research.datasets.base import DataFile, Rows, Source
from attnknn.research.datasets.published import CLASSES, FORMS, arrays_of, read_form

N_COMPONENTS = 64
MNIST = {
    "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
FASHION = {
    "x_train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    "y_train": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    "x_test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
    "y_test": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
}
CIFAR10 = {
    "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}
CIFAR100_MD5 = {  # as the publisher and torchvision state them; those of arrays are not known
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
CIFAR100_COUNTS = (500, 100)  # training and test images of each class
CIFAR10N = {  # name: key in the file, checksum
    "aggregate": (
        "aggre_label",
        "2bd5e02e39c9c79772cf4c794f7b74630ac1aaeeac4b807a63c11e9a375f8404",
    ),
    "random1": (
        "random_label1",
        "8d01b5a5af048e84bf6e964c86e1133e95d5b22c07763e23705b714ad0f32d8b",
    ),
    "random2": (
        "random_label2",
        "7ea04c887750912f49669282a75e78df380077766b361fb6cb5200999ad6dcda",
    ),
    "random3": (
        "random_label3",
        "cdbfad7e15bfc8fc83bc7c6e30b692e2aa1186660d82738b7543a6012d6ca46f",
    ),
    "worst": (
        "worse_label",
        "11a306ed336e3bc81aaac36322ddf12de379d0df1883aa43e10ba562a98f6b2a",
    ),
}


def _reader(name: str) -> Callable[[list[Path]], Rows]:
    return lambda paths: read_form(name, paths[0])


def _read_hundred(paths: list[Path]) -> Rows:
    """CIFAR-100, with as many images of each class as it should have."""
    rows = read_form("cifar100", paths[0])
    for labels, count in zip((rows.y_train, rows.y_test), CIFAR100_COUNTS, strict=True):
        if (np.bincount(labels, minlength=100) != count).any():
            raise InvalidInputError(
                f"{paths[0]} must hold {CIFAR100_COUNTS[0]} training and {CIFAR100_COUNTS[1]} test "
                "images of each of the 100 classes. Get the file again."
            )
    return rows


def _relabeled_reader(key: str) -> Callable[[list[Path]], Rows]:
    """CIFAR-10 with the training labels that people gave; the test labels are the true ones."""

    def read(paths: list[Path]) -> Rows:
        rows = read_form("cifar10", paths[0])
        with np.load(paths[1], allow_pickle=False) as file:
            given = file[key].astype(np.int64)
        return replace(rows, y_train=given, extras={"y_true": rows.y_train})

    return read


def _component_reader(name: str) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        rows = _components(name, paths[0])
        # Copies, so that nobody changes what the next caller gets.
        return Rows(
            rows.X_train.copy(),
            rows.y_train.copy(),
            rows.X_test.copy(),
            rows.y_test.copy(),
            rows.classes,
        )

    return read


@lru_cache(maxsize=2)
def _components(name: str, path: Path) -> Rows:
    """Principal components fitted on the training pixels alone, by one exact eigenproblem."""
    images = read_form(name, path)
    train, test = _pixels(images.X_train), _pixels(images.X_test)
    n_components = min(N_COMPONENTS, *train.shape)
    pca = PCA(n_components, svd_solver="covariance_eigh").fit(train)
    return Rows(
        pca.transform(train).astype(np.float32),
        images.y_train,
        pca.transform(test).astype(np.float32),
        images.y_test,
        images.classes,
    )


def _pixels(images: NDArray[Any]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1).astype(np.float64) / 255.0


def _file(name: str, arrays: Mapping[str, str], md5: Mapping[str, str] | None = None) -> DataFile:
    """The NPZ file of a set of images, or what it is published in."""
    return DataFile(
        f"{name}.npz",
        arrays=arrays,
        md5=md5 or {},
        others=tuple(FORMS[name]),
        read=partial(arrays_of, name),
    )


FILES = {
    "mnist": _file("mnist", MNIST),
    "fashion-mnist": _file("fashion-mnist", FASHION),
    "cifar10": _file("cifar10", CIFAR10),
    "cifar100": _file("cifar100", {}, CIFAR100_MD5),
}


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
    key, checksum = CIFAR10N[name]
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
