"""Column types: numbers, dates and categories, and the report about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.cli.rows.column_types import describe_columns
from attnknn.encoders.tabular import CategoryColumn, NumericColumn, TableEncoder

from .samples import QUICK, animals, fit_quickly, refused, run, write

DAYS = pd.date_range("2023-12-20", periods=40).strftime("%Y-%m-%d").to_numpy(dtype=object)


def table_of(column: list[Any]) -> pd.DataFrame:
    kinds = np.arange(len(column)) % 2
    return pd.DataFrame({"x": column, "z": kinds * 3 + np.arange(len(column)), "kind": kinds})


def fitted(table: pd.DataFrame, folder: Path, *arguments: Any, ending: str = "csv") -> Any:
    path = write(table, folder / f"train.{ending}")
    done = run("fit", path, "-t", "kind", "-o", folder / "model", *QUICK, *arguments)
    assert done.exit_code == 0, done.output
    encoder = AttnKNNClassifier.load(folder / "model").encoder_
    assert isinstance(encoder, TableEncoder)
    return {column.name: column for column in encoder.columns_}["x"]


def refused_fit(table: pd.DataFrame, folder: Path) -> str:
    path = write(table, folder / "train.csv")
    return refused("fit", path, "-t", "kind", "-o", folder / "model", *QUICK)


@pytest.mark.parametrize(
    ("cells", "kind", "cell"),
    [
        ([*range(38), "n/a?", 7], "numbers", "line 40 has 'n/a?' (cells like this: 1 of 40)"),
        ([*range(38), "12,5", 7], "numbers", "line 40 has '12,5'"),
        ([f"{i},5" for i in range(40)], "numbers", "(write numbers as 1234.5)"),
        ([*DAYS[:38], "2024-02-31", None], "dates", "line 40 has '2024-02-31'"),
    ],
)
def test_a_few_cells_that_do_not_fit_are_refused(
    cells: list[Any], kind: str, cell: str, tmp_path: Path
) -> None:
    line = refused_fit(table_of(cells), tmp_path)
    assert f"Column 'x' looks like {kind}" in line
    assert cell in line
    assert "--categorical x" in line


@pytest.mark.parametrize(
    "cells",
    [
        [*range(18), "n/a?"],  # too few to speak of nearly all
        [*range(34), *"abcdef"],  # too many others
        ["a", "b"] * 20,
        ["2024-01", "2024-02"] * 20,
    ],
)
def test_other_texts_are_categories(cells: list[Any], tmp_path: Path) -> None:
    assert isinstance(fitted(table_of(cells), tmp_path), CategoryColumn)


def test_a_column_can_be_said_to_be_categories(tmp_path: Path) -> None:
    table = table_of([*range(38), "n/a?", 7])
    column = fitted(table, tmp_path, "--categorical", "x")
    assert isinstance(column, CategoryColumn)
    assert run("predict", tmp_path / "model", tmp_path / "train.csv").exit_code == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_can_be_said_to_be_categories(ending: str, tmp_path: Path) -> None:
    table = table_of([2, 1, 1, None] * 10)
    column = fitted(table, tmp_path, "--categorical", "x", ending=ending)
    assert isinstance(column, CategoryColumn)
    assert column.has_missing
    assert [float(category) for category in column.categories] == [1, 2]


def test_names_may_be_given_one_by_one_or_as_a_list_and_may_have_commas(tmp_path: Path) -> None:
    table = table_of([1, 2] * 10).rename(columns={"z": "z, again"})
    fitted(table, tmp_path, "--categorical", "x", "--categorical", "z, again")
    encoder: Any = AttnKNNClassifier.load(tmp_path / "model").encoder_
    assert all(isinstance(column, CategoryColumn) for column in encoder.columns_)
    (tmp_path / "more").mkdir()
    assert isinstance(
        fitted(table_of([1, 2] * 10), tmp_path / "more", "--categorical", "x,z"), CategoryColumn
    )


def test_only_features_can_be_said_to_be_categories(tmp_path: Path) -> None:
    path = write(animals(9), tmp_path / "train.csv")
    line = refused("fit", path, "-t", "kind", "-o", tmp_path / "m", "--categorical", "kind")
    assert "feature columns, got 'kind'" in line


@pytest.mark.parametrize("style", ["{}", "{}T10:00:00", "{} 10:00:00.5+02:00", "{}T10:00Z"])
def test_dates_become_days(style: str, tmp_path: Path) -> None:
    cells = [*(style.format(day) for day in DAYS), None]
    column = fitted(table_of(cells), tmp_path)
    assert isinstance(column, NumericColumn)
    assert column.kind == "date"
    expected = pd.to_datetime(pd.Series(cells), utc=True)
    days = (expected - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    assert column.fill == pytest.approx(days.median())


@pytest.mark.filterwarnings("ignore:Row 40 has an outlier in column 'x'")
def test_far_dates_are_dates(tmp_path: Path) -> None:
    column = fitted(table_of([*DAYS, "9999-12-31"]), tmp_path)
    assert column.kind == "date"


def test_dates_are_answered_in_any_format_of_file(tmp_path: Path) -> None:
    table = table_of(list(DAYS))
    fitted(table, tmp_path)
    answers = run("predict", tmp_path / "model", tmp_path / "train.csv").stdout
    table["x"] = pd.to_datetime(table["x"])
    path = write(table, tmp_path / "rows.parquet")
    assert run("predict", tmp_path / "model", path).stdout == answers
    table["x"] = "soon"
    line = refused("predict", tmp_path / "model", write(table, tmp_path / "rows.csv"))
    assert "Column 'x' must hold dates, as in `fit`; line 2 has 'soon'" in line


def warned(table: pd.DataFrame) -> list[str]:
    return [line for line in describe_columns(table) if line.startswith("Warning")]


def test_fit_lists_the_columns_by_kind_on_the_error_stream(tmp_path: Path) -> None:
    table = animals()
    table["born"], table["year"] = pd.date_range("2020-01-01", periods=60).strftime("%F"), 1
    result = fit_quickly(write(table, tmp_path / "train.csv"), tmp_path / "model")
    assert result.stderr.splitlines() == [
        "numeric           2: weight, legs",
        "dates (in days)   1: born",
        "categorical       1: home",
        "ignored           1: year (all values are equal)",
    ]
    assert "categorical" not in result.stdout


def test_many_names_are_shortened() -> None:
    table = pd.DataFrame({f"c{i}": [1, 2] for i in range(9)})
    assert describe_columns(table) == ["numeric           9: c0, c1, c2, c3, c4, c5, … (3 more)"]


def test_columns_that_name_or_count_the_rows_are_doubted() -> None:
    table = pd.DataFrame(
        {
            "plant name": [f"p{i}" for i in range(30)],
            "number": range(5, 35),
            "length": [i * 7 % 31 for i in range(30)],
            "color": ["red", "blue"] * 15,
        }
    )
    (line,) = warned(table)
    assert "plant name, number. " in line
    assert "--drop-columns 'plant name,number'" in line
    assert "--id-column" in line
    assert "plant name" not in "".join(warned(table.astype({"plant name": "category"})))
    assert not warned(table.head(15))


def test_dates_that_are_no_iso_dates_are_doubted() -> None:
    table = pd.DataFrame({"day": ["31.12.2024", "1.2.2025", None], "price": ["1.2", "3.4", "x"]})
    (line,) = warned(table)
    assert "categories: day. " in line
    assert "2024-12-31" in line
