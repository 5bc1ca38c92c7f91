"""Tables of numbers, categories and dates become vectors in which every column weighs alike."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from types import NoneType
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from attnknn._validation import check_at_least, check_choice
from attnknn.encoders.base import Arrays, Encoder, Settings
from attnknn.encoders.identity import TEXT_ENCODERS
from attnknn.encoders.string_kinds import string_kind
from attnknn.errors import InvalidInputError
from attnknn.records import Floats
from attnknn.registry import register

Kind = Literal["number", "date", "category"]
Scaling = Literal["standard", "quantile", "normal"]
N_KNOTS = 257
OUTERMOST_RANK = 1e-4
FEW = 8  # rows that are encoded cell by cell
LARGE = 2.0**63  # numbers of this size are left to pandas
FREE_TEXT = "free text"  # reason to drop a column
N_FINE_KNOTS = 1025  # the normal distribution needs a finer resolution in its tails


@dataclass(frozen=True)
class NumericColumn:
    """A number, or a date in days, scaled to mean 0 and variance 1."""

    name: str
    kind: Kind  # "number" or "date"
    fill: float  # median of the training rows, which replaces missing values
    center: float  # mean of the training rows, of their ranks if there are `knots`
    scale: float
    is_constant: bool  # whether all present values were equal, so that only the indicator is used
    has_indicator: bool  # whether values were missing in training; then a second output marks them
    # quantiles of the training rows, which map a value to its rank from 0 to 1
    knots: Floats | None = None
    is_bell: bool = False  # whether ranks are mapped to quantiles of the normal distribution

    def encode(self, values: pd.Series[Any]) -> Floats:
        """Numbers of shape (n, 1 or 2)."""
        numbers = as_numbers(values, self.name, self.kind)
        missing = np.isnan(numbers)
        parts = [] if self.is_constant else [self._scaled(np.where(missing, self.fill, numbers))]
        if self.has_indicator:
            parts.append(missing.astype(np.float64))
        return np.column_stack(parts)

    def encode_cells(self, cells: list[Any]) -> list[list[float]] | None:
        """`encode` for a few Python objects, as lists; None if they are not simply numbers."""
        if self.kind != "number" or not {int, float}.issuperset(map(type, cells)):
            return None
        if any(abs(cell) >= LARGE for cell in cells):
            return None
        outputs: list[list[float]] = [[] for _ in cells]
        if not self.is_constant:
            numbers = [self.fill if cell != cell else float(cell) for cell in cells]
            if self.knots is None:
                scaled = [(number - self.center) / self.scale for number in numbers]
            else:
                scaled = self._scaled(np.array(numbers)).tolist()
            outputs = [[number] for number in scaled]
        if self.has_indicator:
            for output, cell in zip(outputs, cells, strict=True):
                output.append(float(cell != cell))
        return outputs

    def output_names(self) -> list[str]:
        """A name per output."""
        value = [] if self.is_constant else [self.name]
        return value + ([f"{self.name} is missing"] if self.has_indicator else [])

    def _scaled(self, numbers: Floats) -> Floats:
        ranks = numbers if self.knots is None else _ranks(numbers, self.knots)
        if self.is_bell:
            ranks = ndtri(np.clip(ranks, OUTERMOST_RANK, 1 - OUTERMOST_RANK))
        return (ranks - self.center) / self.scale


@dataclass(frozen=True)
class CategoryColumn:
    """A one-hot encoded category."""

    name: str
    categories: tuple[str, ...]  # the most frequent categories, most frequent first
    # whether there were more; then one output is shared by rare and unseen categories; without it
    # unseen categories are all zeros
    has_other: bool
    # whether values were missing in training; then missing is a category of its own; without it a
    # missing value is encoded as an unseen category
    has_missing: bool

    def encode(self, values: pd.Series[Any]) -> Floats:
        """Zeros and ones of shape (n, n_outputs)."""
        codes, distinct = pd.factorize(values.astype(object), use_na_sentinel=True)
        places = np.array(self._places([*distinct, None]))[codes]  # code -1, missing, is the last
        encoded = np.zeros((len(places), self._width + 1))
        encoded[np.arange(len(places)), places] = 1.0
        return encoded[:, : self._width]

    def encode_cells(self, cells: list[Any]) -> list[list[float]] | None:
        """`encode` for a few Python objects, as lists; None if one is no text, number or None."""
        if not {str, bool, int, float, NoneType}.issuperset(map(type, cells)):
            return None
        outputs = []
        for place in self._places([None if cell != cell else cell for cell in cells]):
            output = [0.0] * (self._width + 1)
            output[place] = 1.0
            outputs.append(output[:-1])
        return outputs

    def _places(self, values: list[Any]) -> list[int]:
        """The output of each value, where None is missing; the one past the end is cut off."""
        n_known = len(self.categories)
        other = n_known if self.has_other else self._width
        missing = n_known + self.has_other if self.has_missing else other
        return [
            missing if value is None else self._place_of.get(category_text(value), other)
            for value in values
        ]

    @cached_property
    def _place_of(self) -> dict[str, int]:
        return {category: place for place, category in enumerate(self.categories)}

    @property
    def _width(self) -> int:
        return len(self.categories) + self.has_other + self.has_missing

    def output_names(self) -> list[str]:
        """A name per output."""
        names = [f"{self.name}={category}" for category in self.categories]
        names += [f"{self.name} is other"] if self.has_other else []
        return names + ([f"{self.name} is missing"] if self.has_missing else [])


Column = NumericColumn | CategoryColumn


def learn_column(
    values: pd.Series[Any], name: str, *, scaling: Scaling, max_categories: int
) -> Column | str:
    """The fitted column, or the reason to drop it."""
    if values.isna().all():
        return "all values are missing"
    kind = kind_of(values)
    if kind == "category" and string_kind(values) == "text":
        return FREE_TEXT
    if kind == "category":
        column: Column = _learn_categories(values, name, max_categories)
    else:
        column = _learn_numbers(as_numbers(values, name, kind), name, kind, scaling)
    n_outputs = len(column.output_names())
    is_used = n_outputs > (0 if isinstance(column, NumericColumn) else 1)
    return column if is_used else "all values are equal"


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
    """A column as float64 with NaN for missing; dates are days since 1970, durations are days."""
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
    """A category as text. Whole floats are written as integers: a missing value makes ints floats.

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
    # In seconds, since nanoseconds overflow in 2262.
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
    # Dividing first keeps the squares of the variance from overflow and underflow.
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


