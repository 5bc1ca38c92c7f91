"""Folders of images: `class/file.png` to learn from; to be asked about, with classes or without."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.cli.files.base import ROWS_AT_ONCE, Kind, Part
from attnknn.encoders.image.folder import ENDINGS, PARTS, parts_of, read_image_folder
from attnknn.errors import InvalidInputError

FILE, CLASS = "file", "class"  # what the columns are called


class ImageSource:
    """The images of a folder, in the order of their names; none is read here.

    Parameters
    ----------
    path : the folder
    names : of the files, from the folder on
    labels : the class of each, or None where they are in no class folders
    """

    kind: Kind = "images"
    default_id: str | None = FILE

    def __init__(self, path: Path, names: list[str], labels: list[str] | None) -> None:
        self.path, self._names, self._labels = path, names, labels
        self.columns = [FILE] if labels is None else [FILE, CLASS]
        self.default_target: str | None = CLASS
        self.unusable: dict[str, str] = {}
        if labels is None:
            self.unusable[CLASS] = (
                f"Every image of {path} must be in a subfolder named after its class, {names[0]} "
                "is in none."
            )

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]:
        """Paths, with the names of files and, where they are known, the classes."""
        for first in range(0, len(self._names), n_rows):
            names = self._names[first : first + n_rows]
            columns = {FILE: names}
            if self._labels is not None:
                columns[CLASS] = self._labels[first : first + n_rows]
            paths = np.empty(len(names), dtype=object)
            paths[:] = [self.path / name for name in names]
            yield Part(first, pd.DataFrame(columns, dtype=object), paths)


def open_images(folder: Path, part: str) -> ImageSource:
    """The images of a folder, or of its part (train, test, …) where it has parts.

    Parameters
    ----------
    part : 'train' wants a subfolder for each class; for 'test' images may lie anywhere
    """
    root = folder
    if parts := parts_of(folder):
        wanted = ("train",) if part == "train" else [name for name in PARTS if name != "train"]
        found = [name for name in wanted if name in parts]
        if not found:
            raise InvalidInputError(
                f"{folder} has the parts {', '.join(parts)}, none of which is meant here. Name one "
                f"of them: {folder / parts[0]}."
            )
        root = folder / found[0]
    if part == "train":
        images = read_image_folder(root)
        if images.skipped:
            n = len(images.skipped)
            warnings.warn(
                f"Left out as no images: {n} files, as {images.skipped[0]}.", stacklevel=2
            )
        return ImageSource(root, images.names, images.labels.tolist())
    names = _images_of(root)
    if not names:
        raise InvalidInputError(f"{root} has no images ({', '.join(sorted(ENDINGS))}).")
    are_in_classes = all("/" in name for name in names)
    return ImageSource(root, names, [n.split("/")[0] for n in names] if are_in_classes else None)


def _images_of(root: Path) -> list[str]:
    """The names of all images in a folder and its subfolders, but for hidden ones."""
    below = [path.relative_to(root) for path in root.rglob("*") if path.suffix.lower() in ENDINGS]
    seen = [path for path in below if not any(part.startswith(".") for part in path.parts)]
    return sorted(path.as_posix() for path in seen)
