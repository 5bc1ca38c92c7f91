"""Data that come with scikit-learn: iris, wine, breast-cancer, digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets

from attnknn.research.datasets.base import Rows, Source, split


def _reader(load: Callable[..., Any], *, as_frame: bool) -> Callable[[list[Path]], Rows]:
    def read(_paths: list[Path]) -> Rows:
        bunch = load(as_frame=as_frame)
        classes = tuple(str(name) for name in bunch.target_names)
        return split(bunch.data, np.asarray(bunch.target, dtype=np.int64), classes)

    return read


def _source(name: str, n_rows: int, n_classes: int, load: Callable[..., Any]) -> Source:
    is_image = name == "digits"
    return Source(
        name=name,
        kind="vectors" if is_image else "table",
        n_rows=n_rows,
        n_classes=n_classes,
        origin="scikit-learn (UCI)",
        license="CC BY 4.0",
        read=_reader(load, as_frame=not is_image),
    )


SOURCES = (
    _source("iris", 150, 3, sklearn.datasets.load_iris),
    _source("wine", 178, 3, sklearn.datasets.load_wine),
    _source("breast-cancer", 569, 2, sklearn.datasets.load_breast_cancer),
    _source("digits", 1797, 10, sklearn.datasets.load_digits),
)