def _ranks(numbers: Floats, knots: Floats) -> Floats:
    """Rank of each number among the knots, 0 to 1; the middle where several knots are equal."""
    grid = np.linspace(0.0, 1.0, len(knots))
    from_below = np.interp(numbers, knots, grid)
    from_above = 1.0 - np.interp(-numbers, -knots[::-1], grid)
    return (from_below + from_above) / 2


@register("encoder", "tabular")
class TableEncoder(Encoder):
    """Encode tables: scaled numbers and dates, one-hot categories. Labels are not used.

    - *Numbers* (and dates, in days) are scaled to mean 0 and variance 1. A missing value is
      replaced by the median. If values were missing in training, another 0/1 column marks them.
    - *Categories* (texts, categories, booleans) are one-hot encoded. Each of the `max_categories`
      most frequent categories has a column. All other categories share one more column; if `fit`
      saw no others, an unseen category is encoded as zeros. If values were missing in training,
      missing is a category of its own; otherwise it is encoded as an unseen category.
    - Columns that are *constant* or entirely missing are dropped; see `dropped_`.
    - *Free texts* (several words, different in most rows) are dropped with a warning, because as
      categories no two rows would agree. Convert the column with `astype("category")` to one-hot
      encode it, or fit a text encoder on it. A column of ids causes a warning.

    The scaling gives all columns about the same weight in the distance of two rows. Each column
    adds to the squared distance:

    - categories: 2 if they differ, and 0 if they are equal;
    - numbers: 2 on average over random pairs of rows, which is twice the variance;
    - a missing and a present number with the scaled value x: about 1 + x², which is 2 on average.

    Columns of a DataFrame are matched by name: the order does not matter, additional columns are
    ignored, and a missing column raises an error. Columns of an array are matched by position.

    Parameters
    ----------
    scaling : {'standard', 'quantile', 'normal'}, default='standard'
        'quantile' replaces a number by its rank before scaling, which limits the effect of
        outliers. 'normal' maps the ranks to quantiles of the normal distribution (normal scores).
    max_categories : int, default=32
        Maximum number of categories per column that get a one-hot column of their own; the others
        share one. Larger values keep rare categories apart and make embeddings wider.

    Attributes
    ----------
    columns_ : list
        The columns in use, in the order of the embedding.
    dropped_ : dict of str to str
        Why a column is not used, by column name.

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

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self._check_settings()
        table = _as_table(X)
        if not len(table):
            raise InvalidInputError("`X` must have at least one row to learn from, got none.")
        self.n_features_in_ = table.shape[1]
        self._set_names(table.columns if isinstance(X, pd.DataFrame) else None)
        learned = {
            name: learn_column(
                table[name], name, scaling=self.scaling, max_categories=self.max_categories
            )
            for name in table.columns
        }
        self.columns_: list[Column] = [c for c in learned.values() if not isinstance(c, str)]
        self.dropped_ = {name: why for name, why in learned.items() if isinstance(why, str)}
        self._warn_of_strings(table)
        if not self.columns_:
            raise InvalidInputError(
                f"`X` must have a column that varies, got {table.shape[1]} in which all values are "
                f"equal or missing; rows: {len(table)}."
            )
        return self

    def transform(self, X: Any) -> Floats:
        self.check_fitted()
        cells = self._cells(X)
        if cells is not None:
            return self._encode_cells(X, cells)
        table = self._matched(X)
        return np.hstack([column.encode(table[column.name]) for column in self.columns_])

    def _cells(self, X: Any) -> dict[str, list[Any]] | None:
        """The columns of a few rows as Python objects; None for tables that are not as in `fit`.

        Operations on a column of a DataFrame take longer to begin than a few rows to encode.
        """
        if not isinstance(X, pd.DataFrame | np.ndarray) or X.ndim != 2 or not 0 < len(X) <= FEW:
            return None
        names = getattr(self, "feature_names_in_", None)
        if isinstance(X, pd.DataFrame) and names is not None:
            given = [str(name) for name in X.columns.tolist()]
        elif X.shape[1] == self.n_features_in_:
            given = _numbered(X.shape[1]) if names is None else list(names)
        else:
            return None
        values = X.to_numpy(dtype=object) if isinstance(X, pd.DataFrame) else X
        cells = dict(zip(given, values.T.tolist(), strict=True))
        are_known = all(column.name in cells for column in self.columns_)
        return cells if len(cells) == len(given) and are_known else None

    def _encode_cells(self, X: Any, cells: dict[str, list[Any]]) -> Floats:
        parts = [column.encode_cells(cells[column.name]) for column in self.columns_]
        if any(part is None for part in parts):  # such as dates
            table = self._matched(X)
            parts = [
                column.encode(table[column.name]).tolist() if part is None else part
                for part, column in zip(parts, self.columns_, strict=True)
            ]
        outputs: Any = zip(*parts, strict=True)
        return np.array([list(chain.from_iterable(output)) for output in outputs])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        self.check_fitted()
        return np.array([n for c in self.columns_ for n in c.output_names()], dtype=object)

    def to_settings(self) -> tuple[Settings, Arrays]:
        self.check_fitted()
        columns, arrays = [], {}
        for position, column in enumerate(self.columns_):
            fields = asdict(column)
            knots = fields.pop("knots", None)
            if knots is not None:
                arrays[f"knots_{position}"] = knots
            columns.append(fields)
        return {
            "encoder": self.name,
            "scaling": self.scaling,
            "max_categories": self.max_categories,
            "n_features_in": self.n_features_in_,
            "feature_names_in": self._names(),
            "columns": columns,
            "dropped": self.dropped_,
        }, arrays

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        encoder = cls(settings["scaling"], settings["max_categories"])
        encoder._check_settings()
        encoder.n_features_in_ = int(settings["n_features_in"])
        encoder._set_names(settings["feature_names_in"])
        encoder.columns_ = [
            _column(fields, arrays.get(f"knots_{position}"))
            for position, fields in enumerate(settings["columns"])
        ]
        encoder.dropped_ = dict(settings["dropped"])
        return encoder

    def _warn_of_strings(self, table: pd.DataFrame) -> None:
        """Name columns of free texts, which are dropped, and of ids, which say nothing."""
        texts = [name for name, why in self.dropped_.items() if why == FREE_TEXT]
        named = ", ".join(map(repr, texts[:5]))
        if texts and not self.columns_:
            raise InvalidInputError(
                f"`X` must have a column of numbers, dates or categories, got only free text: "
                f"{named}. {TEXT_ENCODERS}"
            )
        if texts:
            shown = table[texts[0]].dropna().iloc[0]
            warnings.warn(
                f"Free text is ignored: {named}, such as {str(shown)[:40]!r}. Fit on this column "
                "alone with `encoder='tfidf'` to learn from it, drop the column, or convert it "
                "with `astype('category')` to one-hot encode it.",
                stacklevel=3,
            )
        categories = [c.name for c in self.columns_ if isinstance(c, CategoryColumn)]
        ids = [name for name in categories if string_kind(table[name]) == "id"]
        if ids:
            warnings.warn(
                "Nearly every row has a different value, like an id: "
                f"{', '.join(map(repr, ids[:5]))}. Drop such columns: no two rows agree in them.",
                stacklevel=3,
            )

    def _matched(self, X: Any) -> pd.DataFrame:
        """`X` as a table in which every column in use has its name."""
        table = _as_table(X)
        by_name = isinstance(X, pd.DataFrame) and hasattr(self, "feature_names_in_")
        if by_name:
            absent = [column.name for column in self.columns_ if column.name not in table.columns]
            if absent:
                more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
                verb = "is" if len(absent) == 1 else "are"
                raise InvalidInputError(
                    f"`X` must have the columns of `fit`, {str(absent[:5])[1:-1]}{more} {verb} "
                    f"missing. Got: {', '.join(map(str, table.columns))}."
                )
        elif table.shape[1] != self.n_features_in_:
            raise InvalidInputError(
                f"`X` must have {self.n_features_in_} columns, as in `fit`, got {table.shape[1]}."
            )
        else:
            table.columns = pd.Index(getattr(self, "feature_names_in_", _numbered(table.shape[1])))
        return table

    def _check_settings(self) -> None:
        check_choice("scaling", self.scaling, get_args(Scaling))
        check_at_least("max_categories", self.max_categories, 1)


def _as_table(X: Any) -> pd.DataFrame:
    """Any table-like input as a new DataFrame with text column names; data are not copied."""
    if hasattr(X, "toarray"):
        raise InvalidInputError("`X` must be a dense table, got a sparse matrix.")
    if isinstance(X, pd.DataFrame):
        table = X.copy(deep=False)
        table.columns = pd.Index([str(column) for column in X.columns])
        twice = table.columns[table.columns.duplicated()]
        if len(twice):
            raise InvalidInputError(
                f"Columns of `X` must have different names, {twice[0]!r} occurs twice."
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


def _column(fields: Settings, knots: NDArray[Any] | None) -> Column:
    """A column from stored settings, which may hold anything."""
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
        raise ValueError(f"the column {str(column.name)[:40]!r} is not valid")
    return column
