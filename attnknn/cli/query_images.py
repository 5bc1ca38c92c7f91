"""Images of a folder or an NPZ file become what a stored classifier takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from attnknn.cli.files import Part, Source
from attnknn.cli.queries import Queries
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier


class QueryImages(Queries):
    """Arrays or paths of images, as they are."""

    def __init__(
        self, source: Source, classifier: AttnKNNClassifier, notes: dict[str, str]
    ) -> None:
        super().__init__(source, classifier, notes)
        if source.kind != "images":
            raise InvalidInputError(
                f"This model reads images: {source.path} must be a folder of them, or an NPZ file "
                "with arrays of uint8, (n, H, W) or (n, H, W, 3)."
            )

    def rows(self, part: Part) -> NDArray[Any]:
        assert part.items is not None
        return part.items
