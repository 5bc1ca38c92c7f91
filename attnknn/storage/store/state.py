"""Read the model in a store as it was after one of its edits."""

from __future__ import annotations

import io
import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnknn._stored import Fields
from attnknn.storage.files import ModelFolder, shape_fits
from attnknn.storage.folder import STORE

IS_VALID = "since <= :edit and (until is null or until > :edit)"
ROW_COLUMNS = "id, grp, subject, payload, embedding"
VERSION_COLUMNS = "label, sample_weight, decay, held_out"
TRUST = "trust.npy"


def digest_of(*values: object) -> int:
    """A checksum of values that SQLite returns as they were written.

    >>> digest_of(3, "ant", b"x") == digest_of(3, "ant", b"x") != digest_of(3, "bee", b"x")
    True
    """
    short = [zlib.crc32(value) if isinstance(value, bytes) else value for value in values]
    return zlib.crc32(repr(short).encode("utf-8", "backslashreplace"))


def trust_to_bytes(trust: NDArray[np.float64]) -> bytes:
    """Trust with a checksum."""
    content = trust.astype("<f8").tobytes()
    return content + zlib.crc32(content).to_bytes(4, "little")


def trust_from_bytes(content: bytes, n: int) -> NDArray[np.float64] | None:
    """Trust of `n` entries; None if the bytes are not that."""
    if len(content) != 8 * n + 4:
        return None
    trust = np.frombuffer(content[:-4], dtype="<f8").astype(np.float64)
    return trust if trust_to_bytes(trust) == content else None


