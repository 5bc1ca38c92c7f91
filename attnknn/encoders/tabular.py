"""Tables of numbers, categories and dates become vectors in which every column weighs alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from attnknn.encoders.base import Arrays, BaseEncoder, Settings, damaged
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    NotFittedYetError,
    unknown_name,
)
from attnknn.records import Floats
from attnknn.registry import register

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


@register("encoder", "tabular")
class TableEncoder(BaseEncoder):
    """Rows of a table as vectors; nothing here is trained on labels.

    - *Numbers* (and dates, in days) are brought to mean 0 and variance 1. Where values were
      missing in training, the median stands in and one more number, 0 or 1, says so.
    - *Categories* (text, categories, booleans) become one place each, 0 or 1, for the
      `max_categories` most frequent; the rest share one place, which unseen ones join (without
      such a place they are all zeros). Missing is a category of its own.
    - *Constant* columns and those that are all missing are dropped, see `dropped_`.

    Two rows with different categories are then at a squared distance of 2 in that column, which is
    what two random rows have on average in a numeric one (twice its variance); and a missing
    number is at 1 + x² from a present one, 2 on average. So every column weighs alike, and a rare
    category no more than a frequent one.

    Everything is learned from the rows given to `fit`. DataFrames are matched by column name: the
    order does not matter, more columns are ignored, a missing one is an error. Arrays are matched
    by position.

    Parameters
    ----------
    scaling : "standard", or "quantile" to replace a number by its rank before scaling: outliers
        lose their pull, and so do real differences in the tail; "normal" then bends the ranks to
        a bell curve
    max_categories : more keeps rarer categories apart and makes embeddings wider

    Attributes
    ----------
    columns_ : the columns in use, in the order of the embedding
    dropped_ : reason by name of each column that is not in use

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [20.0, 40.0], "job": ["cook", "nurse"], "year": [1, 1]})
    >>> encoder = TableEncoder().fit(rows)
    >>> encoder.get_feature_names_out().tolist(), encoder.dropped_
    (['age', 'job=cook', 'job=nurse'], {'year': 'all values are equal'})
    >>> encoder.transform(pd.DataFrame({"job": ["nurse", "pilot"], "age": [50.0, 30.0]}))
    array([[2., 0., 1.],
           [0., 0., 0.]])
    """

    allows_missing: ClassVar[bool] = True

    def __init__(self, scaling: Scaling = "standard", max_categories: int = 32) -> None:
        self.scaling = scaling
        self.max_categories = max_categories

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Learn scales and categories from the rows of `X`."""
        self._check_settings()
        table = _as_table(X)
        if not len(table):
            raise InvalidInputError("`X` must have at least one row to learn from, got none.")
        self.n_features_in_ = table.shape[1]
        if isinstance(X, pd.DataFrame):
            self.feature_names_in_ = np.array(table.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        learned = {
            name: learn_column(
                table[name], name, scaling=self.scaling, max_categories=self.max_categories
            )
            for name in table.columns
        }
        self.columns_: list[Column] = [c for c in learned.values() if not isinstance(c, str)]
        self.dropped_ = {name: why for name, why in learned.items() if isinstance(why, str)}
        if not self.columns_:
            raise InvalidInputError(
                f"`X` must have a column that varies, got {table.shape[1]} in which all values are "
                f"equal or missing; rows: {len(table)}."
            )
        return self

    def transform(self, X: Any) -> Floats:
        """The rows of `X` as vectors (n, D)."""
        self._check_fitted()
        table = self._matched(X)
        return np.hstack([column.encode(table[column.name]) for column in self.columns_])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """A name for each number of an embedding."""
        self._check_fitted()
        return np.array([n for c in self.columns_ for n in c.output_names()], dtype=object)

    def to_settings(self) -> tuple[Settings, Arrays]:
        """What `from_settings` needs: a dict for JSON, and the knots of quantile columns."""
        self._check_fitted()
        columns, arrays = [], {}
        for position, column in enumerate(self.columns_):
            fields = asdict(column)
            if fields.pop("knots", None) is not None:
                assert isinstance(column, NumericColumn)
                assert column.knots is not None
                arrays[f"knots_{position}"] = column.knots
            columns.append(fields)
        names = getattr(self, "feature_names_in_", None)
        return {
            "encoder": self.name,
            "scaling": self.scaling,
            "max_categories": self.max_categories,
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else list(names),
            "columns": columns,
            "dropped": self.dropped_,
        }, arrays

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        """The fitted encoder that `to_settings` described."""
        try:
            encoder = cls(settings["scaling"], settings["max_categories"])
            encoder._check_settings()
            encoder.n_features_in_ = int(settings["n_features_in"])
            if settings["feature_names_in"] is not None:
                encoder.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
            encoder.columns_ = [
                _column(fields, arrays.get(f"knots_{position}"))
                for position, fields in enumerate(settings["columns"])
            ]
            encoder.dropped_ = dict(settings["dropped"])
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(cls.registered_name, error) from error
        return encoder

    def _matched(self, X: Any) -> pd.DataFrame:
        """`X` as a table that has every column in use by name."""
        table = _as_table(X)
        by_name = isinstance(X, pd.DataFrame) and hasattr(self, "feature_names_in_")
        if by_name:
            absent = [column.name for column in self.columns_ if column.name not in table.columns]
            if absent:
                raise InvalidInputError(
                    f"`X` must have the columns of `fit`, {_listed(absent)} missing. "
                    f"Got: {', '.join(map(str, table.columns))}."
                )
        elif table.shape[1] != self.n_features_in_:
            raise InvalidInputError(
                f"`X` must have {self.n_features_in_} columns, as in `fit`, got {table.shape[1]}."
            )
        else:
            table.columns = pd.Index(getattr(self, "feature_names_in_", _numbered(table.shape[1])))
        return table

    def _check_settings(self) -> None:
        known = ("standard", "quantile", "normal")
        if self.scaling not in known:
            raise unknown_name("scaling", self.scaling, known)
        if not isinstance(self.max_categories, int) or self.max_categories < 1:
            raise InvalidSettingError(
                f"`max_categories` must be an integer of at least 1, got {self.max_categories!r}."
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "columns_"):
            raise NotFittedYetError("Call `fit` before `transform`: no columns are known yet.")


def _as_table(X: Any) -> pd.DataFrame:
    """Any table-like input as a new DataFrame frame with text column names; data are not copied."""
    if hasattr(X, "toarray"):
        raise InvalidInputError("`X` must be dense for `encoder='tabular'`, got a sparse matrix.")
    if isinstance(X, pd.DataFrame):
        table = X.copy(deep=False)
        table.columns = pd.Index([str(column) for column in X.columns])
        twice = table.columns[table.columns.duplicated()]
        if len(twice):
            raise InvalidInputError(
                f"Columns of `X` must have different names, {twice[0]!r} twice."
            )
        return table
    array = np.asarray(X) if hasattr(X, "dtype") else np.asarray(X, dtype=object)
    if array.ndim != 2:
        raise InvalidInputError(
            f"`X` must be a table of rows and columns, got {array.ndim} dimensions."
        )
    return pd.DataFrame(array, columns=_numbered(array.shape[1]))


def _numbered(n_columns: int) -> list[str]:
    return [f"x{position}" for position in range(n_columns)]


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def _column(fields: Settings, knots: NDArray[Any] | None) -> Column:
    """The record of a column from stored settings, which may hold anything."""
    if "categories" in fields:
        categories = fields["categories"]
        is_right = isinstance(categories, list) and all(type(c) is str for c in categories)
        flags = [fields["has_other"], fields["has_missing"]]
        column: Column = CategoryColumn(**{**fields, "categories": tuple(categories)})
    else:
        numbers = [fields["fill"], fields["center"], fields["scale"]]
        is_right = all(type(n) is float and np.isfinite(n) for n in numbers) and numbers[2] != 0
        is_right = is_right and fields["kind"] in ("number", "date")
        is_right = is_right and (knots is None or bool(len(knots) and np.isfinite(knots).all()))
        flags = [fields["is_constant"], fields["has_indicator"], fields["is_bell"]]
        column = NumericColumn(**fields, knots=knots)
    if not (is_right and type(column.name) is str and all(type(flag) is bool for flag in flags)):
        raise ValueError(f"the column {str(column.name)[:40]!r} makes no sense")
    return column
