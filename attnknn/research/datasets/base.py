"""The data set, where its files come from, and fixed splits of its rows."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from attnknn.errors import InvalidInputError
from attnknn.records import Booleans, Integers

Kind = Literal["vectors", "table", "images", "texts"]
KNOWN: dict[str, dict[str, Any]] = tomllib.loads(  # checksums and class names
    (files("attnknn.research.datasets") / "sources.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Training and test rows with their labels, as a source reads them."""

    X_train: Any  # a pandas DataFrame for tables, (n, D) vectors, uint8 images, or (n,) texts
    y_train: Integers  # label codes, places in `classes`
    X_test: Any
    y_test: Integers
    classes: tuple[str, ...]  # the name of each class
    # further arrays that only this data set has
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    # the rows in the split of a seed, or None where there is one split for all seeds
    by_seed: Callable[[int], Rows] | None = None
    # positions in the file of the training rows, then of the test rows, where it is one table
    file_rows: Integers | None = None


@dataclass(frozen=True, eq=False)
class Parts:
    """Training, calibration and test rows of a data set; no row is in two of them.

    Parameters
    ----------
    X_train, X_calibration, X_test : DataFrame or ndarray
        The rows.
    y_train, y_calibration, y_test : ndarray of int
        Their label codes.
    train_rows, calibration_rows : ndarray of int
        Sorted positions in the `X_train` of the data set.

    Examples
    --------
    >>> from attnknn.research import datasets
    >>> parts = datasets.load("iris").parts()
    >>> parts.X_calibration.shape
    (24, 4)
    """

    X_train: Any
    y_train: Integers
    X_calibration: Any
    y_calibration: Integers
    X_test: Any
    y_test: Integers
    train_rows: Integers
    calibration_rows: Integers


@dataclass(frozen=True, eq=False)
class Dataset(Rows):
    """A named data set with a fixed split.

    Parameters
    ----------
    X_train, X_test : DataFrame or ndarray
        DataFrames of a table, vectors of shape (n, D), uint8 images, or texts of shape (n,).
    y_train, y_test : ndarray of int
        Label codes: positions in `classes`.
    classes : tuple of str
        Names of the classes.
    extras : dict of str to ndarray
        Further arrays, such as true labels or out-of-scope rows.
    by_seed : callable, optional
        Gives the rows in the split of a seed; see `for_seed`. None if the split is fixed.
    file_rows : ndarray of int, optional
        Positions in the file of the training rows, followed by those of the test rows. None where
        the rows are no random split of one table.
    name : str
        Name of the data set.
    kind : {"vectors", "table", "images", "texts"}, default="vectors"
        Kind of its rows.
    feature_names : tuple of str
        Column names of a table, empty otherwise.
    checksum : str
        The sha256 of the file; for several files, that of their checksums.
    source : str
        Where the data come from.
    license : str
        License of the data.

    Examples
    --------
    >>> from attnknn.research import datasets
    >>> iris = datasets.load("iris")
    >>> iris.X_train.shape, iris.classes
    ((120, 4), ('setosa', 'versicolor', 'virginica'))
    """

    name: str = ""
    kind: Kind = "vectors"
    feature_names: tuple[str, ...] = ()
    checksum: str = ""
    source: str = ""
    license: str = ""

    def for_seed(self, seed: int) -> Dataset:
        """Give the data set in the split of a seed.

        Parameters
        ----------
        seed : int
            Seed of an experiment.

        Returns
        -------
        Dataset
            Small tables are split by the seed, and training rows of texts are drawn by it; all
            others are returned as they are.

        Examples
        --------
        >>> from attnknn.research import datasets
        >>> iris = datasets.load("iris")
        >>> iris.for_seed(3) is iris
        True
        """
        return self if self.by_seed is None else replace(self, **vars(self.by_seed(seed)))

    def parts(self) -> Parts:
        """Split the training rows into training and calibration rows.

        A fifth of the training rows of each class (rounded) is for calibration. The choice depends
        on the name of the data set and the labels only. Test rows stay as they are.

        Returns
        -------
        Parts
            Training, calibration and test rows.

        Examples
        --------
        >>> from attnknn.research import datasets
        >>> parts = datasets.load("iris").parts()
        >>> len(parts.y_train), len(parts.y_calibration), len(parts.y_test)
        (96, 24, 30)
        """
        chosen = stratified_fifth(self.y_train, self.name)
        if not chosen.any():
            raise InvalidInputError(
                f"A class of {self.name!r} must have at least three training rows to give one "
                f"for calibration, got {len(self.y_train)} rows of {len(self.classes)} classes."
            )
        train, calibration = np.flatnonzero(~chosen), np.flatnonzero(chosen)
        return Parts(
            X_train=_take(self.X_train, train),
            y_train=self.y_train[train],
            X_calibration=_take(self.X_train, calibration),
            y_calibration=self.y_train[calibration],
            X_test=self.X_test,
            y_test=self.y_test,
            train_rows=train,
            calibration_rows=calibration,
        )

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {self.kind}, {len(self.y_train)} training rows, "
            f"{len(self.y_test)} test rows, {len(self.classes)} classes)"
        )


