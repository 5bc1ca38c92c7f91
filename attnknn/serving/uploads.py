"""Files that clients sent: parsed once by the strict readers, and kept in memory for a while."""

from __future__ import annotations

import math
import re
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn.cli.rows import Source, check_column, open_rows
from attnknn.cli.rows.columns import read_labels
from attnknn.cli.rows.memory_bound import bytes_of, limited_memory
from attnknn.cli.rows.queries import Queries, queries_for
from attnknn.errors import AttnKNNError, InvalidInputError
from attnknn.insight import Pool
from attnknn.serving.errors import Refusal
from attnknn.serving.rows import join_rows, kind_of, take_rows, text_column
from attnknn.serving.schemas import FileInfo
from attnknn.serving.state import State

MAX_FILES = 20
MAX_ROWS = 200_000
MAX_AGE = 3600.0  # seconds without use
MEMORY_FACTOR = 16  # bytes in memory for each byte of the largest file
N_PREVIEWED = 5
ENDINGS = re.compile(r"\.(csv|tsv|txt|jsonl|ndjson|parquet|pq|npz)(\.gz)?$", re.IGNORECASE)


@dataclass(eq=False)
class UploadedFile:
    """The rows of a file.

    Parameters
    ----------
    rows : the argument of `predict_proba`
    table : the named columns, as they are in the file
    labels : what the label column holds, or None; the model need not know them
    """

    id: str
    name: str
    columns: list[str]
    label_column: str | None
    rows: Any
    table: pd.DataFrame
    labels: NDArray[Any] | None
    is_texts: bool
    n_bytes: int
    used_at: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def pool(self) -> Pool:
        """The rows, with what suggestions keep from call to call."""
        return Pool(self.rows)

    def content(self, row: int) -> Any:
        """A row as JSON, as the routes take it."""
        some = take_rows(self.rows, [row])
        if self.is_texts:
            return some.iloc[0, 0] if isinstance(some, pd.DataFrame) else some[0]
        if isinstance(some, pd.DataFrame):
            return {str(name): as_json(some[name].iloc[0]) for name in some.columns}
        if some.dtype.kind in "iuf" and some.ndim == 2:
            return some[0].tolist()
        return {"image": image_text(some[0])}

    def contents(self, rows: Any) -> list[Any]:
        """Several rows as JSON."""
        return [self.content(int(row)) for row in rows]

    def info(self) -> FileInfo:
        """What clients see of the file."""
        age = time.monotonic() - self.used_at
        return FileInfo(
            id=self.id,
            name=self.name,
            n_rows=len(self),
            columns=self.columns,
            label_column=self.label_column,
            has_labels=self.labels is not None,
            expires_in=round(max(0.0, MAX_AGE - age), 1),
            preview=self.contents(range(min(N_PREVIEWED, len(self)))),
        )


