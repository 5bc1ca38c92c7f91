"""Targets that do not look like classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn.cli.rows.columns import refuse_regression_target
from attnknn.errors import InvalidInputError

from .samples import QUICK, refused, run, write


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(101), "a regression target"),
        (np.tile(np.arange(200), 4), "a regression target"),
        (np.linspace(0, 1, 21), "a regression target"),
        (np.array([f"{i}.5" for i in range(21)]), "a regression target"),
        (np.array([f"p{i}" for i in range(101)]), "an identifier"),
    ],
)
def test_too_many_values_are_refused(labels: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        refuse_regression_target(labels, "y")


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(100),
        np.tile(np.arange(200), 5),
        np.tile(np.linspace(0, 1, 21), 5),
        np.array([f"p{i // 2}" for i in range(300)]),
        np.array([True, False]),
    ],
)
def test_classes_are_allowed(labels: Any) -> None:
    refuse_regression_target(labels, "y")


def test_one_can_insist(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": np.arange(360) * 7 % 31, "price": np.arange(360) % 120 * 3})
    arguments = (
        "fit",
        write(table, tmp_path / "train.csv"),
        "-t",
        "price",
        "--encoder",
        "tabular",
        *QUICK,
    )
    assert "--many-classes" in refused(*arguments, "-o", tmp_path / "model")
    assert run(*arguments, "-o", tmp_path / "model", "--many-classes").exit_code == 0
