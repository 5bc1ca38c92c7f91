"""Tables: those of scikit-learn, PMLB and PyCaret, and adult and wine of the UCI repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets

from attnknn.research.datasets.base import DataFile, Kind, Rows, Source, codes_of, split

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


def _pmlb(name: str, n_rows: int, file: DataFile, targets: Any, classes: tuple[str, ...]) -> Source:
    def read(paths: list[Path]) -> Rows:
        table = pd.read_csv(paths[0], sep="\t")
        y = codes_of(table.pop("target"), tuple(targets))
        # The phone number of churn is another one on every row.
        return split(_typed(table.drop(columns="phone number", errors="ignore")), y, classes)

    origin = f"https://github.com/EpistasisLab/pmlb (datasets/{name}/{name}.tsv.gz)"
    return Source(name, "table", n_rows, len(classes), origin, "MIT", read, (file,))


def _pycaret(name: str, n_rows: int, file: DataFile, target: str, labels: Any) -> Source:
    def read(paths: list[Path]) -> Rows:
        table = pd.read_csv(paths[0], keep_default_na=False)
        y = codes_of(table.pop(target), labels)
        return split(_typed(table), y, ("no", "yes"))

    origin = f"https://github.com/pycaret/datasets ({name}.csv, gzipped)"
    return Source(name, "table", n_rows, 2, origin, "MIT", read, (file,))


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


def _file(name: str, sha256: str, unpacked: str) -> DataFile:
    return DataFile(f"tabular/{name}.gz", sha256, unpacked_sha256=unpacked)


BUNDLED = (
    _bundled("iris", 150, 3),
    _bundled("wine", 178, 3),
    _bundled("breast-cancer", 569, 2),
    _bundled("digits", 1797, 10),
)
PMLB = (
    _pmlb(
        "letter",
        20_000,
        _file(
            "letter.tsv",
            "f8ffe4f9920dc63fb85b864cc1afffb66e45c6e302d175905fd7db04ba67b8c6",
            "1ce967cac310120042a497760cb642e21b26d813e87c87fa1bb13896da6c812c",
        ),
        range(1, 27),
        LETTERS,
    ),
    _pmlb(
        "magic",
        19_020,
        _file(
            "magic.tsv",
            "c823ea26d676538f9194d41f290798ff2f3fe59255c340418fd9439d8fc9c07f",
            "05549371c27df5b9e060a2febe8f2ab8887ea8980155d53b623ee345392de584",
        ),
        (0, 1),
        ("gamma", "hadron"),
    ),
    _pmlb(
        "satimage",
        6_435,
        _file(
            "satimage.tsv",
            "1ee8cf9693351db7afe68f6fc32942845caae3e1030c688efa6c5d0b24229f46",
            "64f24621c46cfc27caa7ec92641e49122a8d7ecfc5fe6a6d38179034670534c1",
        ),
        (1, 2, 3, 4, 5, 7),
        SOILS,
    ),
    _pmlb(
        "churn",
        5_000,
        _file(
            "churn.tsv",
            "7a8bf22bd4c0845187d4d6eb39b215181ba149834b851430a68052a7a3a86bcc",
            "42de232ebc4fc95958dbdc32bdc38e5ea0d72ff37487f1aefd1cc35a7248419e",
        ),
        (0, 1),
        ("stayed", "left"),
    ),
)
UCI = (
    _uci(
        "adult",
        48_842,
        2,
        "adult.data and adult.test, gzipped",
        _read_adult,
        (
            _file(
                "adult-train.csv",
                "171e93e0be014947c678f8e0fd17485ec99e8c273d1a7a0b506bb9139e95800b",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            _file(
                "adult-test.csv",
                "1f463d13207c2309afd36957e5dc547973934dd2cc22214907fda590810d9e32",
                "72567b94f5c1a6f8501377dd80f93892c3848ff071cf91ba47e00b0785a28074",
            ),
        ),
    ),
    *(
        _uci(
            f"wine-{color}",
            n_rows,
            186,
            "as CSV without header, gzipped",
            _read_wine,
            (_file(f"winequality-{color}.csv", sha256, unpacked),),
        )
        for color, n_rows, sha256, unpacked in (
            (
                "red",
                1_599,
                "426d78d55885d18146161a19e7f6d4c847c20f0848262ab78834c3d1d8feb81d",
                "c9614512e980f1cbd221c796daa97f00c4898c3cd1716863abac60f6cd1a522e",
            ),
            (
                "white",
                4_898,
                "93d20773c5474583a4731e69a51752dab49c0b8b053ed7df746ea8a302b11707",
                "659d419fff887f225bf977d20520bb64a64cae203e460087f809721d4430ba27",
            ),
        )
    ),
)
PYCARET = (
    _pycaret(
        "bank",
        45_211,
        _file(
            "bank.csv",
            "a1edd74b798a22e6127ef4ea2225f09a4b763541ec763651b478605043ec1b17",
            "2b100ec58183c55e10316f60f3a4433c0886d2943be7e09afc4529321c64fd60",
        ),
        "deposit",
        ("no", "yes"),
    ),
    _pycaret(
        "credit",
        24_000,
        _file(
            "credit.csv",
            "ccf8e6628a9a6768ab94f59d8902d500bb0833b5023db2c050b0a3faece54b5c",
            "0f2c8fcc66e1f90e5fa79b92df18c0a67f8c7c4ec1eabbc4fd256438bcc608bf",
        ),
        "default",
        (0, 1),
    ),
)
SOURCES = (*BUNDLED, *PMLB, *UCI, *PYCARET)
