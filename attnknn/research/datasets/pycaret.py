"""Tables collected by PyCaret: bank (marketing) and credit (default)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from attnknn.research.datasets.base import DataFile, Rows, Source, codes_of, split

CREDIT_CATEGORIES = ("SEX", "EDUCATION", "MARRIAGE")  # numbers in the file, but codes


def _reader(target: str, labels: tuple[Any, ...]) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        table = pd.read_csv(paths[0], keep_default_na=False)
        y = codes_of(table.pop(target), labels)
        text = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
        coded = [c for c in CREDIT_CATEGORIES if c in table.columns]
        return split(table.astype(dict.fromkeys(text + coded, "category")), y, ("no", "yes"))

    return read


def _source(name: str, n_rows: int, sha256: str, read: Callable[[list[Path]], Rows]) -> Source:
    return Source(
        name=name,
        kind="table",
        n_rows=n_rows,
        n_classes=2,
        origin=f"https://github.com/pycaret/datasets ({name}.csv, gzipped)",
        license="MIT",
        read=read,
        files=(DataFile(f"tabular/{name}.csv.gz", sha256),),
    )


SOURCES = (
    _source(
        "bank",
        45_211,
        "a1edd74b798a22e6127ef4ea2225f09a4b763541ec763651b478605043ec1b17",
        _reader("deposit", ("no", "yes")),
    ),
    _source(
        "credit",
        24_000,
        "ccf8e6628a9a6768ab94f59d8902d500bb0833b5023db2c050b0a3faece54b5c",
        _reader("default", (0, 1)),
    ),
)
