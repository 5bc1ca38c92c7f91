"""Rows of a file become what a stored classifier takes: its columns, in its order and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.columns import refuse_gaps, refuse_infinite
from attnknn.cli.files import Part, Source
from attnknn.cli.kinds import as_kind
from attnknn.cli.queries import Queries
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


class QueryRows(Queries):
    """Columns by name, or vectors; columns that the classifier does not know are left out."""

    def __init__(
        self, source: Source, classifier: AttnKNNClassifier, notes: dict[str, str]
    ) -> None:
        super().__init__(source, classifier, notes)
        if source.kind == "images":
            raise InvalidInputError(f"{source.path} holds images; this model does not read images.")
        self._names: list[str] | None = None
        names = getattr(classifier, "feature_names_in_", None)
        if names is not None:
            self._names = [str(name) for name in names]
        table = getattr(classifier.encoder_, "table_", classifier.encoder_)
        self._columns = {c.name: c for c in getattr(table, "columns_", [])}
        self._check_columns()

    def rows(self, part: Part) -> Any:
        """What `predict_proba` takes: a DataFrame, or an array where no columns are known."""
        if part.items is not None:
            vectors = self._finite(part)
            return vectors if self._names is None else pd.DataFrame(vectors, columns=self._names)
        wanted = self._features() if self._names is None else self._names
        table = pd.DataFrame({name: self._column(part, name) for name in wanted})
        if not self._columns:
            refuse_gaps(part, table)
        return table if self._names is not None else table.to_numpy(dtype=np.float64)

    def _column(self, part: Part, name: str) -> pd.Series[Any]:
        if name not in part.table.columns:  # constant in training: nobody reads it
            return pd.Series([None] * len(part), dtype=object)
        column = part.table[name]
        known = self._columns.get(name)
        if hasattr(known, "categories"):
            return column.astype(object).where(column.notna(), None) if part.is_text else column
        if self._columns and known is None:
            return column
        if getattr(known, "kind", "number") == "date":
            return as_kind(part, name, "dates") if part.is_text else column
        is_number = pd.api.types.is_numeric_dtype(column)
        numbers = column if is_number else as_kind(part, name, "numbers")
        refuse_infinite(part, name, numbers)
        return numbers

    def _features(self) -> list[str]:
        """The columns of a table for a classifier that was fitted on vectors."""
        roles = {self.notes.get("target", ""), self.notes.get("id_column", "")}
        return [name for name in self.source.columns if name not in roles]

    def _check_columns(self) -> None:
        width = self.classifier.n_features_in_
        if self.source.kind == "vectors" or self._names is None:
            first = next(iter(self.source.parts(1)), None)
            vectors = None if first is None else first.items
            found = len(self._features()) if vectors is None else vectors.shape[1]
            if found != width and first is not None:
                raise InvalidInputError(
                    f"The rows of {self.source.path} must have {width} columns, as in `fit`, "
                    f"they have {found}."
                )
            return
        needed = list(self._columns) or self._names
        absent = [name for name in needed if name not in self.source.columns]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            raise InvalidInputError(
                f"{self.source.path} must have the columns of `fit`; "
                f"{', '.join(repr(name) for name in absent[:3])}{more} missing."
            )

    def _finite(self, part: Part) -> NDArray[Any]:
        vectors = np.asarray(part.items)
        if vectors.dtype.kind not in "iufb":
            raise InvalidInputError(
                f"The vectors of {self.source.path} must be numbers, they are {vectors.dtype}."
            )
        numbers = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)
        wrong = ~np.isfinite(numbers).all(axis=1)
        if wrong.any():
            place = part.place(int(wrong.argmax()))
            raise InvalidInputError(f"Vectors must be finite, {place} of the file is not.")
        return numbers
