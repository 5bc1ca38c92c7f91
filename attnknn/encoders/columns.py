"""One column of a table becomes one or more numbers per row: numeric, date and category columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri

from attnknn.errors import InvalidInputError
from attnknn.records import Floats

Kind = Literal["number", "date", "category"]
Scaling = Literal["standard", "quantile", "normal"]
N_KNOTS = 257
OUTERMOST_RANK = 1e-4
N_FINE_KNOTS = 1025  # on a bell curve the tails are as wide as the middle


@dataclass(frozen=True)
class NumericColumn:
    """A number, or a date in days, brought to mean 0 and variance 1.

    Parameters
    ----------
    name : of the column
    kind : "number" or "date"
    fill : the median of the training rows, which stands where a value is missing
    center, scale : mean and standard deviation, after `knots` where there are any
    is_constant : whether all present values were equal, so that only the indicator tells anything
    has_indicator : whether values were missing in training; then one more number says so
    knots : quantiles of the training rows, through which a value becomes its rank in 0..1
    is_bell : whether the rank then becomes a place on the bell curve
    """

    name: str
    kind: Kind
    fill: float
    center: float
    scale: float
    is_constant: bool
    has_indicator: bool
    knots: Floats | None = None
    is_bell: bool = False

    def encode(self, values: pd.Series[Any]) -> Floats:
        """(n, 1 or 2) numbers."""
        numbers = as_numbers(values, self.name, self.kind)
        missing = np.isnan(numbers)
        parts = [] if self.is_constant else [self._scaled(np.where(missing, self.fill, numbers))]
        if self.has_indicator:
            parts.append(missing.astype(np.float64))
        return np.column_stack(parts)

    def output_names(self) -> list[str]:
        """A name per number."""
        value = [] if self.is_constant else [self.name]
        return value + ([f"{self.name} is missing"] if self.has_indicator else [])

    def _scaled(self, numbers: Floats) -> Floats:
        ranks = numbers if self.knots is None else _ranks(numbers, self.knots)
        if self.is_bell:
            ranks = ndtri(np.clip(ranks, OUTERMOST_RANK, 1 - OUTERMOST_RANK))
        return (ranks - self.center) / self.scale


@dataclass(frozen=True)
class CategoryColumn:
    """A category as a row of zeros with one 1.

    Parameters
    ----------
    name : of the column
    categories : the most frequent ones, most frequent first
    has_other : whether there were more; then rare and unseen ones share one more place. Without
        it an unseen category is all zeros
    has_missing : whether values were missing in training; then missing is a category too. Without
        it a missing value is an unseen one
    """

    name: str
    categories: tuple[str, ...]
    has_other: bool
    has_missing: bool

    def encode(self, values: pd.Series[Any]) -> Floats:
        """(n, number of places) zeros and ones."""
        codes, distinct = pd.factorize(values.astype(object), use_na_sentinel=True)
        n_known = len(self.categories)
        width = n_known + self.has_other + self.has_missing
        other = n_known if self.has_other else width  # the place past the end is cut off below
        missing = n_known + self.has_other if self.has_missing else other
        place_of = {category: place for place, category in enumerate(self.categories)}
        places = [place_of.get(category_text(value), other) for value in distinct]
        chosen = np.array([*places, missing])[codes]  # code -1, missing, takes the last
        encoded = np.zeros((len(values), width + 1))
        encoded[np.arange(len(values)), chosen] = 1.0
        return encoded[:, :width]

    def output_names(self) -> list[str]:
        """A name per place."""
        names = [f"{self.name}={category}" for category in self.categories]
        names += [f"{self.name} is other"] if self.has_other else []
        return names + ([f"{self.name} is missing"] if self.has_missing else [])


Column = NumericColumn | CategoryColumn


def learn_column(
    values: pd.Series[Any], name: str, *, scaling: Scaling, max_categories: int
) -> Column | str:
    """The record of a column, or the reason to drop it."""
    if values.isna().all():
        return "all values are missing"
    kind = kind_of(values)
    if kind == "category":
        column: Column = _learn_categories(values, name, max_categories)
    else:
        column = _learn_numbers(as_numbers(values, name, kind), name, kind, scaling)
    return column if _tells_anything(column) else "all values are equal"


def kind_of(values: pd.Series[Any]) -> Kind:
    """Whether a column holds numbers, dates or categories (booleans are categories).

    >>> kind_of(pd.Series([1, 2.5, None], dtype=object)), kind_of(pd.Series([True, False]))
    ('number', 'category')
    """
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in {"integer", "floating", "mixed-integer-float", "decimal"}:
        return "number"
    if kind in {"datetime64", "datetime", "date", "timedelta64", "timedelta"}:
        return "date"
    if kind == "complex":
        raise InvalidInputError(f"Column {values.name!r} must hold real numbers, got complex ones.")
    return "category"


def as_numbers(values: pd.Series[Any], name: str, kind: Kind) -> Floats:
    """A column as float64 with NaN for missing; dates are days since 1970, spans are days."""
    try:
        numbers = _days(values) if kind == "date" else pd.to_numeric(values)
        filled = numbers.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
        array = np.asarray(filled, dtype=np.float64)
    except (ValueError, TypeError) as error:
        wanted = "dates" if kind == "date" else "numbers"
        raise InvalidInputError(
            f"Column {name!r} must hold {wanted}, as in `fit`: {error}."
        ) from error
    if np.isinf(array).any():
        row = int(np.flatnonzero(np.isinf(array))[0])
        raise InvalidInputError(f"Column {name!r} must be finite or missing, row {row} is inf.")
    return array


def category_text(value: Any) -> str:
    """A category as text; whole floats are written as integers, since a gap makes ints floats.

    >>> category_text(3.0), category_text(3), category_text(True)
    ('3', '3', 'True')
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _days(values: pd.Series[Any]) -> pd.Series[Any]:
    day = pd.Timedelta(days=1)
    if pd.api.types.infer_dtype(values, skipna=True).startswith("timedelta"):
        return pd.to_timedelta(values) / day
    # In whole seconds, as nanoseconds would end the calendar in 2262.
    return (pd.to_datetime(values, utc=True) - pd.Timestamp(0, tz="UTC").as_unit("s")) / day


