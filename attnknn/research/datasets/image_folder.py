"""Image folders as data sets: one subfolder per class, as in ImageNet."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from attnknn._limits import check_fits
from attnknn.encoders.image.folder import ImageFolder, parts_of, read_image_folder
from attnknn.encoders.image.rows import image_rows
from attnknn.errors import InvalidInputError
from attnknn.records import Booleans
from attnknn.research.datasets.base import Dataset, codes_of, stratified_fifth

TRAINING, TESTING = ("train", "training"), ("test",)
VALIDATION = ("val", "valid", "validation")


def load_folder(folder: str | Path, *, name: str | None = None) -> Dataset:
    """Load images in folders by class as a data set, with a fixed split.

    The folder holds `train/CLASS/file.png` and `test/CLASS/file.png` or, as in ImageNet, `val`. If
    both are there, the images of `val` are `extras["x_calibration"]`, with `y_calibration`. If the
    subfolders are the classes, a stratified fifth is for testing.

    Parameters
    ----------
    folder : path-like
        The folder with the images.
    name : str, optional
        Name of the data set, on which its splits depend. None means the name of the folder.

    Returns
    -------
    Dataset
        Its rows are paths, which `ImageEncoder` reads later. Its checksum is that of file names
        and sizes.

    Examples
    --------
    >>> import tempfile
    >>> files = [f"{part}/{label}/0.png" for part in ("train", "val") for label in ("cat", "dog")]
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for file in files:
    ...         (Path(root) / file).parent.mkdir(parents=True)
    ...         (Path(root) / file).touch()
    ...     load_folder(root, name="pets")
    Dataset('pets', images, 2 training rows, 2 test rows, 2 classes)
    """
    root = Path(folder)
    called = name or root.resolve().name
    train, test, validation = (_part(root, names) for names in (TRAINING, TESTING, VALIDATION))
    if train is None:
        return _dataset(root, called, _divided(root, called))
    if test is None:
        test, validation = validation, None
    if test is None:
        raise InvalidInputError(
            f"{root} must hold a folder 'test' or 'val' beside {train.name!r}, with a subfolder "
            "for each class."
        )
    roots = [part for part in (train, test, validation) if part is not None]
    return _dataset(root, called, [read_image_folder(part) for part in roots])


def read_images(dataset: Dataset, image_size: int | None) -> Dataset:
    """A data set of paths with its training and test images as arrays of one size.

    `image_size` is the side to which they are resized; without it their sizes must be equal.
    """
    size = None if image_size is None else (image_size, image_size)
    train, test = image_rows(dataset.X_train), image_rows(dataset.X_test)
    shape = train.shape(size)
    n_bytes = (len(train) + len(test)) * shape.channels * shape.height * shape.width
    check_fits(f"The images of {dataset.source}", n_bytes, "Set a smaller `image_size`.")
    X_train, X_test = (
        rows.take(np.arange(len(rows)), shape, may_resize=size is not None)
        for rows in (train, test)
    )
    sides = f"{dataset.checksum} {shape}"
    checksum = hashlib.sha256(sides.encode()).hexdigest()
    return replace(dataset, X_train=X_train, X_test=X_test, checksum=checksum)


def _part(root: Path, names: tuple[str, ...]) -> Path | None:
    """The subfolder with one of these names that has classes, unlike ImageNet's `test`."""
    parts = [root / name for name in names if (root / name).is_dir()]
    return next((part for part in parts if any(sub.is_dir() for sub in part.iterdir())), None)


def _divided(root: Path, name: str) -> list[ImageFolder]:
    """Split the images of a folder into training and test images."""
    parts = parts_of(root) if root.is_dir() else []
    if parts:
        raise InvalidInputError(
            f"{root} must hold a folder 'train' beside {parts[0]!r}, with a subfolder for each "
            "class."
        )
    images = read_image_folder(root)
    is_test = stratified_fifth(codes_of(images.labels, tuple(images.classes)), f"{name} test")
    if not is_test.any():
        raise InvalidInputError(
            f"A class of {root} must have at least three images for one to be set apart."
        )
    return [_some(images, ~is_test), _some(images, is_test)]


def _some(images: ImageFolder, chosen: Booleans) -> ImageFolder:
    rows = np.flatnonzero(chosen).tolist()
    paths, names = [images.paths[row] for row in rows], [images.names[row] for row in rows]
    return ImageFolder(paths, images.labels[chosen], names, images.skipped)


def _dataset(root: Path, name: str, parts: Sequence[ImageFolder]) -> Dataset:
    """The data set of training, test and perhaps validation images."""
    _warn_of_skipped(parts)
    classes = tuple(parts[0].classes)
    unknown = sorted({label for part in parts for label in part.classes} - set(classes))
    if unknown:
        raise InvalidInputError(
            f"{root} has images of the class {unknown[0]!r}, but none of them to train on."
        )
    X = [np.array(part.paths, dtype=object) for part in parts]
    y = [codes_of(part.labels, classes) for part in parts]
    extras = {"x_calibration": X[2], "y_calibration": y[2]} if len(parts) > 2 else {}
    return Dataset(
        *(X[0], y[0], X[1], y[1], classes, extras),
        name=name,
        kind="images",
        checksum=_checksum(parts),
        source=str(root),
        license="not stated",
    )


def _warn_of_skipped(parts: Sequence[ImageFolder]) -> None:
    skipped = sorted({path for part in parts for path in part.skipped})
    if skipped:
        left_out = f"Left out as no images: {len(skipped)} files, as {skipped[0]}."
        warnings.warn(left_out, stacklevel=4)


def _checksum(parts: Sequence[ImageFolder]) -> str:
    listed = [
        f"{number} {name} {path.stat().st_size}"
        for number, part in enumerate(parts)
        for name, path in zip(part.names, part.paths, strict=True)
    ]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()
