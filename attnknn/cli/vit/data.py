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

IMAGENET_PARTS = (("train", "training"), ("val", "validation", "test"))


class Sized:
    """Images read in one shape, of which only some rows may be asked for."""

    def __init__(self, rows: ImageRows, shape: ImageShape, chosen: NDArray[np.int64]) -> None:
        self.rows, self.shape, self.chosen = rows, shape, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(B, C, H, W)."""
        return self.rows.take(self.chosen[rows], self.shape, may_resize=True)


@dataclass(frozen=True)
class Part:
    """Images, the class of each as a number, and what each is called."""

    images: Sized
    classes: NDArray[np.int64]
    names: Sequence[str]


@dataclass(frozen=True)
class Data:
    """Images to train on and to test on."""

    train: Part
    test: Part
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
    is_named: bool = True,
    train_rows: int | None = None,
    test_rows: int | None = None,
) -> Data:
    """The data set `name` out of `folder`.

    Files are resized as they are read; arrays keep their size, the model's pixels see to it.

    Parameters
    ----------
    is_named
        Whether the user named the folder; if not, the folders of named data sets may do too.
    """
    if name == "imagenet":
        return _read_folders(folder, size, train_rows, test_rows)
    rows, source = _find(name, folder, is_named)
    train = _part(rows.X_train, rows.y_train, None, train_rows)
    test = _part(rows.X_test, rows.y_test, None, test_rows)
    return Data(train, test, rows.classes, source)


def _find(name: str, folder: Path, is_named: bool) -> tuple[Rows, str]:
    from attnknn.research.datasets import load
    from attnknn.research.datasets.published import read_published

    try:
        return read_published(name, folder), str(folder)
    except MissingDataError as error:
        if is_named:
            raise
        try:
            return load(name), f"the data set {name!r} of `attnknn datasets`"
        except MissingDataError as other:
            raise MissingDataError(f"{error} {other}") from None


def _read_folders(folder: Path, size: int, n_train: int | None, n_test: int | None) -> Data:
    roots = [_root(folder, names) for names in IMAGENET_PARTS]
    train, test = (read_image_folder(root) for root in roots)
    classes = sorted(set(train.labels.tolist()))
    unknown = sorted(set(test.labels.tolist()) - set(classes))
    if unknown:
        raise InvalidInputError(
            f"{roots[1]} has the class {unknown[0]!r}, which {roots[0]} does not have."
        )
    code = {label: number for number, label in enumerate(classes)}
    parts = [
        _part(
            images.paths,
            np.array([code[label] for label in images.labels.tolist()]),
            ImageShape(3, size, size),
            n_rows,
            images.names,
        )
        for images, n_rows in ((train, n_train), (test, n_test))
    ]
    return Data(parts[0], parts[1], tuple(classes), str(roots[0].parent))


def _root(folder: Path, names: tuple[str, ...]) -> Path:
    for root in (folder, folder / "imagenet", folder / "ImageNet"):
        for name in names:
            if (root / name).is_dir():
                return root / name
    raise MissingDataError(
        f"{folder} must hold a folder {names[0]!r} with a subfolder for each class. Name the "
        "folder above it with --data_path."
    )


def _part(
    X: Any,
    y: NDArray[np.int64],
    shape: ImageShape | None,
    n_rows: int | None,
    names: Sequence[str] | None = None,
) -> Part:
    images = image_rows(X)
    chosen = _some(y, n_rows)
    sized = Sized(images, shape or images.shape(None), chosen)
    called = [f"row {row}" if names is None else names[row] for row in chosen.tolist()]
    return Part(sized, np.asarray(y)[chosen], called)


def _some(y: NDArray[np.int64], n_rows: int | None) -> NDArray[np.int64]:
    """All rows, or about as many of each class, the first of each."""
    if n_rows is None or n_rows >= len(y):
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(y[order]) != 0])
    sizes = np.diff(np.r_[starts, len(y)])
    number = np.arange(len(y)) - np.repeat(starts, sizes)  # within its class
    return np.sort(order[np.argsort(number, kind="stable")[:n_rows]])
