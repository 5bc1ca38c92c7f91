"""The images that `attnknn vit` trains and tests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.encoders.image.folder import read_image_folder
from attnknn.encoders.image.rows import ImageRows, ImageShape, image_rows
from attnknn.errors import InvalidInputError, MissingDataError

if TYPE_CHECKING:
    from attnknn.research.datasets.base import Rows

IMAGENET_FOLDERS = (("train", "training"), ("val", "validation", "test"))


class ImageSubset:
    """Some rows of a set of images, read in one shape."""

    def __init__(self, rows: ImageRows, shape: ImageShape, chosen: NDArray[np.int64]) -> None:
        self.rows, self.shape, self.chosen = rows, shape, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Images of shape (B, C, H, W)."""
        return self.rows.take(self.chosen[rows], self.shape, may_resize=True)


@dataclass(frozen=True)
class Split:
    """Images, the class code of each, and the name of each."""

    images: ImageSubset
    classes: NDArray[np.int64]
    names: Sequence[str]


@dataclass(frozen=True)
class Data:
    """Training and test images."""

    train: Split
    test: Split
    classes: tuple[str, ...]
    source: str

    @property
    def in_chans(self) -> int:
        return self.train.images.shape.channels


def read_data(
    name: str,
    folder: Path,
    size: int,
    *,
    is_explicit: bool = True,
    train_rows: int | None = None,
    test_rows: int | None = None,
) -> Data:
    """Read the data set `name` from `folder`, all rows or the given numbers of them.

    Image files are resized to `size` when they are read; arrays keep their size until the model
    resizes them. Unless the user named the folder (`is_explicit`), the folders of `attnknn
    datasets` are searched too.
    """
    if name == "imagenet":
        return _read_folders(folder, size, train_rows, test_rows)
    rows, source = _find(name, folder, is_explicit)
    train = _split(rows.X_train, rows.y_train, None, train_rows)
    test = _split(rows.X_test, rows.y_test, None, test_rows)
    return Data(train, test, rows.classes, source)


def _find(name: str, folder: Path, is_explicit: bool) -> tuple[Rows, str]:
    from attnknn.research.datasets import load
    from attnknn.research.datasets.published import read_published

    try:
        return read_published(name, folder), str(folder)
    except MissingDataError as error:
        if is_explicit:
            raise
        try:
            return load(name), f"the data set {name!r} of `attnknn datasets`"
        except MissingDataError as other:
            raise MissingDataError(f"{error} {other}") from None


def _read_folders(folder: Path, size: int, n_train: int | None, n_test: int | None) -> Data:
    roots = [_root(folder, names) for names in IMAGENET_FOLDERS]
    train, test = (read_image_folder(root) for root in roots)
    classes = sorted(set(train.labels.tolist()))
    unknown = sorted(set(test.labels.tolist()) - set(classes))
    if unknown:
        raise InvalidInputError(
            f"{roots[1]} has the class {unknown[0]!r}, which {roots[0]} does not have."
        )
    code = {label: number for number, label in enumerate(classes)}
    splits = [
        _split(
            images.paths,
            np.array([code[label] for label in images.labels.tolist()]),
            ImageShape(3, size, size),
            n_rows,
            images.names,
        )
        for images, n_rows in ((train, n_train), (test, n_test))
    ]
    return Data(splits[0], splits[1], tuple(classes), str(roots[0].parent))


def _root(folder: Path, names: tuple[str, ...]) -> Path:
    for root in (folder, folder / "imagenet", folder / "ImageNet"):
        for name in names:
            if (root / name).is_dir():
                return root / name
    raise MissingDataError(
        f"{folder} must have a folder {names[0]!r} with a subfolder for each class. Give the "
        "folder above it with --data-path."
    )


def _split(
    X: Any,
    y: NDArray[np.int64],
    shape: ImageShape | None,
    n_rows: int | None,
    names: Sequence[str] | None = None,
) -> Split:
    images = image_rows(X)
    chosen = _stratified(y, n_rows)
    subset = ImageSubset(images, shape or images.shape(None), chosen)
    shown = [f"row {row}" if names is None else names[row] for row in chosen.tolist()]
    return Split(subset, np.asarray(y)[chosen], shown)


def _stratified(y: NDArray[np.int64], n_rows: int | None) -> NDArray[np.int64]:
    """All rows, or the first rows of each class, about as many of each."""
    if n_rows is None or n_rows >= len(y):
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(y[order]) != 0])
    sizes = np.diff(np.r_[starts, len(y)])
    number = np.arange(len(y)) - np.repeat(starts, sizes)  # within its class
    return np.sort(order[np.argsort(number, kind="stable")[:n_rows]])