class StoredModel(ModelFolder):
    """Returns what a folder of files would, from the tables of a store.

    Parameters
    ----------
    database : within a transaction, so that everything is read from one state
    edit : the state after this edit
    """

    def __init__(self, path: Path, database: sqlite3.Connection, edit: int) -> None:
        self.path, self.edit = path, edit
        self._contents = self._read_parts(database)
        self._files = {
            name: {"bytes": len(content), "sha256": sha256}
            for name, (content, sha256) in self._contents.items()
        }
        self._next_id, n_entries = self._read_log(database)
        self._read_rows(database, n_entries)
        self._trust = self._read_trust(database)

    @property
    def has_trust(self) -> bool:
        """Whether trust is cached for this state; it can be computed from the entries."""
        return self._trust is not None

    def settings(self) -> dict[str, Any]:
        """The settings, with the next id as of this edit."""
        settings = super().settings()
        if isinstance(settings.get("memory"), dict):
            settings["memory"]["least_next_id"] = self._next_id
        return settings

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """A column of the entries, or an array of the parts."""
        array = self._trust if name == "trust" else self._columns.get(name)
        if array is None:
            return super().array(name, dtype, shape)
        if not shape_fits(array.shape, shape) or array.dtype != dtype:
            raise self.refuse(f"the {name} in {STORE} have the wrong type or shape")
        return array

    def lines(self, name: str, n_lines: int) -> list[Any]:  # noqa: ARG002  (the store knows)
        """Ids, subjects or payloads, one for each entry."""
        if name != "payloads":
            return self._texts[name]
        texts = (text or "null" for text in self._texts[name])
        return [self._parse_json(text.encode(), "a payload", allow_nan=True) for text in texts]

    def _open(self, name: str) -> BinaryIO:
        if name not in self._contents:
            raise self.refuse(f"{STORE} does not hold {name}")
        return io.BytesIO(self._contents[name][0])

    def _read_parts(self, database: sqlite3.Connection) -> dict[str, tuple[bytes, str]]:
        query = f"select name, content, sha256 from parts where {IS_VALID}"
        found = database.execute(query, {"edit": self.edit}).fetchall()
        if not all(isinstance(row[1], bytes) and isinstance(row[2], str) for row in found):
            raise self.refuse(f"{STORE} holds parts that are not bytes")
        if len(found) > len({row[0] for row in found}):
            raise self.refuse(f"{STORE} holds two versions of a part")
        return {name: (content, sha256) for name, content, sha256 in found}

    def _read_log(self, database: sqlite3.Connection) -> tuple[int, int]:
        query = (
            "select max(max(since), coalesce(max(until), 0)) > (select max(edit) from log) from {}"
        )
        if any(
            database.execute(query.format(name)).fetchone()[0] for name in ("versions", "parts")
        ):
            raise self.refuse(f"the last edits are missing in the log of {STORE}")
        query = "select count(*) = max(edit) + 1 and min(edit) = 0 from log"
        if not database.execute(query).fetchone()[0]:
            raise self.refuse(f"a line is missing in the log of {STORE}")
        query = "select next_id, n_entries from log where edit = ?"
        found = database.execute(query, (self.edit,)).fetchone()
        if found is None:
            raise self.refuse(f"there is no edit {self.edit}")
        return int(found[0]), int(found[1])

    def _read_rows(self, database: sqlite3.Connection, n_entries: int) -> None:
        query = (
            f"select seq, {ROW_COLUMNS}, rows.digest, {VERSION_COLUMNS}, versions.digest "
            f"from versions join rows using (seq) where {IS_VALID} order by seq"
        )
        found: list[tuple[Any, ...]] = []
        for row in database.execute(query, {"edit": self.edit}):
            # Two versions of one entry could repeat its embedding without end.
            if len(found) == n_entries or (found and row[0] == found[-1][0]):
                raise self.refuse(f"{STORE} holds more entries than were written ({n_entries})")
            found.append(row)
        if len(found) < n_entries:
            raise self.refuse(f"{STORE} holds {len(found)} entries, and {n_entries} were written")
        if any(map(_is_damaged, found)):
            raise self.refuse(f"an entry in {STORE} is not what was written (its checksum differs)")
        columns = list(zip(*found, strict=True)) if found else [()] * 12
        seqs, ids, groups, subjects, payloads, embeddings, _, *versions = columns
        labels, sample_weight, decay, held_out, _ = versions
        self.seqs = np.array(seqs, dtype=np.int64)
        self._columns: dict[str, NDArray[Any]] = {
            "embeddings": self._embeddings(embeddings),
            "labels": self._codes(labels),
            "groups": np.array(groups, dtype=np.int64),
            "sample_weight": np.array(sample_weight, dtype=np.float64),
            "decay": np.array(decay, dtype=np.float64),
            "held_out": np.array(held_out, dtype=np.bool_),
        }
        self._texts: dict[str, list[Any]] = {
            "subjects": list(subjects),
            "payloads": list(payloads),
        }
        if self._memory_settings().flag("has_text_ids"):
            self._texts["ids"] = list(ids)
        else:
            self._columns["ids"] = np.array(ids, dtype=np.int64)

    def _memory_settings(self) -> Fields:
        return Fields(self.settings(), "settings").of("memory")

    def _embeddings(self, blobs: tuple[Any, ...]) -> NDArray[np.float32]:
        if not blobs:
            width = self._memory_settings().integer("width")
            return np.zeros((0, width), dtype=np.float32)
        widths = {len(blob) for blob in blobs}
        if len(widths) != 1 or min(widths) % 4:
            raise self.refuse(f"the embeddings in {STORE} have different lengths")
        flat = np.frombuffer(b"".join(blobs), dtype="<f4").astype(np.float32)
        return flat.reshape(len(blobs), -1)

    def _codes(self, labels: tuple[Any, ...]) -> NDArray[np.int64]:
        classes = Fields(super().settings(), "settings").of("classes").anything("values")
        if not isinstance(classes, list):
            raise self.refuse("the stored classes must be a list")
        code = {json.dumps(label): position for position, label in enumerate(classes)}
        try:
            return np.array([code[label] for label in labels], dtype=np.int64)
        except KeyError as error:
            raise self.refuse(
                f"an entry in {STORE} has the label {error}, which is not a class"
            ) from None

    def _read_trust(self, database: sqlite3.Connection) -> NDArray[np.float64] | None:
        query = "select content from cache where name = ? and edit = ?"
        found = database.execute(query, (TRUST, self.edit)).fetchone()
        if found is None or not isinstance(found[0], bytes):
            return None
        return trust_from_bytes(found[0], len(self.seqs))


def _is_damaged(found: tuple[Any, ...]) -> bool:
    seq, row, version = found[0], found[1:7], found[7:]
    has_types = isinstance(row[4], bytes) and isinstance(row[3], str | None)
    return (
        not has_types
        or digest_of(seq, *row[:-1]) != row[-1]
        or digest_of(seq, *version[:-1]) != version[-1]
    )