class Uploads:
    """The files of a server.

    Parameters
    ----------
    max_bytes : size of the largest file
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_memory = MEMORY_FACTOR * max_bytes
        self._files: OrderedDict[str, UploadedFile] = OrderedDict()
        self._lock = threading.Lock()
        self._parsing = threading.Lock()  # one at a time: parsing needs memory

    def add(
        self, state: State, name: str, content: bytes, label_column: str | None
    ) -> UploadedFile:
        """Parse a file for a model, and keep it; the oldest one goes if there are too many."""
        shown = " ".join(name.split())[:200]
        ending = ENDINGS.search(shown)
        if ending is None:
            raise InvalidInputError(
                "The name of a file must end with .csv, .tsv, .txt, .jsonl, .parquet or .npz, "
                f"got {shown[-40:]!r}."
            )
        with self._parsing, tempfile.TemporaryDirectory(prefix="attnknn-") as folder:
            path = Path(folder) / f"file{ending[0].lower()}"
            path.write_bytes(content)
            try:
                file = self._parse(state, path, shown, label_column)
            except AttnKNNError as error:
                message = str(error).replace(str(path), shown)
                raise type(error)(message) from error
        with self._lock:
            self._files[file.id] = file
            while len(self._files) > MAX_FILES or (
                len(self._files) > 1
                and sum(one.n_bytes for one in self._files.values()) > self._max_memory
            ):
                self._files.popitem(last=False)
        return file

    def find(self, name: str) -> UploadedFile:
        """The file with an id, which is then used last."""
        with self._lock:
            file = self._files.get(name)
            if file is None:
                raise Refusal(
                    404, "UnknownFileError", "There is no file with this id; it may have expired."
                )
            file.used_at = time.monotonic()
            self._files.move_to_end(name)
            return file

    def list(self) -> list[UploadedFile]:
        """All files, the one that was used last first."""
        with self._lock:
            return list(reversed(self._files.values()))

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.find(name)
        with self._lock:
            self._files.pop(name, None)

    def forget_old(self) -> None:
        """Remove files that nobody used for an hour."""
        with self._lock:
            limit = time.monotonic() - MAX_AGE
            for name in [key for key, file in self._files.items() if file.used_at < limit]:
                del self._files[name]

    def close(self) -> None:
        """Remove all files."""
        with self._lock:
            self._files.clear()

    def _parse(self, state: State, path: Path, name: str, given: str | None) -> UploadedFile:
        with limited_memory(self._max_memory):
            source = open_rows(path, text_column=lambda: text_column(state))
            queries = queries_for(state.classifier, state.notes, source)
            column = check_column(source, given) if given else _usual_label_column(source, state)
            parts = _read(queries, column, name, may_be_missing=not given)
        return UploadedFile(
            id=secrets.token_hex(8),
            name=name,
            columns=list(source.columns),
            label_column=column if parts.labels else None,
            rows=join_rows(parts.rows),
            table=pd.concat(parts.tables, ignore_index=True),
            labels=np.concatenate(parts.labels) if parts.labels else None,
            is_texts=kind_of(state.classifier) == "texts",
            n_bytes=parts.n_bytes,
        )


@dataclass
class _Parts:
    rows: list[Any] = field(default_factory=list)
    tables: list[pd.DataFrame] = field(default_factory=list)
    labels: list[NDArray[Any]] = field(default_factory=list)
    n_bytes: int = 0


def _read(queries: Queries, label_column: str | None, name: str, *, may_be_missing: bool) -> _Parts:
    """All rows; no labels if some are missing in a column that nobody named."""
    parts, n_rows = _Parts(), 0
    for chunk, X in queries.chunks():
        n_rows += len(chunk)
        if n_rows > MAX_ROWS:
            raise InvalidInputError(f"Files may have at most {MAX_ROWS:,} rows, {name} has more.")
        parts.rows.append(X)
        parts.tables.append(chunk.table)
        parts.n_bytes += 2 * bytes_of(chunk)
        if label_column is not None and may_be_missing:
            label_column = None if chunk.table[label_column].isna().any() else label_column
        if label_column is not None:
            parts.labels.append(read_labels(chunk, label_column))
    if label_column is None:
        parts.labels = []
    return parts


def _usual_label_column(source: Source, state: State) -> str | None:
    """The column with the name of the target of the model, or what the format calls labels."""
    usual = (state.notes.get("target"), source.default_target)
    return next((name for name in usual if name and name in source.columns), None)


def as_json(value: Any) -> Any:
    """A cell of a table as JSON.

    >>> as_json(np.float64(2.5)), as_json(np.nan), as_json("a")
    (2.5, None, 'a')
    """
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)


def as_json_value(value: Any) -> Any:
    """A payload as JSON: what JSON has no word for becomes text."""
    if isinstance(value, dict):
        return {str(key): as_json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_value(one) for one in value]
    return as_json(value)


def image_text(pixels: Any) -> str:
    """An image as the base64 of a PNG file."""
    import base64
    import io

    from attnknn._optional import require

    require("PIL", extra="images", needed_by="Showing images")
    from PIL import Image

    image = pixels
    if isinstance(pixels, np.ndarray):
        image = Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()