def _learn_numbers(numbers: Floats, name: str, kind: Kind, scaling: Scaling) -> NumericColumn:
    missing = np.isnan(numbers)
    present = numbers[~missing]
    column = NumericColumn(
        name=name,
        kind=kind,
        fill=float(np.median(present)),
        center=0.0,
        scale=1.0,
        is_constant=bool(present.min() == present.max()),
        has_indicator=bool(missing.any()),
    )
    if column.is_constant:
        return column
    if scaling != "standard":
        n_knots = N_FINE_KNOTS if scaling == "normal" else N_KNOTS
        knots = np.quantile(present, np.linspace(0, 1, n_knots))
        column = replace(column, knots=knots, is_bell=scaling == "normal")
    scaled = column._scaled(present)
    # Dividing first keeps the square inside the variance from overflowing or vanishing.
    peak = float(np.abs(scaled).max())
    scale = float(np.std(scaled / peak)) * peak
    return replace(column, center=float(np.mean(scaled / peak)) * peak, scale=scale or 1.0)


def _learn_categories(values: pd.Series[Any], name: str, max_categories: int) -> CategoryColumn:
    counts: dict[str, int] = {}
    for value, count in values.astype(object).value_counts(sort=False).items():
        text = category_text(value)
        counts[text] = counts.get(text, 0) + int(count)
    ordered = sorted(counts, key=lambda category: (-counts[category], category))
    return CategoryColumn(
        name=name,
        categories=tuple(ordered[:max_categories]),
        has_other=len(ordered) > max_categories,
        has_missing=bool(values.isna().any()),
    )


def _tells_anything(column: Column) -> bool:
    if isinstance(column, NumericColumn):
        return column.has_indicator or not column.is_constant
    return len(column.output_names()) > 1


def _ranks(numbers: Floats, knots: Floats) -> Floats:
    """Place of each number among the knots in 0..1; the middle where several knots are equal."""
    grid = np.linspace(0.0, 1.0, len(knots))
    from_below = np.interp(numbers, knots, grid)
    from_above = 1.0 - np.interp(-numbers, -knots[::-1], grid)
    return (from_below + from_above) / 2