def read_npz(path: Path) -> Mapping[str, NDArray[Any]]:
    """The named arrays of an NPZ file."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@dataclass(frozen=True)
class DataFile:
    """A file that a data set is read from."""

    path: str  # below a data folder; the bare file name is looked for too
    sha256: str | None = None  # of the file, or None where `arrays` are checked instead
    # sha256 of the raw bytes of named arrays inside the file; empty where none are known
    arrays: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # files and folders below a data folder that hold the same arrays
    # of those `others`, and of files in them, whose publisher states one
    md5: Mapping[str, str] = field(default_factory=dict)
    # of the content of a gzipped file, which may have been packed again
    unpacked_sha256: str | None = None
    # the named arrays of the file, or of one of the others
    read: Callable[[Path], Mapping[str, NDArray[Any]]] = read_npz


@dataclass(frozen=True)
class Source:
    """Everything known about a data set before it is read."""

    name: str
    kind: Kind
    n_rows: int
    n_classes: int
    origin: str
    license: str
    read: Callable[[list[Path]], Rows]  # turns the found files, in the order of `files`, into rows
    files: tuple[DataFile, ...] = ()  # none for data that come with scikit-learn


def split(X: Any, y: Integers, classes: tuple[str, ...]) -> Rows:
    """A stratified fifth of the rows for testing, the same on every machine."""
    places = np.arange(len(y))
    train, test = train_test_split(places, test_size=0.2, random_state=0, stratify=y)
    parts = _take(X, train), y[train], _take(X, test), y[test]
    return Rows(*parts, classes, file_rows=np.concatenate([train, test]))


def split_by_seed(X: Any, y: Integers, classes: tuple[str, ...], seed: int = 1) -> Rows:
    """A stratified quarter of the rows for testing, another one for each seed."""
    places = np.arange(len(y))
    train, test = train_test_split(places, test_size=0.25, random_state=seed, stratify=y)
    return Rows(
        *(_take(X, train), y[train], _take(X, test), y[test], classes),
        by_seed=lambda seed: split_by_seed(X, y, classes, seed),
    )


def codes_of(labels: Any, values: tuple[Any, ...]) -> Integers:
    """The position of each label in `values`.

    >>> codes_of(["yes", "no", "yes"], ("no", "yes"))
    array([1, 0, 1])
    """
    place = {value: code for code, value in enumerate(values)}
    found = np.asarray(labels).tolist()
    unknown = sorted({str(label) for label in found if label not in place})
    if unknown:
        raise InvalidInputError(f"Labels must be among {values}, got {unknown[0]!r}.")
    return np.array([place[label] for label in found], dtype=np.int64)


def _take(X: Any, chosen: Integers) -> Any:
    return X.iloc[chosen].reset_index(drop=True) if hasattr(X, "iloc") else X[chosen]


def stratified_fifth(y: Integers, name: str) -> Booleans:
    """Mark a fifth of the rows of each class, rounded; a class of one or two rows has no mark.

    Which rows depends on `name`, their places and their labels, and on no generator of random
    numbers, whose streams may change between versions.

    >>> stratified_fifth(np.repeat([0, 1, 2], [10, 3, 2]), "iris").nonzero()[0].tolist()
    [1, 8, 10]
    """
    drawn = np.argsort(row_hashes(name, len(y)), kind="stable")
    by_class = drawn[np.argsort(y[drawn], kind="stable")]
    counts = np.unique(y, return_counts=True)[1]
    place = np.arange(len(y)) - np.repeat(counts.cumsum() - counts, counts)  # within its class
    is_chosen = np.zeros(len(y), dtype=bool)
    is_chosen[by_class] = place < np.repeat((counts + 2) // 5, counts)
    return is_chosen


def row_hashes(name: str, n: int) -> Integers:
    """A hash for each of `n` rows; rows with the smallest ones are drawn first."""
    hashed = (blake2b(f"{name} {row}".encode(), digest_size=8).digest() for row in range(n))
    return np.frombuffer(b"".join(hashed), dtype=">i8").astype(np.int64)
