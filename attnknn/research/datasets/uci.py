"""Tables of the UCI repository: adult, wine-red, wine-white."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.research.datasets.base import DataFile, Rows, Source, codes_of, split

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status"),
    *("occupation", "relationship", "race", "sex", "capital-gain", "capital-loss"),
    *("hours-per-week", "native-country", "income"),
)
WINE_COLUMNS = (
    *("fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides"),
    *("free sulfur dioxide", "total sulfur dioxide", "density", "pH", "sulphates", "alcohol"),
    "quality",
)
INCOMES = ("<=50K", ">50K")
GOOD = 6  # the research documents call a wine of this grade or better good


def _read_adult(paths: list[Path]) -> Rows:
    train, test = (_read_adult_part(path) for path in paths)
    y_train = codes_of(train.pop("income"), INCOMES)
    y_test = codes_of(test.pop("income").str.removesuffix("."), INCOMES)
    for column in train.columns[~train.dtypes.map(pd.api.types.is_numeric_dtype)]:
        both = pd.CategoricalDtype(sorted({*train[column].dropna(), *test[column].dropna()}))
        train[column], test[column] = train[column].astype(both), test[column].astype(both)
    return Rows(train, y_train, test, y_test, INCOMES)


def _read_adult_part(path: Path) -> pd.DataFrame:
    table = pd.read_csv(
        path, names=list(ADULT_COLUMNS), skipinitialspace=True, na_values="?", keep_default_na=False
    )
    for column in table.columns[~table.dtypes.map(pd.api.types.is_numeric_dtype)]:
        table[column] = table[column].str.strip()
    return table


def _read_wine(paths: list[Path]) -> Rows:
    table = pd.read_csv(paths[0], names=list(WINE_COLUMNS)).astype(np.float64)
    y = np.asarray(table.pop("quality") >= GOOD, dtype=np.int64)
    return split(table, y, ("bad", "good"))


def _wine(color: str, n_rows: int, sha256: str) -> Source:
    return Source(
        name=f"wine-{color}",
        kind="table",
        n_rows=n_rows,
        n_classes=2,
        origin="https://archive.ics.uci.edu/dataset/186 (as CSV without header, gzipped)",
        license="CC BY 4.0",
        read=_read_wine,
        files=(DataFile(f"tabular/winequality-{color}.csv.gz", sha256),),
    )


SOURCES = (
    Source(
        name="adult",
        kind="table",
        n_rows=48_842,
        n_classes=2,
        origin="https://archive.ics.uci.edu/dataset/2 (adult.data and adult.test, gzipped)",
        license="CC BY 4.0",
        read=_read_adult,
        files=(
            DataFile(
                "tabular/adult-train.csv.gz",
                "171e93e0be014947c678f8e0fd17485ec99e8c273d1a7a0b506bb9139e95800b",
            ),
            DataFile(
                "tabular/adult-test.csv.gz",
                "1f463d13207c2309afd36957e5dc547973934dd2cc22214907fda590810d9e32",
            ),
        ),
    ),
    _wine("red", 1_599, "426d78d55885d18146161a19e7f6d4c847c20f0848262ab78834c3d1d8feb81d"),
    _wine("white", 4_898, "93d20773c5474583a4731e69a51752dab49c0b8b053ed7df746ea8a302b11707"),
)
