"""Whether a target looks like classes: a number to predict, or a name of each row, does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.files import Source
from attnknn.cli.files.base import check_column
from attnknn.errors import InvalidInputError

# More values than this, and fewer rows for each on average, are no classes.
MOST_INTEGERS, MOST_FRACTIONS, MOST_TEXTS = 100, 20, 100
FEWEST_PER_NUMBER, FEWEST_PER_TEXT = 5, 2


def target_of(source: Source, notes: dict[str, str], asked: str | None) -> str:
    """The column of the labels: the one asked for, or the one of `fit`, which the notes name."""
    noted = notes.get("target", "")
    usual = noted if noted in source.columns else source.default_target or noted
    return check_column(source, asked or usual)


def refuse_one_class(labels: NDArray[Any], source: Source, name: str) -> None:
    """An error where there is nothing to tell apart."""
    if (labels == labels[0]).all():
        raise InvalidInputError(
            f"{source.path} must have at least two classes to tell apart; in column {name!r} all "
            f"{len(labels):,} rows are {str(labels[0])!r}."
        )


def refuse_no_classes(labels: NDArray[Any], name: str) -> None:
    """An error for a target that has far too many values to be classes.

    >>> refuse_no_classes(np.arange(1000), "price")
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Column 'price' looks like a number to predict, not a class: \
it has 1,000 different values in 1,000 rows. Name another --target, or insist with --many-classes.
    """
    distinct = np.unique(labels)
    numbers = pd.to_numeric(pd.Series(distinct.tolist()), errors="coerce")
    if numbers.isna().any():
        looks_like, most, fewest = "a name of each row", MOST_TEXTS, FEWEST_PER_TEXT
    else:
        has_fractions = bool((numbers % 1 != 0).any())
        most = MOST_FRACTIONS if has_fractions else MOST_INTEGERS
        looks_like, fewest = "a number to predict", FEWEST_PER_NUMBER
    if len(distinct) > most and len(labels) < fewest * len(distinct):
        raise InvalidInputError(
            f"Column {name!r} looks like {looks_like}, not a class: it has {len(distinct):,} "
            f"different values in {len(labels):,} rows. Name another --target, or insist with "
            "--many-classes."
        )
