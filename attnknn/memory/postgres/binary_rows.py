"""Entries in PostgreSQL's binary COPY format, as arrays without a Python object per row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.memory.entries import NOBODY, Entries
from attnknn.records import Integers

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
ROWS = 4096  # written at once
BYTES = 1 << 20  # parsed at once
# Fields in order: type, bytes. Each is preceded by its length.
COLUMNS = {
    "key": ">i8",
    "id": ">i8",
    "label": ">i4",
    "group": ">i8",
    "sample_weight": ">f8",
    "decay": ">f8",
    "held_out": "u1",
}
WRITTEN = {name: COLUMNS[name] for name in list(COLUMNS)[1:]} | {"added": ">i8"}


def _layout(fields: dict[str, str]) -> np.dtype[Any]:
    parts: list[tuple[str, str]] = [("n_fields", ">i2")]
    for name, kind in fields.items():
        parts += [(f"{name}_length", ">i4"), (name, kind)]
    return np.dtype(parts)


def read_columns(blocks: Iterator[Any]) -> dict[str, NDArray[Any]]:
    """The columns of a COPY TO, from its chunks of bytes.

    Parameters
    ----------
    blocks : iterator of bytes

    Returns
    -------
    dict of str to ndarray
        By the names in `COLUMNS`, in the byte order of the machine.
    """
    layout, parts = _layout(COLUMNS), []
    waiting: list[bytes] = []
    rest, n_waiting, n_skipped = b"", 0, len(HEADER)

    def parse() -> bytes:
        data = (rest + b"".join(waiting))[n_skipped:]
        whole = len(data) - len(data) % layout.itemsize
        parts.append(np.frombuffer(data[:whole], layout))
        return data[whole:]

    for block in blocks:
        waiting.append(bytes(block))
        n_waiting += len(block)
        if n_waiting > BYTES:
            rest, waiting, n_waiting, n_skipped = parse(), [], 0, 0
    parse()
    names = {name: np.dtype(kind).newbyteorder("=") for name, kind in COLUMNS.items()}
    return {
        name: np.concatenate([part[name].astype(kind) for part in parts])
        for name, kind in names.items()
    }


def rows_to_copy(entries: Entries, added: int) -> Iterator[bytes]:
    """The bytes of a COPY FROM of entries without texts, see `has_texts`.

    Parameters
    ----------
    entries : Entries
    added : int
        Number of the edit.

    Yields
    ------
    bytes
        Header, blocks of rows, and end.
    """
    yield HEADER
    for start in range(0, len(entries), ROWS):
        yield _block(entries.take(np.arange(start, min(start + ROWS, len(entries)))), added)
    yield END


def rows_with_texts(entries: Entries, added: int) -> Iterator[bytes]:
    """The same for entries with ids that are texts, with subjects or payloads."""
    yield HEADER
    size = _row_layout(entries.embeddings.shape[1], 3).itemsize
    for start in range(0, len(entries), ROWS):
        part = entries.take(np.arange(start, min(start + ROWS, len(entries))))
        numbers = _block(part, added, n_texts=3)
        texts = zip(*(map(_text_field, column) for column in _texts(part)), strict=True)
        yield b"".join(
            numbers[row * size : (row + 1) * size] + b"".join(fields)
            for row, fields in enumerate(texts)
        )
    yield END


def has_texts(entries: Entries) -> bool:
    """Whether entries have text columns, which are slower to write."""
    has_beside = entries.subjects is not None or entries.payloads is not None
    return entries.ids.dtype == object or has_beside


def _row_layout(width: int, n_texts: int) -> np.dtype[Any]:
    parts: list[Any] = [("row", _layout(WRITTEN))]
    vector = [("length", ">i4"), ("width", ">i2"), ("unused", ">i2"), ("vector", ">f4", (width,))]
    del n_texts  # texts follow the row and are of any length
    return np.dtype(parts + vector)


def _block(entries: Entries, added: int, n_texts: int = 0) -> bytes:
    width = entries.embeddings.shape[1]
    rows = np.zeros(len(entries), _row_layout(width, n_texts))
    numbers = rows["row"]
    has_numbers = entries.ids.dtype != object
    values: dict[str, Any] = {
        "id": entries.ids if has_numbers else 0,
        "label": entries.labels,
        "group": entries.groups,
        "sample_weight": entries.sample_weight,
        "decay": 1.0 if entries.decay is None else entries.decay,
        "held_out": entries.held_out,
        "added": added,
    }
    numbers["n_fields"] = len(WRITTEN) + 1 + n_texts
    for name, kind in WRITTEN.items():
        numbers[f"{name}_length"] = np.dtype(kind).itemsize
        numbers[name] = values[name]
    rows["length"], rows["width"], rows["vector"] = 4 + 4 * width, width, entries.embeddings
    return rows.tobytes()


def _texts(entries: Entries) -> tuple[list[Any], list[Any], list[Any]]:
    """Id, subject and payload of each entry as texts; None is missing."""
    nothing = [None] * len(entries)
    ids = entries.ids.tolist() if entries.ids.dtype == object else nothing
    subjects = nothing if entries.subjects is None else entries.subjects.tolist()
    payloads = (
        nothing
        if entries.payloads is None
        else [None if value is None else json.dumps(value) for value in entries.payloads.tolist()]
    )
    return ids, [None if name == NOBODY else name for name in subjects], payloads


def _text_field(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff\xff\xff"
    data = text.encode()
    return len(data).to_bytes(4, "big") + data


def as_columns(found: dict[str, NDArray[Any]]) -> tuple[Integers, dict[str, NDArray[Any]]]:
    """Keys, and the numeric columns by the names of `EntryColumns`."""
    columns = {
        "ids": found["id"],
        "labels": found["label"].astype(np.int64),
        "groups": found["group"],
        "sample_weight": found["sample_weight"],
        "decay": found["decay"],
        "held_out": found["held_out"].astype(bool),
    }
    return found["key"], columns
