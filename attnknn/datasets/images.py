"""Small images, the labels that people gave to some, and principal components of gray ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from attnknn.datasets.base import DataFile, Kind, Rows, Source

N_COMPONENTS = 64
DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
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


def _reader(classes: tuple[str, ...]) -> Callable[[list[Path]], Rows]:
    return lambda paths: _read_images(paths[0], classes)


def _read_images(path: Path, classes: tuple[str, ...]) -> Rows:
    with np.load(path, allow_pickle=False) as file:
        return Rows(
            X_train=file["x_train"],
            y_train=file["y_train"].astype(np.int64),
            X_test=file["x_test"],
            y_test=file["y_test"].astype(np.int64),
            classes=classes,
        )


def _relabeled_reader(key: str) -> Callable[[list[Path]], Rows]:
    """CIFAR-10 with the training labels that people gave; the test labels are the true ones."""

    def read(paths: list[Path]) -> Rows:
        rows = _read_images(paths[0], THINGS)
        with np.load(paths[1], allow_pickle=False) as file:
            given = file[key].astype(np.int64)
        return replace(rows, y_train=given, extras={"y_true": rows.y_train})

    return read


def _component_reader(classes: tuple[str, ...]) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        rows = _components(paths[0], classes)
        # Copies, so that nobody changes what the next caller gets.
        return Rows(
            rows.X_train.copy(),
            rows.y_train.copy(),
            rows.X_test.copy(),
            rows.y_test.copy(),
            classes,
        )

    return read


@lru_cache(maxsize=2)
def _components(path: Path, classes: tuple[str, ...]) -> Rows:
    """Principal components fitted on the training pixels alone, by one exact eigenproblem."""
    images = _read_images(path, classes)
    train, test = _pixels(images.X_train), _pixels(images.X_test)
    n_components = min(N_COMPONENTS, *train.shape)
    pca = PCA(n_components, svd_solver="covariance_eigh").fit(train)
    return Rows(
        pca.transform(train).astype(np.float32),
        images.y_train,
        pca.transform(test).astype(np.float32),
        images.y_test,
        classes,
    )


def _pixels(images: NDArray[Any]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1).astype(np.float64) / 255.0


def _source(
    name: str,
    kind: Kind,
    n_rows: int,
    arrays: Mapping[str, str],
    *,
    file: str,
    origin: str,
    license: str,
    read: Callable[[list[Path]], Rows],
) -> Source:
    return Source(
        name=name,
        kind=kind,
        n_rows=n_rows,
        n_classes=10,
        origin=f"{origin}, as an npz file with x_train, y_train, x_test, y_test (uint8)",
        license=license,
        read=read,
        files=(DataFile(file, arrays=arrays),),
    )


def _gray(name: str, arrays: Mapping[str, str], classes: tuple[str, ...], **about: str) -> Any:
    file = f"{name}.npz"
    images = _source(name, "images", 70_000, arrays, file=file, read=_reader(classes), **about)
    reader = _component_reader(classes)
    vectors = _source(f"{name}-pca64", "vectors", 70_000, arrays, file=file, read=reader, **about)
    return images, vectors


def _relabeled(name: str) -> Source:
    key, checksum = CIFAR10N[name]
    return Source(
        name=f"cifar10n-{name}",
        kind="images",
        n_rows=60_000,
        n_classes=10,
        origin="https://github.com/UCSC-REAL/cifar-10-100n, as cifar10n.npz, and cifar10",
        license="CC BY-NC 4.0",
        read=_relabeled_reader(key),
        files=(
            DataFile("cifar10.npz", arrays=CIFAR10),
            DataFile("cifar10n.npz", arrays={key: checksum}),
        ),
    )


SOURCES: tuple[Source, ...] = (
    *_gray(
        "mnist",
        MNIST,
        DIGITS,
        origin="http://yann.lecun.com/exdb/mnist",
        license="CC BY-SA 3.0",
    ),
    *_gray(
        "fashion-mnist",
        FASHION,
        CLOTHES,
        origin="https://github.com/zalandoresearch/fashion-mnist",
        license="MIT",
    ),
    _source(
        "cifar10",
        "images",
        60_000,
        CIFAR10,
        file="cifar10.npz",
        origin="https://www.cs.toronto.edu/~kriz/cifar.html",
        license="not stated",
        read=_reader(THINGS),
    ),
    *map(_relabeled, CIFAR10N),
)
