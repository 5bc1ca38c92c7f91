"""Rows of a request as the model reads them, checked as strictly as rows of files."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn._optional import require
from attnknn.classifier import AttnKNNClassifier
from attnknn.cli.rows import Chunk, Source
from attnknn.cli.rows.queries import queries_for
from attnknn.encoders import ImageEncoder, UnionEncoder
from attnknn.encoders.text import TextRows
from attnknn.errors import InvalidInputError
from attnknn.serving.schemas import Image, Kind
from attnknn.serving.state import State

FORMATS = ("PNG", "JPEG")
MAX_PIXELS = 1 << 25  # of one image
UNREADABLE = (binascii.Error, OSError, SyntaxError, ValueError, Warning)
EXPECTED: dict[Kind, str] = {
    "table": "an object of columns and values",
    "texts": "a string",
    "vectors": "a list of numbers",
    "images": 'an object {"image": base64 of a PNG or JPEG file}',
}


def kind_of(classifier: AttnKNNClassifier) -> Kind:
    """What the rows of a classifier are."""
    encoder = classifier.encoder_
    while isinstance(encoder, UnionEncoder):
        encoder = encoder.encoders_[0][1]
    if isinstance(encoder, TextRows):
        return "texts"
    if isinstance(encoder, ImageEncoder):
        return "images"
    return "vectors" if getattr(classifier, "feature_names_in_", None) is None else "table"


def text_column(state: State) -> str:
    """The name of the column of texts; "text" if the model was fitted on a list."""
    names = getattr(state.classifier, "feature_names_in_", None)
    return "text" if names is None else str(names[0])


def read_rows(state: State, rows: Sequence[Any]) -> Any:
    """Rows of a request as the argument of `predict_proba`.

    Parameters
    ----------
    state : whose model reads the rows
    rows : as in `schemas.Rows`
    """
    kind = kind_of(state.classifier)
    if not rows:
        raise InvalidInputError("`rows` must hold at least one row, it is empty.")
    for place, row in enumerate(rows):
        if not _is_of(kind, row):
            raise InvalidInputError(
                f"Rows of this model must be {EXPECTED[kind]}, row {place} is {_shown(row)}."
            )
    if kind == "texts":
        return _texts(rows)
    source = RequestSource(state, kind, rows)
    chunk = next(iter(source.chunks()))
    return queries_for(state.classifier, state.notes, source).rows(chunk)


def _texts(rows: Sequence[str]) -> list[str]:
    for place, row in enumerate(rows):
        if not row.strip():
            raise InvalidInputError(f"Texts must not be blank, row {place} is.")
    return list(rows)


def _is_of(kind: Kind, row: Any) -> bool:
    expected: type = {"table": dict, "texts": str, "vectors": list, "images": Image}[kind]
    return isinstance(row, expected)


def _shown(row: Any) -> str:
    named: dict[type, str] = {str: "a string", list: "a list", dict: "an object", Image: "an image"}
    return named.get(type(row), type(row).__name__)


@dataclass(frozen=True)
class RequestChunk(Chunk):
    """Rows of a request; in messages they are counted from 0."""

    @property
    def is_text(self) -> bool:
        return True

    def place(self, row: int) -> str:
        return f"row {row}"


class RequestSource(Source):
    """The rows of a request as a source, so that the rules of files hold for them."""

    def __init__(self, state: State, kind: Kind, rows: Sequence[Any]) -> None:
        self.path = Path("The request")
        self._rows, self._kind = rows, kind
        self.kind = "table" if kind == "texts" else kind
        self.columns = []
        if kind == "table":
            self.columns = list(dict.fromkeys(name for row in rows for name in row))
        elif kind == "vectors":
            self._check_width(state)

    def chunks(self, n_rows: int = 0) -> Iterator[Chunk]:  # noqa: ARG002  (there is one chunk)
        """All rows."""
        table = pd.DataFrame(index=range(len(self._rows)))
        if self._kind == "table":
            columns = {
                name: _column([row.get(name) for row in self._rows]) for name in self.columns
            }
            table = pd.DataFrame(columns, index=range(len(self._rows)))
        yield RequestChunk(0, table, self._items())

    def _items(self) -> NDArray[Any] | None:
        if self._kind == "vectors":
            return np.array(self._rows, dtype=np.float64)
        if self._kind == "images":
            items = np.empty(len(self._rows), dtype=object)
            items[:] = [open_image(row.image, place) for place, row in enumerate(self._rows)]
            return items
        return None

    def _check_width(self, state: State) -> None:
        width = state.classifier.n_features_in_
        for place, row in enumerate(self._rows):
            if len(row) != width:
                raise InvalidInputError(
                    f"Rows of this model must have {width} numbers, row {place} has {len(row)}."
                )


def _column(cells: list[Any]) -> pd.Series[Any]:
    """Numbers as numbers; anything else as the strings that a CSV file would have."""
    if all(cell is None or type(cell) in (int, float) for cell in cells):
        return pd.Series([np.nan if c is None else float(c) for c in cells], dtype=np.float64)
    return pd.Series([None if c is None else str(c).strip() or None for c in cells], dtype=object)


def open_image(text: str, place: int) -> Any:
    """The PIL image in the base64 of a PNG or JPEG file."""
    require("PIL", extra="images", needed_by="Reading images")
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        content = base64.b64decode(text.partition(",")[2] if text[:5] == "data:" else text)
        with warnings.catch_warnings():
            warnings.simplefilter("error", Pillow.DecompressionBombWarning)
            image = Pillow.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise InvalidInputError(
                f"Images must have at most {MAX_PIXELS:,} pixels, row {place} has "
                f"{image.width * image.height:,}."
            )
        image.load()
        return image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB")
    except (*UNREADABLE, UnidentifiedImageError, Pillow.DecompressionBombError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"Images must be PNG or JPEG files in base64, row {place} is not."
        ) from error


def join_rows(parts: Sequence[Any]) -> Any:
    """Several arguments of `predict_proba` as one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    if isinstance(parts[0], pd.DataFrame):
        return pd.concat(parts, ignore_index=True)
    return np.concatenate(parts)


def take_rows(X: Any, positions: Any) -> Any:
    """Some rows of an argument of `predict_proba`."""
    if isinstance(X, list):
        return [X[place] for place in positions]
    return X.iloc[positions] if isinstance(X, pd.DataFrame) else X[positions]
