"""Folders of images with one subfolder per class, optionally split into train and test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError

EXTENSIONS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
PARTS = ("train", "test", "val", "valid", "validation")


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder, one row each, sorted by name.

    Parameters
    ----------
    paths : list of Path
        Path of each image; rows for `ImageEncoder`.
    labels : ndarray of shape (n_images,)
        Name of the class folder of each image.
    names : list of str
        Each path relative to the folder, with `/`; useful as payloads.
    skipped : list of Path
        Files of class folders that are not images by their extension.

    Examples
    --------
    >>> ImageFolder([Path("cats/1.png")], np.array(["cats"]), ["cats/1.png"], []).classes
    ['cats']
    """

    paths: list[Path]
    labels: NDArray[np.str_]
    names: list[str]
    skipped: list[Path]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def classes(self) -> list[str]:
        """Names of the class folders."""
        return sorted(set(self.labels.tolist()))

    def blocks(self, size: int) -> Iterator[ImageFolder]:
        """Split the rows, for sets larger than memory.

        Parameters
        ----------
        size : int
            Rows per block.

        Yields
        ------
        ImageFolder
            Up to `size` rows.
        """
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield ImageFolder(self.paths[part], self.labels[part], self.names[part], [])


def read_image_folder(folder: str | Path, part: str | None = None) -> ImageFolder:
    """List the images of a folder with one subfolder per class; no image is read yet.

    Parameters
    ----------
    folder : str or Path
        The folder.
    part : {'train', 'test', 'val', 'valid', 'validation'}, default=None
        Subfolder that holds the classes, if the folder is split into parts.

    Returns
    -------
    ImageFolder
        Paths and labels.

    Raises
    ------
    InvalidInputError
        If the folder, the part or the images of a class are missing.

    Examples
    --------
    >>> read_image_folder("no/such/folder")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: There is no folder at no/such/folder.
    """
    root = Path(folder)
    if not root.is_dir():
        is_file = root.exists()
        raise InvalidInputError(
            f"{root} is a file, not a folder." if is_file else f"There is no folder at {root}."
        )
    parts = parts_of(root)
    if part is None and parts:
        raise InvalidInputError(
            f"{root} has the parts {', '.join(parts)}. Choose one: `part={parts[0]!r}`."
        )
    if part is not None:
        if part not in parts:
            known = ", ".join(parts) if parts else "none"
            raise InvalidInputError(f"{root} has no part {part!r}. It has: {known}.")
        root = root / part
    return _read_classes(root)


def parts_of(folder: str | Path) -> list[str]:
    """The parts of a folder, such as train and test; empty if its subfolders are classes.

    Subfolders with names of parts are parts only if there are no others, and if they hold folders.
    """
    names = [sub.name for sub in _subfolders(Path(folder))]
    are_parts = names and set(names) <= set(PARTS)
    if not are_parts or not all(_subfolders(Path(folder) / name) for name in names):
        return []
    return sorted(names, key=PARTS.index)


def _read_classes(root: Path) -> ImageFolder:
    stray = [file for file in _files(root) if _is_image(file)]
    if stray:
        raise InvalidInputError(
            f"{stray[0]} is in no class. Images must be in subfolders named after their classes."
        )
    folders = _subfolders(root)
    if not folders:
        raise InvalidInputError(f"{root} must have a subfolder of images for each class, has none.")
    paths: list[Path] = []
    labels: list[str] = []
    skipped: list[Path] = []
    for folder in folders:
        files = [file for file in sorted(folder.rglob("*")) if _is_visible_file(file, folder)]
        images = [file for file in files if _is_image(file)]
        if not images:
            raise InvalidInputError(f"The class folder {folder} has no image.")
        skipped += [file for file in files if not _is_image(file)]
        paths += images
        labels += [folder.name] * len(images)
    names = [path.relative_to(root).as_posix() for path in paths]
    return ImageFolder(paths, np.array(labels), names, skipped)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))


def _is_visible_file(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.is_file() and not is_hidden


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS
