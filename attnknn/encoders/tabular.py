"""Tables of numbers, categories and dates become vectors whose distances weigh columns alike."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.encoders.base import Arrays, BaseEncoder, Settings, damaged
from attnknn.encoders.columns import (
    CategoryColumn,
    Column,
    NumericColumn,
    Scaling,
    learn_column,
)
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    NotFittedYetError,
    unknown_name,
)
from attnknn.records import Floats
from attnknn.registry import register


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
