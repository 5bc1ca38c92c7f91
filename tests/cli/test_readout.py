"""How `fit` says what it took the columns for."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from attnknn.cli.rows.column_types import describe_columns

from .samples import animals, fit_quickly, write


def warned(table: pd.DataFrame, *sure: str) -> list[str]:
    return [line for line in describe_columns(table, sure) if line.startswith("Warning")]


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
    assert "plant name" not in "".join(warned(table, "plant name"))
    assert not warned(table.head(15))


def test_dates_that_are_no_iso_dates_are_doubted() -> None:
    table = pd.DataFrame({"day": ["31.12.2024", "1.2.2025", None], "price": ["1.2", "3.4", "x"]})
    (line,) = warned(table)
    assert "categories: day. " in line
    assert "2024-12-31" in line
