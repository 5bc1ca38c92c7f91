"""Tables of the Penn Machine Learning Benchmarks: letter, magic, satimage, churn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from attnknn.research.datasets.base import DataFile, Rows, Source, codes_of, split

CHURN_CATEGORIES = ("state", "area code", "international plan", "voice mail plan")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SOILS = (
    "red soil",
    "cotton crop",
    "grey soil",
    "damp grey soil",
    "soil with vegetation stubble",
    "very damp grey soil",
)


def _reader(targets: tuple[int, ...], classes: tuple[str, ...]) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        table = pd.read_csv(paths[0], sep="\t")
        y = codes_of(table.pop("target"), targets)
        return split(_typed(table), y, classes)

    return read


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Codes of churn as categories, and without its phone number, which is new on every row."""
    table = table.drop(columns="phone number", errors="ignore")
    categories = [column for column in CHURN_CATEGORIES if column in table.columns]
    return table.astype(dict.fromkeys(categories, "category"))


def _source(
    name: str, n_rows: int, sha256: str, targets: tuple[int, ...], classes: tuple[str, ...]
) -> Source:
    return Source(
        name=name,
        kind="table",
        n_rows=n_rows,
        n_classes=len(classes),
        origin=f"https://github.com/EpistasisLab/pmlb (datasets/{name}/{name}.tsv.gz)",
        license="MIT",
        read=_reader(targets, classes),
        files=(DataFile(f"tabular/{name}.tsv.gz", sha256),),
    )


SOURCES = (
    _source(
        "letter",
        20_000,
        "f8ffe4f9920dc63fb85b864cc1afffb66e45c6e302d175905fd7db04ba67b8c6",
        tuple(range(1, 27)),
        LETTERS,
    ),
    _source(
        "magic",
        19_020,
        "c823ea26d676538f9194d41f290798ff2f3fe59255c340418fd9439d8fc9c07f",
        (0, 1),
        ("gamma", "hadron"),
    ),
    _source(
        "satimage",
        6_435,
        "1ee8cf9693351db7afe68f6fc32942845caae3e1030c688efa6c5d0b24229f46",
        (1, 2, 3, 4, 5, 7),
        SOILS,
    ),
    _source(
        "churn",
        5_000,
        "7a8bf22bd4c0845187d4d6eb39b215181ba149834b851430a68052a7a3a86bcc",
        (0, 1),
        ("stayed", "left"),
    ),
)
