"""A small table with numbers, categories, ids and gaps, and the command line as a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from click.testing import CliRunner, Result

from attnknn.cli import main

QUICK = ("--attention", "distance", "--calibration", "none", "-k", "5")


def run(*arguments: Any) -> Result:
    """What the command line says to these arguments."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments: Any) -> str:
    """The one line of an error, with exit code 1; only `fit` may have told its columns before."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    *before, last = result.stderr.splitlines()
    assert arguments[0] == "fit" or not before, result.stderr
    assert [line.startswith("Error: ") for line in [*before, last]] == [False] * len(before) + [
        True
    ]
    return last


def animals(n: int = 60, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    kinds = np.arange(n) % 3
    return pd.DataFrame(
        {
            "name": [f"id-{seed}-{i:03d}" for i in range(n)],
            "weight": (generator.normal(size=n) + 4 * kinds).round(3),
            "legs": np.where(generator.uniform(size=n) < 0.1, np.nan, 2.0 + 2 * (kinds > 0)),
            "home": np.array(["01", "tree", "True"], dtype=object)[generator.integers(0, 3, n)],
            "kind": np.array(["bird", "sea lion", "ox, or cow"])[kinds],
        }
    )


def write(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


def fit_quickly(train: Path, model: Path, *arguments: Any) -> Result:
    result = run("fit", train, "-t", "kind", "-o", model, "--id-column", "name", *QUICK, *arguments)
    assert result.exit_code == 0, result.output
    return result
