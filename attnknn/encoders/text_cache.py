"""The cache of text embeddings: one SQLite file in the user's cache folder, by content hash."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnknn._cache import cache_folder
from attnknn.errors import CacheError
from attnknn.records import Booleans

Vectors = NDArray[np.float32]
WAIT = 60.0  # seconds for another process to finish writing
TABLE = """
create table if not exists embeddings (
    text blob not null, model blob not null, vector blob not null, primary key (text, model)
) without rowid
"""


def text_cache_file() -> Path:
    """Locate the cache of text embeddings, which `TextEncoder(cache=True)` uses.

    Returns
    -------
    Path
        The SQLite file, which may not exist yet.

    Examples
    --------
    >>> text_cache_file().name
    'text-embeddings.sqlite'
    """
    return cache_folder() / "text-embeddings.sqlite"


def forget_texts(texts: Iterable[str]) -> int:
    """Erase the cached embeddings of texts, for all models.

    Afterward the file holds neither the embeddings nor the hashes of the texts: freed space is
    overwritten and the file is rewritten.

    Parameters
    ----------
    texts : iterable of str
        The texts.

    Returns
    -------
    int
        Number of erased embeddings.

    Examples
    --------
    >>> forget_texts([])
    0
    """
    keys: list[tuple[bytes, ...]] = [(text_key(text),) for text in dict.fromkeys(texts)]
    return _erase("delete from embeddings where text = ?", keys) if keys else 0


def clear_text_cache() -> int:
    """Erase all cached embeddings of texts.

    Returns
    -------
    int
        Number of erased embeddings.

    Examples
    --------
    >>> clear_text_cache()  # doctest: +SKIP
    0
    """
    return _erase("delete from embeddings", [()])


def text_key(text: str) -> bytes:
    """The content hash under which a text's embeddings are stored."""
    return hashlib.sha256(text.encode("utf-8")).digest()


class TextCache:
    """The cached embeddings of one model.

    The file is opened for each call and closed again: nothing to pickle, and other processes wait
    for milliseconds. Writes are atomic by SQLite's rollback journal, which unlike its write-ahead
    log leaves no second file with erased rows and works on network folders.

    `fingerprint` is the sha256 of the model, in hexadecimal.
    """

    def __init__(self, fingerprint: str) -> None:
        self._model = bytes.fromhex(fingerprint)

    def find(self, texts: list[str]) -> dict[str, Vectors]:
        """The embeddings of those texts that have one."""
        found: dict[str, Vectors] = {}
        if not texts or not text_cache_file().exists():
            return found
        query = "select vector from embeddings where text = ? and model = ?"
        with opened_cache(text_cache_file(), TABLE) as database:
            for text in texts:
                row = database.execute(query, (text_key(text), self._model)).fetchone()
                if row is not None:
                    found[text] = np.frombuffer(row[0], dtype="<f4").astype(np.float32)
        return found

    def erase(self, is_erased: Callable[[Vectors], Booleans]) -> int:
        """Erase the embeddings for which `is_erased` is True; return their number."""
        if not text_cache_file().exists():
            return 0
        query = "select text, vector from embeddings where model = ?"
        with opened_cache(text_cache_file(), TABLE) as database:
            found = database.execute(query, (self._model,)).fetchall()
        if not found:
            return 0
        vectors = np.stack([np.frombuffer(blob, dtype="<f4") for _, blob in found])
        keys = [row[:1] for row, gone in zip(found, is_erased(vectors), strict=True) if gone]
        return _erase("delete from embeddings where text = ?", keys) if keys else 0

    def store(self, texts: list[str], vectors: Vectors) -> None:
        """Store one embedding per text."""
        blobs = [vector.astype("<f4").tobytes() for vector in vectors]
        rows = [(text_key(t), self._model, b) for t, b in zip(texts, blobs, strict=True)]
        with opened_cache(text_cache_file(), TABLE) as database, database:
            database.executemany("insert or replace into embeddings values (?, ?, ?)", rows)


def _erase(statement: str, keys: list[tuple[bytes, ...]]) -> int:
    return erase_from(text_cache_file(), TABLE, statement, keys)


def erase_from(file: Path, table: str, statement: str, keys: list[tuple[bytes, ...]]) -> int:
    """Delete rows of a cache, if there is one, and leave no trace of them in its file."""
    if not file.exists():
        return 0
    with opened_cache(file, table) as database:
        with database:
            n_erased = database.executemany(statement, keys).rowcount
        # Pages that were split while the table grew may hold copies that `delete` does not see.
        # Also if nothing was deleted: an earlier call may have been stopped between the two.
        database.execute("vacuum")
    return n_erased


@contextmanager
def opened_cache(file: Path, table: str) -> Iterator[sqlite3.Connection]:
    """The database of a cache, with the table that `table` creates."""
    try:
        _make_private(file)
        with closing(sqlite3.connect(file, timeout=WAIT)) as database:
            database.execute("pragma secure_delete = on")
            database.execute(table)
            yield database
    except (sqlite3.Error, OSError) as error:
        raise CacheError(
            f"The cache of embeddings {file} cannot be used: {error}. If it is damaged, "
            "delete it; or use `cache=False`."
        ) from error


def _make_private(file: Path) -> None:
    """Create the file readable by this user only: embeddings reveal much about their rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
