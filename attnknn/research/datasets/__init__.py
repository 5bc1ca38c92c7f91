"""Named data with splits and checksums, one file per source."""

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
    """A line of the list of data sets.

    Parameters
    ----------
    found : where it is, or None
    missing : for each file that is not here its path below a data folder, then what may stand in
        for it: one of them is enough
    put_into : a data folder for them, or None where nothing is missing
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
    """A data set by name, checked, with its fixed split.

    Data sets with a canonical test set keep it; of the others a stratified fifth is for testing.
    `dataset.parts()` sets a calibration part of the training rows apart.
    Labels are codes; `np.array(dataset.classes)[dataset.y_train]` are their names.

    Parameters
    ----------
    name : one of `names()`; files are looked for in the folders that the environment variable
        `ATTNKNN_DATA` lists, then in the user's cache folder

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
        X_train=rows.X_train,
        y_train=rows.y_train,
        X_test=rows.X_test,
        y_test=rows.y_test,
        classes=rows.classes,
        extras=rows.extras,
        name=name,
        kind=source.kind,
        feature_names=tuple(getattr(rows.X_train, "columns", ())),
        checksum=checksum,
        source=source.origin,
        license=source.license,
    )


def names() -> list[str]:
    """The names that `load` knows.

    >>> names()[:4]
    ['iris', 'wine', 'breast-cancer', 'digits']
    """
    return list(SOURCES)


def available() -> list[str]:
    """The names that `load` can load here, now.

    >>> set(available()) >= {"iris", "wine", "breast-cancer", "digits"}
    True
    """
    return [row.name for row in catalog() if row.found is not None]


def catalog() -> Iterator[CatalogRow]:
    """Everything there is to know without reading any data.

    >>> next(catalog()).found
    'scikit-learn'
    """
    yield from map(_catalog_row, SOURCES.values())


def _catalog_row(source: Source) -> CatalogRow:
    paths = [find(file) for file in source.files]
    missing = tuple(
        (file.path, *file.others)
        for file, path in zip(source.files, paths, strict=True)
        if path is None
    )
    found = ", ".join(map(str, paths)) if paths else "scikit-learn"
    return CatalogRow(
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
    """What stands for the file where the data come inside another package.

    Rows and labels as they are split, in bytes that are the same on every machine: little-endian
    float64, which holds label codes exactly.
    """
    parts = [rows.X_train, rows.X_test, rows.y_train, rows.y_test]
    joined = b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in parts)
    return hashlib.sha256(joined).hexdigest()


def _check_bundled(name: str, checksum: str) -> None:
    if checksum != BUNDLED[name]:
        raise InvalidInputError(
            f"The rows of {name!r} that the installed scikit-learn gives must have the sha256 "
            f"{BUNDLED[name]}, got {checksum}. Its data or its way to split them is another: "
            "install scikit-learn again, or the version that constraints.txt names."
        )
