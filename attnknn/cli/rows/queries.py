"""Rows of a file as a stored classifier accepts them: to predict for, or to add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.rows import columns
from attnknn.cli.rows.column_types import parse_column
from attnknn.cli.rows.headers import NUMBERED
from attnknn.cli.rows.sources import Chunk, Source, check_column, open_rows
from attnknn.cli.rows.training import Roles, TrainingRows
from attnknn.encoders import ImageEncoder, UnionEncoder
from attnknn.encoders.text import TextRows
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.cli.stored_model import LabelReader


def open_queries(model: Path, rows: Path, separator: str | None = None) -> Queries:
    """Load a classifier and open a file of rows for it."""
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage import load_notes

    source = open_rows(rows, separator=separator, text_column=lambda: load_notes(model).get("text"))
    return queries_for(AttnKNNClassifier.load(model), load_notes(model), source)


def queries_for(classifier: AttnKNNClassifier, notes: dict[str, str], source: Source) -> Queries:
    """The queries of a source for a loaded classifier, by what its encoder reads."""
    kind: type[Queries] = TableQueries
    encoder = classifier.encoder_
    while isinstance(encoder, UnionEncoder):  # all of its encoders read the same rows
        encoder = encoder.encoders_[0][1]
    if isinstance(encoder, TextRows):
        kind = TextQueries
    elif isinstance(encoder, ImageEncoder):
        kind = ImageQueries
    return kind(source, classifier, notes)


class AllRows(NamedTuple):
    """All rows of a file."""

    names: list[str]  # id column and id, or "row" and row number
    shown: list[str | None]  # each row in short, if its name says nothing
    contents: list[Any]  # what a person needs to see of each row
    X: Any


def joined(chunks: Sequence[Any]) -> Any:
    """The rows of several chunks: a DataFrame or an array."""
    is_table = isinstance(chunks[0], pd.DataFrame)
    return pd.concat(chunks, ignore_index=True) if is_table else np.concatenate(chunks)


class Queries:
    """The chunks of a file as rows that a stored classifier accepts.

    `notes` are what `fit` recorded with the classifier: its target, id column and text column.
    """

    def __init__(
        self, source: Source, classifier: AttnKNNClassifier, notes: dict[str, str]
    ) -> None:
        self.source, self.classifier, self.notes = source, classifier, notes
        self.check_source()

    def check_source(self) -> None:
        """Raise an error if the classifier cannot read the source."""
        raise NotImplementedError

    def rows(self, chunk: Chunk) -> Any:
        """The argument of `predict_proba`: a DataFrame or an array."""
        raise NotImplementedError

    def chunks(self) -> Iterator[tuple[Chunk, Any]]:
        """Each chunk with its rows; an error if the file has no rows."""
        n_rows = 0
        for chunk in self.source.chunks():
            n_rows += len(chunk)
            if len(chunk):
                yield chunk, self.rows(chunk)
        if not n_rows:
            raise InvalidInputError(f"{self.source.path} must have at least one row, it has none.")

    def all_rows(self) -> AllRows:
        """All rows at once, with their names and contents."""
        names: list[str] = []
        shown: list[str | None] = []
        contents: list[Any] = []
        rows: list[Any] = []
        for chunk, X in self.chunks():
            column, values = self.names(chunk)
            names += [f"{column} {value}" for value in values]
            shown += self.shown(chunk) or [None] * len(chunk)
            contents += self.contents(chunk)
            rows.append(X)
        return AllRows(names, shown, contents, joined(rows))

    def contents(self, chunk: Chunk) -> list[Any]:
        """What a person needs to see of each row: a text, a file name, or cells by column."""
        if self.source.kind == "table":
            names = Roles.from_notes(self.notes).without_role(self.source.columns)
            return [
                {name: value for name, value in row.items() if not pd.isna(value)}
                for row in chunk.table[names].to_dict("records")
            ]
        if self.source.default_id is not None:
            return [str(value) for value in chunk.table[self.source.default_id]]
        return [None] * len(chunk)

    def names(self, chunk: Chunk) -> tuple[str, list[Any]]:
        """Name and values of the id column, or "row" and the row numbers if there is no such."""
        noted = self.notes.get("id_column", "")
        column = noted if noted in self.source.columns else self.source.default_id
        if column is None:
            return "row", list(range(chunk.first, chunk.first + len(chunk)))
        return column, chunk.table[column].tolist()

    def shown(self, chunk: Chunk) -> list[str] | None:
        """Each row as one short string, if its name says nothing and `fit` stored payloads."""
        roles = Roles.from_notes(self.notes)
        if self.source.kind != "table" or roles.payload == ():
            return None
        known = [name for name in roles.payload or () if name in self.source.columns]
        return replace(roles, payload=tuple(known) or None).read_payloads(self.source, chunk)

    def labeled(self, target: str | None, labels: LabelReader) -> Iterator[TrainingRows]:
        """Labeled rows as `add` takes them, every column in its role from `fit`."""
        roles = replace(
            Roles.from_notes(self.notes), target=columns.target_of(self.source, self.notes, target)
        )
        self._check_roles(roles)
        for chunk, X in self.chunks():
            yield TrainingRows(
                X, labels.read_column(chunk, roles.target), self._metadata(chunk, roles)
            )

    def decided(self, decisions: Mapping[int, Any]) -> Iterator[TrainingRows]:
        """The rows with a label among `decisions`, by row number, as `add` takes them."""
        roles = Roles.from_notes(self.notes)
        self._check_roles(roles)
        n_rows = 0
        for chunk, X in self.chunks():
            n_rows = chunk.first + len(chunk)
            places = [row for row in range(len(chunk)) if chunk.first + row in decisions]
            if not places:
                continue
            metadata = {
                name: None if values is None else [values[place] for place in places]
                for name, values in self._metadata(chunk, roles).items()
            }
            y = np.array([decisions[chunk.first + place] for place in places])
            some = X.iloc[places] if isinstance(X, pd.DataFrame) else X[places]
            yield TrainingRows(some, y, metadata)
        beyond = [row for row in decisions if row >= n_rows]
        if beyond:
            raise InvalidInputError(
                f"Decisions must be for rows of {self.source.path}, which has {n_rows:,}; one is "
                f"for row {beyond[0]:,}. Were they made for another file?"
            )

    def _check_roles(self, roles: Roles) -> None:
        payloads = self.classifier.memory_.entries.payloads
        payload = (roles.payload or ()) if payloads is not None else ()
        for name in (roles.group, roles.sample_weight, roles.subject, *payload):
            if name:
                check_column(self.source, name)

    def _metadata(self, chunk: Chunk, roles: Roles) -> dict[str, Any]:
        has_payloads = self.classifier.memory_.entries.payloads is not None
        return {
            "ids": self._ids(chunk, roles.id),
            "payloads": roles.read_payloads(self.source, chunk) if has_payloads else None,
            **roles.read_metadata(chunk),
        }

    def _ids(self, chunk: Chunk, column: str) -> Any:
        """Ids from the id column of the model; None lets the memory number the rows."""
        if not column:
            return None
        if column not in self.source.columns:
            raise InvalidInputError(
                f"{self.source.path} must have the id column {column!r} of this model."
            )
        ids = columns.read_ids(chunk, column)
        has_text_ids = self.classifier.memory_.entries.ids.dtype == object
        return [str(name) for name in ids.tolist()] if has_text_ids else ids


class TableQueries(Queries):
    """Columns by name, or vectors; columns that the classifier does not know are ignored."""

    def check_source(self) -> None:
        if self.source.kind == "images":
            raise InvalidInputError(
                f"{self.source.path} holds images; this model was not fitted on images."
            )
        names = getattr(self.classifier, "feature_names_in_", None)
        self._names = None if names is None else [str(name) for name in names]
        table = getattr(self.classifier.encoder_, "table_", self.classifier.encoder_)
        self._columns = {c.name: c for c in getattr(table, "columns_", [])}
        if self.source.kind == "vectors" or self._names is None:
            self._check_width()
            return
        needed = list(self._columns) or self._names
        absent = [name for name in needed if name not in self.source.columns]
        if absent:
            if absent[0] in self.source.unusable:
                raise InvalidInputError(self.source.unusable[absent[0]])
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            raise InvalidInputError(
                f"{self.source.path} must have the columns of `fit`; missing: "
                f"{', '.join(repr(name) for name in absent[:3])}{more}.{self._header_hint(absent)}"
            )

    def _header_hint(self, absent: list[str]) -> str:
        if not self.source.has_header:
            return (
                " Without a header, columns are matched by position. Leave the place of the target "
                "empty, or fit the model with a header."
            )
        if all(NUMBERED.fullmatch(name) for name in absent):
            return " The model was fitted with --no-header. Does this file have no header either?"
        return ""

    def _check_width(self) -> None:
        width = self.classifier.n_features_in_
        first = next(iter(self.source.chunks(1)), None)
        vectors = None if first is None else first.items
        found = len(self._features()) if vectors is None else vectors.shape[1]
        if found != width and first is not None:
            raise InvalidInputError(
                f"The rows of {self.source.path} must have {width} columns, as in `fit`, they have "
                f"{found}."
            )

    def rows(self, chunk: Chunk) -> Any:
        if chunk.items is not None:
            vectors = self._vectors(chunk)
            return vectors if self._names is None else pd.DataFrame(vectors, columns=self._names)
        wanted = self._features() if self._names is None else self._names
        table = pd.DataFrame({name: self._column(chunk, name) for name in wanted})
        if not self._columns:
            columns.refuse_missing_values(chunk, table)
        return table if self._names is not None else table.to_numpy(dtype=np.float64)

    def _column(self, chunk: Chunk, name: str) -> pd.Series[Any]:
        if name not in chunk.table.columns:  # constant in training, so the encoder ignores it
            return pd.Series([None] * len(chunk), dtype=object)
        column = chunk.table[name]
        known = self._columns.get(name)
        if hasattr(known, "categories"):
            return column.astype(object).where(column.notna(), None) if chunk.is_text else column
        if self._columns and known is None:
            return column
        if getattr(known, "kind", "number") == "date":
            return parse_column(chunk, name, "dates") if chunk.is_text else column
        is_number = pd.api.types.is_numeric_dtype(column)
        numbers = column if is_number else parse_column(chunk, name, "numbers")
        columns.refuse_infinite(chunk, name, numbers)
        return numbers

    def _features(self) -> list[str]:
        """The columns of a table for a classifier that was fitted on vectors."""
        roles = {self.notes.get("target", ""), self.notes.get("id_column", "")}
        return [name for name in self.source.columns if name not in roles]

    def _vectors(self, chunk: Chunk) -> NDArray[Any]:
        vectors = np.asarray(chunk.items)
        if vectors.dtype.kind not in "iufb":
            raise InvalidInputError(
                f"The vectors of {self.source.path} must be numbers, they are {vectors.dtype}."
            )
        numbers = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)
        wrong = ~np.isfinite(numbers).all(axis=1)
        if wrong.any():
            place = chunk.place(int(wrong.argmax()))
            raise InvalidInputError(f"Vectors must be finite; {place} of the file is not.")
        return numbers


class TextQueries(Queries):
    """The column of texts; other columns are ignored."""

    def check_source(self) -> None:
        names = getattr(self.classifier, "feature_names_in_", None)
        known = self.source.columns
        if self.source.kind != "table" or (names is None and len(known) > 1):
            raise InvalidInputError(
                f"This model reads texts: {self.source.path} must be a table with a text column."
            )
        self._column = check_column(self.source, known[0] if names is None else str(names[0]))

    def contents(self, chunk: Chunk) -> list[Any]:
        return chunk.table[self._column].tolist()

    def rows(self, chunk: Chunk) -> pd.DataFrame:
        return pd.DataFrame({self._column: columns.read_texts(chunk, self._column)})


class ImageQueries(Queries):
    """Arrays or paths of images, unchanged."""

    def check_source(self) -> None:
        if self.source.kind != "images":
            raise InvalidInputError(
                f"This model reads images: {self.source.path} must be a folder of images, or an "
                "NPZ file with uint8 arrays of shape (n, H, W) or (n, H, W, 3)."
            )

    def rows(self, chunk: Chunk) -> NDArray[Any]:
        assert chunk.items is not None
        return chunk.items
