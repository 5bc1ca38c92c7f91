"""Tables of scikit-learn, PMLB, PyCaret and KEEL, and adult and wine of the UCI repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets

from attnknn.research.datasets.base import (
    KNOWN,
    DataFile,
    Kind,
    Rows,
    Source,
    codes_of,
    split,
    split_by_seed,
)

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SOILS = (
    *("red soil", "cotton crop", "grey soil", "damp grey soil"),
    *("soil with vegetation stubble", "very damp grey soil"),
)
CODED = (  # columns of numbers that are codes of categories
    *("state", "area code", "international plan", "voice mail plan"),  # churn
    *("SEX", "EDUCATION", "MARRIAGE"),  # credit
)
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
Read = Callable[[list[Path]], Rows]


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


def _bundled(name: str, n_rows: int, n_classes: int) -> Source:
    is_image = name == "digits"
    load: Callable[..., Any] = getattr(sklearn.datasets, f"load_{name.replace('-', '_')}")

    def read(_paths: list[Path]) -> Rows:
        bunch = load(as_frame=not is_image)
        classes = tuple(str(label) for label in bunch.target_names)
        return split(bunch.data, np.asarray(bunch.target, dtype=np.int64), classes)

    kind: Kind = "vectors" if is_image else "table"
    return Source(name, kind, n_rows, n_classes, "scikit-learn (UCI)", "CC BY 4.0", read)


def _pmlb(name: str, n_rows: int, targets: Any, classes: tuple[str, ...]) -> Source:
    def read(paths: list[Path]) -> Rows:
        table = pd.read_csv(paths[0], sep="\t")
        y = codes_of(table.pop("target"), tuple(targets))
        # The phone number of churn is another one on every row.
        return split(_typed(table.drop(columns="phone number", errors="ignore")), y, classes)

    origin = f"https://github.com/EpistasisLab/pmlb (datasets/{name}/{name}.tsv.gz)"
    return Source(name, "table", n_rows, len(classes), origin, "MIT", read, (_file(f"{name}.tsv"),))


def _pycaret(name: str, n_rows: int, target: str, labels: Any) -> Source:
    def read(paths: list[Path]) -> Rows:
        table = pd.read_csv(paths[0], keep_default_na=False)
        y = codes_of(table.pop(target), labels)
        return split(_typed(table), y, ("no", "yes"))

    origin = f"https://github.com/pycaret/datasets ({name}.csv, gzipped)"
    return Source(name, "table", n_rows, 2, origin, "MIT", read, (_file(f"{name}.csv"),))


def _keel(name: str, n_rows: int, n_classes: int) -> Source:
    def read(paths: list[Path]) -> Rows:
        # "NA" may be a category: only empty cells are missing.
        form: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
        table = pd.read_csv(paths[0], dtype={"target": str}, **form)
        labels = table.pop("target")
        classes = tuple(sorted(labels.unique()))
        return split_by_seed(_typed(table), codes_of(labels, classes), classes)

    origin = f"https://sci2s.ugr.es/keel ({name}, as CSV with a header, gzipped)"
    files = (_file(f"{name}.csv", "tables-small"),)
    return Source(name, "table", n_rows, n_classes, origin, "not stated", read, files)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Columns of texts and of codes as categories."""
    chosen = [
        column
        for column in table.columns
        if column in CODED or not pd.api.types.is_numeric_dtype(table[column])
    ]
    return table.astype(dict.fromkeys(chosen, "category"))


def _uci(
    name: str, n_rows: int, number: int, form: str, read: Read, files: tuple[DataFile, ...]
) -> Source:
    origin = f"https://archive.ics.uci.edu/dataset/{number} ({form})"
    return Source(name, "table", n_rows, 2, origin, "CC BY 4.0", read, files)


def _wine(color: str, n_rows: int) -> Source:
    files = (_file(f"winequality-{color}.csv"),)
    form = "as CSV without header, gzipped"
    return _uci(f"wine-{color}", n_rows, 186, form, _read_wine, files)


def _file(name: str, folder: str = "tabular") -> DataFile:
    sha256, unpacked = KNOWN["sha256"][f"{name}.gz"], KNOWN["unpacked_sha256"][f"{name}.gz"]
    return DataFile(f"{folder}/{name}.gz", sha256, unpacked_sha256=unpacked)


ADULT_FILES = (_file("adult-train.csv"), _file("adult-test.csv"))
SOURCES = (
    _bundled("iris", 150, 3),
    _bundled("wine", 178, 3),
    _bundled("breast-cancer", 569, 2),
    _bundled("digits", 1797, 10),
    _pmlb("letter", 20_000, range(1, 27), LETTERS),
    _pmlb("magic", 19_020, (0, 1), ("gamma", "hadron")),
    _pmlb("satimage", 6_435, (1, 2, 3, 4, 5, 7), SOILS),
    _pmlb("churn", 5_000, (0, 1), ("stayed", "left")),
    _uci("adult", 48_842, 2, "adult.data and adult.test, gzipped", _read_adult, ADULT_FILES),
    _wine("red", 1_599),
    _wine("white", 4_898),
    _pycaret("bank", 45_211, "deposit", ("no", "yes")),
    _pycaret("credit", 24_000, "default", (0, 1)),
    _keel("australian", 690, 2),
    _keel("banana", 5_300, 2),
    _keel("bupa", 345, 2),
    _keel("chess", 3_196, 2),
    _keel("contraceptive", 1_473, 3),
    _keel("german", 1_000, 2),
    _keel("hayes-roth", 160, 3),
    _keel("ionosphere", 351, 2),
    _keel("led7digit", 500, 10),
    _keel("saheart", 462, 2),
    _keel("segment", 2_310, 7),
    _keel("sonar", 208, 2),
    _keel("splice", 3_190, 3),
    _keel("vehicle", 846, 4),
)
