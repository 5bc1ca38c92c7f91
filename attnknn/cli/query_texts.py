"""Rows of a file become the texts that a stored classifier takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from attnknn.cli.columns import texts_of
from attnknn.cli.files import Part, Source
from attnknn.cli.files.base import check_column
from attnknn.cli.queries import Queries
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


class QueryTexts(Queries):
    """The column of texts; other columns are left out."""

    def __init__(
        self, source: Source, classifier: AttnKNNClassifier, notes: dict[str, str]
    ) -> None:
        super().__init__(source, classifier, notes)
        names = getattr(classifier, "feature_names_in_", None)
        if source.kind != "table" or (names is None and len(source.columns) > 1):
            raise InvalidInputError(
                f"This model reads texts: {source.path} must be a table with a column of them."
            )
        self._column = check_column(source, source.columns[0] if names is None else str(names[0]))

    def rows(self, part: Part) -> pd.DataFrame:
        return pd.DataFrame({self._column: texts_of(part, self._column)})
