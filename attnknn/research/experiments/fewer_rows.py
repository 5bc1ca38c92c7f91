"""A data set with fewer training rows, drawn by class: the same ones on every machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnknn.errors import InvalidSettingError
from attnknn.records import Integers
from attnknn.research.datasets import Dataset
from attnknn.research.datasets.strata import lots


def fewer_rows(data: Dataset, n_rows: int | None) -> Dataset:
    """The data set with `n_rows` training rows; None takes all.

    >>> from attnknn.research import datasets
    >>> few = fewer_rows(datasets.load("iris"), 12)
    >>> np.bincount(few.y_train).tolist()
    [4, 4, 4]
    """
    if n_rows is None:
        return data
    n_all = len(data.y_train)
    if n_rows > n_all:
        raise InvalidSettingError(
            f"`n_rows` must be at most the {n_all:,} training rows of {data.name!r}, got "
            f"{n_rows:,}."
        )
    rows = drawn_rows(data.y_train, n_rows, data.name)
    X = data.X_train.iloc[rows] if hasattr(data.X_train, "iloc") else data.X_train[rows]
    true = {name: data.extras[name][rows] for name in ("y_true",) if name in data.extras}
    return replace(data, X_train=X, y_train=data.y_train[rows], extras={**data.extras, **true})


def drawn_rows(y: Integers, n: int, name: str) -> Integers:
    """Places of `n` rows, rising: of each class its share, and one at least where there are enough.

    Which rows depends on `name`, their places and their labels alone.

    >>> y = np.repeat([0, 1, 2], [80, 16, 4])
    >>> np.bincount(y[drawn_rows(y, 25, "iris")]).tolist()
    [20, 4, 1]
    """
    drawn = np.argsort(lots(name, len(y)), kind="stable")
    order = np.argsort(y[drawn], kind="stable")
    _, of_class, counts = np.unique(y[drawn], return_inverse=True, return_counts=True)
    place = np.empty(len(y), dtype=np.int64)  # within its class, in the order of lots
    place[order] = np.arange(len(y)) - np.repeat(counts.cumsum() - counts, counts)
    first = np.argsort(place / counts[of_class], kind="stable")[:n]
    return np.sort(drawn[first])
