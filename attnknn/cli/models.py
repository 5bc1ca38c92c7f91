"""The model and the rows that most commands begin with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnknn.cli.files import Part, Source, open_rows
from attnknn.cli.queries import Queries
from attnknn.cli.query_images import QueryImages
from attnknn.cli.query_rows import QueryRows
from attnknn.cli.query_texts import QueryTexts
from attnknn.encoders import Encoder, ImageEncoder
from attnknn.encoders.text import TextRows
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


@dataclass(frozen=True)
class Asked:
    """A stored classifier and the rows it is asked about."""

    classifier: AttnKNNClassifier
    queries: Queries

    def parts(self) -> Iterator[tuple[Part, Any]]:
        """Each part of the file with its rows as the classifier takes them."""
        n_rows = 0
        for part in self.queries.source.parts():
            n_rows += len(part)
            if len(part):
                yield part, self.queries.rows(part)
        if not n_rows:
            raise InvalidInputError(f"{self.queries.source.path} must have rows, it has none.")

    def names(self, part: Part) -> tuple[str, list[Any]]:
        """What the rows of a part are called: by their id column, or by number."""
        column = self.queries.id_column
        if column is None:
            return "row", list(range(part.first, part.first + len(part)))
        return column, part.table[column].tolist()


def ask(model: Path, rows: Path, separator: str | None = None) -> Asked:
    """Load the classifier and open the file, a text file with this separator."""
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage import load_notes

    source = open_rows(rows, separator=separator, column=lambda: load_notes(model).get("text"))
    return asking(AttnKNNClassifier.load(model), load_notes(model), source)


def asking(classifier: AttnKNNClassifier, notes: dict[str, str], source: Source) -> Asked:
    """The same for a classifier that is loaded, with its notes."""
    return Asked(classifier, _kind(classifier.encoder_)(source, classifier, notes))


def _kind(encoder: Encoder) -> type[Queries]:
    """What an encoder reads."""
    if isinstance(encoder, TextRows):
        return QueryTexts
    return QueryImages if isinstance(encoder, ImageEncoder) else QueryRows
