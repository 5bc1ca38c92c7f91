"""Named data sets with fixed splits and checksums, and image folders of your own.

`load` gives a data set by name, `load_folder` images in folders by class. `names`, `available` and
`catalog` list the data sets, and `data_folders` the folders in which their files are looked for.
Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnknn._cache import cache_folder
from attnknn.errors import InvalidInputError, unknown_name
from attnknn.research.datasets import images, tables, text
from attnknn.research.datasets.base import Dataset, Kind, Parts, Rows, Source
from attnknn.research.datasets.files import checksum_of, data_folders, find, find_all
from attnknn.research.datasets.image_folder import load_folder

__all__ = [
    "CatalogRow",
    "Dataset",
    "Parts",
    "available",
    "cache_folder",
    "catalog",
    "data_folders",
    "load",
    "load_folder",
    "names",
]

SOURCES: dict[str, Source] = {
    source.name: source for module in (tables, text, images) for source in module.SOURCES
}

BUNDLED = {  # the sha256 of the rows as they are split, where the data come inside a package
    "iris": "4e6d4fc0bd7d080f0cbc6be663e8bdbaa2b049ef3837ec814c910d342107f43e",
    "wine": "22139f8d963133818c83d298401228b7fb347778c6e42dcdc77b66b3bb5cb016",
    "breast-cancer": "f5ed0d669cb25899a5c6ab5205156f65253f394b4e2087a76d955ee14c8ed213",
    "digits": "467d0f49c492576d2da37df66233305d037056687f11467cde446fce7c514000",
}


@dataclass(frozen=True)
class CatalogRow:
    """What is known about a data set before it is loaded.

    Parameters
    ----------
    name : str
        Name of the data set for `load`.
    kind : {"vectors", "table", "images", "texts"}
        Kind of its rows.
    n_rows : int
        Number of training and test rows.
    n_classes : int
        Number of classes.
    source : str
        Where the data come from.
    license : str
        License of the data.
    found : str or None
        Paths of its files, or None if one is missing.
    missing : tuple of tuple of str
        For each missing file its path below a data folder, then alternatives. One of them is
        enough.
    put_into : str or None
        A data folder for the missing files, or None if there are no such files.

    Examples
    --------
    >>> row = next(catalog())
    >>> row.name, row.n_rows, row.n_classes
    ('iris', 150, 3)
    """

    name: str
    kind: Kind
    n_rows: int
    n_classes: int
    source: str
    license: str
    found: str | None
    missing: tuple[tuple[str, ...], ...]
    put_into: str | None


def load(name: str) -> Dataset:
    """Load a data set by name, verify its checksum, and split it.

    Data sets with a canonical test set keep it; the others have a stratified fifth for testing.
    `dataset.parts()` also splits off calibration rows. Labels are codes;
    `np.array(dataset.classes)[dataset.y_train]` are their names.

    Parameters
    ----------
    name : str
        One of `names()`. Files are looked for in the folders of the environment variable
        `ATTNKNN_DATA`, then in the user's cache folder.

    Returns
    -------
    Dataset
        Training and test rows with label codes.

    Raises
    ------
    MissingDataError
        If a file is missing. The message says where it comes from and where to put it.
    InvalidInputError
        If a checksum differs.

    Examples
    --------
    >>> load("iris")
    Dataset('iris', table, 120 training rows, 30 test rows, 3 classes)
    """
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    source = SOURCES[name]
    paths = find_all(source)
    checksum = checksum_of(source, paths) if paths else ""
    rows = source.read(paths)
    if not paths:
        checksum = _content_checksum(rows)
        _check_bundled(name, checksum)
    return Dataset(
        **vars(rows),
        name=name,
        kind=source.kind,
        feature_names=tuple(getattr(rows.X_train, "columns", ())),
        checksum=checksum,
        source=source.origin,
        license=source.license,
    )


def names() -> list[str]:
    """List the names of all data sets.

    Returns
    -------
    list of str
        Names that `load` takes.

    Examples
    --------
    >>> names()[:4]
    ['iris', 'wine', 'breast-cancer', 'digits']
    """
    return list(SOURCES)


def available() -> list[str]:
    """List the names of the data sets whose files are on this machine.

    Returns
    -------
    list of str
        Names that `load` can load.

    Examples
    --------
    >>> set(available()) >= {"iris", "wine", "breast-cancer", "digits"}
    True
    """
    return [row.name for row in catalog() if row.found is not None]


def catalog() -> Iterator[CatalogRow]:
    """Describe all data sets without reading any data.

    Yields
    ------
    CatalogRow
        Size, source, license and location of a data set.

    Examples
    --------
    >>> next(catalog()).found
    'scikit-learn'
    """
    for source in SOURCES.values():
        paths = [find(file) for file in source.files]
        missing = tuple(
            (file.path, *file.others)
            for file, path in zip(source.files, paths, strict=True)
            if path is None
        )
        found = ", ".join(map(str, paths)) if paths else "scikit-learn"
        yield CatalogRow(
            name=source.name,
            kind=source.kind,
            n_rows=source.n_rows,
            n_classes=source.n_classes,
            source=source.origin,
            license=source.license,
            found=None if missing else found,
            missing=missing,
            put_into=str(cache_folder()) if missing else None,
        )


def _content_checksum(rows: Rows) -> str:
    """The sha256 of split rows and labels, for data that come with scikit-learn.

    As little-endian float64, which is the same on every machine and holds label codes exactly.
    """
    parts = [rows.X_train, rows.X_test, rows.y_train, rows.y_test]
    joined = b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in parts)
    return hashlib.sha256(joined).hexdigest()


def _check_bundled(name: str, checksum: str) -> None:
    if checksum != BUNDLED[name]:
        raise InvalidInputError(
            f"The rows of {name!r} that the installed scikit-learn gives must have the sha256 "
            f"{BUNDLED[name]}, got {checksum}. Its data or its split differ: install scikit-learn "
            "again, or the version in constraints.txt."
        )
