"""What every kind of query shares: a file, the classifier it is for, and who names its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnknn.cli.files import Part, Source

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


class Queries:
    """The parts of a file as a stored classifier takes them.

    Parameters
    ----------
    notes : what `fit` noted beside the classifier: its target, id column and text column
    """

    def __init__(
        self, source: Source, classifier: AttnKNNClassifier, notes: dict[str, str]
    ) -> None:
        self.source, self.classifier, self.notes = source, classifier, notes

    @property
    def id_column(self) -> str | None:
        """The column that names the rows, if the file has it."""
        name = self.notes.get("id_column", "")
        return name if name in self.source.columns else self.source.default_id

    def rows(self, part: Part) -> Any:
        """What `predict_proba` takes; rows can be chosen by `iloc` or by places."""
        raise NotImplementedError
