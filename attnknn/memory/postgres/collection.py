"""One collection of entries in PostgreSQL: its states, its edits, and the search on the server."""

from __future__ import annotations

import json
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, MemoryServerError, UnknownOutcomeError
from attnknn.memory.distances import Vectors
from attnknn.memory.entries import NOBODY, Entries, EntryColumns
from attnknn.memory.postgres.binary_rows import (
    as_columns,
    has_texts,
    read_columns,
    rows_to_copy,
    rows_with_texts,
)
from attnknn.memory.postgres.connections import Connections, as_vectors
from attnknn.records import Floats, Integers

MAX_INDEXED_WIDTH = 2000  # of HNSW on `vector`
DISTANCES = {"euclidean": "<->", "cosine": "<->", "inner_product": "<#>"}
OPERATORS = {
    "euclidean": "vector_l2_ops",
    "cosine": "vector_l2_ops",
    "inner_product": "vector_ip_ops",
}


@dataclass(frozen=True)
class Description:
    """What the database says of a collection."""

    version: int
    metric: str
    width: int
    center: Floats | None
    has_text_ids: bool
    classes: list[str]
    max_length: float
    search_width: int | None  # `ef_search` of the HNSW index; None searches exactly
    reason: str


@dataclass(frozen=True)
class Found:
    """Candidates of a search: query, key, vector, and distance as the server computes it."""

    rows: Integers
    keys: Integers
    vectors: Vectors
    far: Floats


@dataclass(frozen=True)
class Edit:
    """What one commit writes."""

    added: Entries | None
    removed: Integers  # keys
    changed: Integers  # keys
    values: EntryColumns | None  # of the changed entries
    classes: list[str] | None  # what the label codes mean; None stores the codes

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self.added is None and not len(self.removed) and not len(self.changed)

    def stored(self, classes: list[str]) -> tuple[Edit, list[str]]:
        """The edit with codes as the database has them, and all classes, the new ones last."""
        if self.classes is None:
            return self, classes
        if not classes:  # the first classes: until now the codes were stored
            return self, self.classes
        known = dict(zip(classes, range(len(classes)), strict=True))
        codes = np.array([known.setdefault(text, len(known)) for text in self.classes])

        def moved(entries: Any) -> Any:
            return None if entries is None else replace(entries, labels=codes[entries.labels])

        return replace(self, added=moved(self.added), values=moved(self.values)), list(known)


class Collection:
    """The entries of one model in a database.

    Entries are never changed in place while somebody may read them: a forgotten one is marked with
    the number of the edit, so that every state can be read until `erase` deletes them.

    Parameters
    ----------
    connections : Connections
    number : int
    """

    def __init__(self, connections: Connections, number: int) -> None:
        self.connections, self.number = connections, number
        self.sql = connections.statements(number)
        self.max_length = 0.0  # of the vectors it was made with

    def __getstate__(self) -> tuple[Connections, int]:
        return self.connections, self.number

    def __setstate__(self, state: tuple[Connections, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # Making, finding and dropping

    @classmethod
    def made(
        cls, connections: Connections, entries: Entries, metric: str, center: Floats | None
    ) -> Collection:
        """Create a collection without a name, and load entries."""
        connections.prepare_schema()
        with connections.connection() as connection, connection.transaction():
            values = (
                metric,
                entries.embeddings.shape[1],
                None if center is None else center.tolist(),
                entries.ids.dtype == object,
            )
            sql = connections.statements()
            connection.execute("set local statement_timeout = 0")
            number = connection.execute(sql.create_collection(), values).fetchone()[0]
            made = cls(connections, number)
            connection.execute(made.sql.create_entries(entries.embeddings.shape[1]))
            made.copy_in(connection, entries, 1)
            connection.execute(made.sql.index_ids(are_texts=values[3]))
            length = _longest(entries.embeddings)
            connection.execute(made.sql.advance(), (1, [], length, number))
            made.max_length = length
        return made

    @classmethod
    def find(cls, connections: Connections, name: str) -> Collection:
        """The collection with a name."""
        number = cls.number_of(connections, name)
        if number is None:
            raise MemoryServerError(f"No model is called {name!r} in {connections.address}.")
        return cls(connections, number)

    @staticmethod
    def number_of(connections: Connections, name: str) -> int | None:
        """The number of the collection with a name, or None."""

        def look(connection: Any) -> Any:
            sql, schema = connections.statements(), connections.address.schema
            if not connection.execute(sql.has_schema(), (schema,)).fetchone()[0]:
                return None
            return connection.execute(sql.find_collection(), (name,)).fetchone()

        found = connections.read(look)
        return None if found is None else int(found[0])

    def drop_with(self, owner: object) -> None:
        """Drop the collection when `owner` is no longer in use: it has no name to find it by."""
        self._finalizer = weakref.finalize(owner, _drop, self.connections, self.number)

    def publish(self, name: str) -> None:
        """Give the collection its name; another one of that name is dropped."""
        with self.connections.connection() as connection, connection.transaction():
            connection.execute(self.sql.lock_schema(), (name,))
            rows = connection.execute(self.sql.take_name(), (name, self.number)).fetchall()
            connection.execute(self.sql.set_name(), (name, self.number))
            for (number,) in rows:
                other = self.connections.statements(number)
                connection.execute(other.drop_entries())
                connection.execute(other.forget_collection(), (number,))
        self._finalizer.detach()

    # Reading

    def describe(self) -> Description:
        """Version, metric and the like."""
        found = self.connections.read(
            lambda connection: connection.execute(self.sql.describe(), (self.number,)).fetchone()
        )
        if found is None:
            raise self._gone()
        center = None if found[3] is None else np.array(found[3])
        version, metric, width, _, *others = found
        return Description(version, metric, width, center, *others)

    def version(self) -> int:
        """Number of the latest edit."""
        found = self.connections.read(
            lambda connection: connection.execute(self.sql.version(), (self.number,)).fetchone()
        )
        if found is None:
            raise self._gone()
        return int(found[0])

    def columns(self, version: int, known: Description) -> tuple[Integers, EntryColumns]:
        """Keys and columns of the entries of a version."""

        def work(connection: Any) -> tuple[Integers, EntryColumns]:
            arguments = (version, version)
            return self._columns(connection, self.sql.columns(), arguments, known, only_new=False)

        return self.connections.read(work)

    def newer_columns(
        self, before: int, version: int, last_key: int, known: Description
    ) -> tuple[Integers, Integers, EntryColumns]:
        """Keys of all changed entries since a version; keys and columns of changed and new ones."""

        def work(connection: Any) -> tuple[Integers, Integers, EntryColumns]:
            arguments: tuple[Any, ...] = (self.number, before, version)
            rows = connection.execute(self.sql.touched(), arguments).fetchall()
            touched = np.array([row[0] for row in rows], dtype=np.int64)
            arguments = (version, version, touched.tolist(), last_key)
            found = self._columns(
                connection, self.sql.newer_columns(), arguments, known, only_new=True
            )
            return touched, *found

        return self.connections.read(work)

    def _columns(
        self, connection: Any, query: Any, arguments: Any, known: Description, *, only_new: bool
    ) -> tuple[Integers, EntryColumns]:
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read")
            with connection.cursor().copy(query, arguments) as copy:
                keys, columns = as_columns(read_columns(iter(copy)))
            has_subjects, has_payloads = connection.execute(self.sql.has_texts()).fetchone()
            if known.has_text_ids or has_subjects or has_payloads:
                rows = connection.execute(self.sql.texts(only_new=only_new), arguments).fetchall()
                ids, subjects, payloads = zip(*rows, strict=True) if rows else ((), (), ())
                if known.has_text_ids:
                    columns["ids"] = _objects(ids)
                if has_subjects:
                    columns["subjects"] = _objects([name or NOBODY for name in subjects])
                if has_payloads:
                    columns["payloads"] = _objects(
                        [None if text is None else json.loads(text) for text in payloads]
                    )
        if (columns["decay"] == 1.0).all():
            columns["decay"] = None  # type: ignore[assignment]
        return keys, EntryColumns(**columns)

    def vectors(self, keys: Integers, width: int) -> Vectors:
        """The vectors of entries with ascending keys."""
        if not len(keys):
            return np.zeros((0, width), dtype=np.float32)

        def work(connection: Any) -> Vectors:
            cursor = connection.cursor(binary=True)
            rows = cursor.execute(self.sql.vectors(), (keys.tolist(),)).fetchall()
            found = np.array([row[0] for row in rows], dtype=np.int64)
            vectors = as_vectors([row[1] for row in rows], width)
            if len(found) != len(keys):
                raise MemoryServerError(
                    "Some entries of this state were erased by another process. Open it again."
                )
            return vectors[np.argsort(found)]

        return self.connections.read(work)

    def nearest(
        self,
        queries: Vectors,
        version: int,
        metric: str,
        *,
        limit: int = 0,
        radii: Floats | None = None,
        hidden: Integers,
        own: tuple[Integers, Integers] | None = None,
        search_width: int | None = None,
    ) -> Found:
        """Candidates of each query: the `limit` nearest, or all within `radii` (B,)."""
        query = self.sql.nearest(
            DISTANCES[metric],
            has_hidden=bool(len(hidden)),
            excludes=own is not None,
            is_range=radii is not None,
        )
        arguments: dict[str, Any] = {
            "queries": list(queries),
            "version": version,
            "limit": limit,
            "hidden": hidden.tolist(),
        }
        if own is not None:
            arguments["own"], arguments["groups"] = own[0].tolist(), own[1].tolist()
        if radii is not None:
            arguments["radii"] = radii.tolist()

        def work(connection: Any) -> Found:
            _set_search(connection, search_width, limit)
            rows = (
                connection.cursor(binary=True).execute(query, arguments, prepare=False).fetchall()
            )
            if not rows:
                nothing = np.zeros(0, dtype=np.int64)
                return Found(nothing, nothing, queries[:0], np.zeros(0))
            row, keys, vectors, far = zip(*rows, strict=True)
            arrays = np.array(row, np.int64), np.array(keys, np.int64)
            return Found(*arrays, as_vectors(list(vectors), queries.shape[1]), np.array(far))

        return self.connections.read(work)

    # Writing

    def copy_in(self, connection: Any, entries: Entries, added: int) -> None:
        """Write entries, as the edit `added`."""
        is_plain = not has_texts(entries)
        statement = self.sql.insert() if is_plain else self.sql.insert_texts()
        blocks = rows_to_copy(entries, added) if is_plain else rows_with_texts(entries, added)
        with connection.cursor().copy(statement) as copy:
            for block in blocks:
                copy.write(block)

    def commit(self, edit: Edit) -> int:
        """Make an edit in one transaction, after those of others; returns its number.

        What fails before the commit is tried again: nothing was written.
        """
        for attempt in range(self.connections.n_tries):
            try:
                return self._commit(edit)
            except UncommittedError as error:
                if attempt == self.connections.n_tries - 1:
                    raise MemoryServerError(*error.args) from None
                self.connections.pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    def _commit(self, edit: Edit) -> int:
        token, number, is_committing = uuid.uuid4().hex, 0, False
        try:
            with self.connections.connection() as connection:
                try:
                    connection.execute("begin")
                    number = self._write(connection, edit, token)
                    is_committing = True
                    connection.execute("commit")
                except BaseException:
                    with suppress(Exception):
                        connection.execute("rollback")
                    raise
        except MemoryServerError as error:
            if not error.is_lost:
                raise
            if not is_committing:
                raise UncommittedError(*error.args) from None
            self._check_outcome(number, token)
        return number

    def _write(self, connection: Any, edit: Edit, token: str) -> int:
        """Write an edit in a transaction, when other writers are done; returns its number."""
        found = connection.execute(self.sql.lock_collection(), (self.number,)).fetchone()
        if found is None:
            raise self._gone()
        number = int(found[0]) + 1
        edit, classes = edit.stored(found[1])
        n_removed = n_changed = 0
        if len(edit.removed):
            arguments = (number, edit.removed.tolist())
            n_removed = connection.execute(self.sql.remove(), arguments).rowcount
        if edit.values is not None and len(edit.changed):
            values = edit.values
            decay = np.ones(len(values)) if values.decay is None else values.decay
            columns = (values.labels, values.sample_weight, decay, values.held_out)
            arguments_of = (edit.changed.tolist(), *(column.tolist() for column in columns))
            n_changed = connection.execute(self.sql.change(), arguments_of).rowcount
        n_added, length = 0, 0.0
        if edit.added is not None:
            n_added, length = len(edit.added), _longest(edit.added.embeddings)
            try:
                self.copy_in(connection, edit.added, number)
            except self.connections.psycopg.errors.UniqueViolation:
                raise InvalidInputError(
                    "`ids` must be new, one of them is in the memory already."
                ) from None
        keys = np.concatenate([edit.removed, edit.changed]).tolist()
        connection.execute(self.sql.advance(), (number, classes, length, self.number))
        log = (self.number, number, token, keys, n_added, n_removed, n_changed)
        connection.execute(self.sql.log(), log)
        return number

    def _check_outcome(self, number: int, token: str) -> None:
        """After a cut in the middle of a commit: whether the edit was made."""
        unknown = UnknownOutcomeError(
            f"The connection to {self.connections.address} was cut while edit {number} was "
            "committed, so it is unknown whether it was made. Open the model again and check "
            f"edit {number}."
        )
        try:
            found = self.connections.read(
                lambda connection: connection.execute(
                    self.sql.find_token(), (self.number, number, token)
                ).fetchone()
            )
        except MemoryServerError:
            raise unknown from None
        if found is None:
            raise MemoryServerError(
                f"The connection to {self.connections.address} was cut, and edit {number} was not "
                "made. Make it again.",
            )

    def write_parts(self, parts: dict[str, tuple[bytes, str]]) -> None:
        """Replace the fitted parts: content and SHA-256 by name, in one transaction."""
        with self.connections.connection() as connection, connection.transaction():
            connection.execute(self.sql.lock_collection(), (self.number,))
            connection.execute(self.sql.drop_parts(), (self.number,))
            for name, (content, digest) in parts.items():
                values = (self.number, name, digest, content)
                connection.execute(self.sql.write_part(), values)

    def read_parts(self) -> dict[str, tuple[bytes, str]]:
        """The fitted parts."""
        rows = self.connections.read(
            lambda connection: connection.execute(self.sql.parts(), (self.number,)).fetchall()
        )
        return {name: (bytes(content), digest) for name, content, digest in rows}

    # Index

    def index(self, metric: str) -> None:
        """Build the HNSW index."""
        with self.connections.connection() as connection:
            connection.execute("set statement_timeout = 0")
            try:
                connection.execute(self.sql.index_vectors(OPERATORS[metric]))
            finally:
                connection.execute("reset statement_timeout")

    def set_search(self, width: int | None, reason: str) -> None:
        """Store the search width that was chosen, and why; None drops the index."""
        with self.connections.connection() as connection:
            connection.execute(self.sql.set_search(), (width, reason, self.number))
            if width is None:
                connection.execute(self.sql.drop_vector_index())

    def erase(self) -> int:
        """Delete all forgotten entries from the table and its indexes; returns how many."""
        with self.connections.connection() as connection:
            n_erased = connection.execute(self.sql.erase()).rowcount
            connection.execute("set statement_timeout = 0")
            try:
                connection.execute(self.sql.vacuum())
                connection.execute(self.sql.reindex())
            finally:
                connection.execute("reset statement_timeout")
        return int(n_erased)

    def log(self) -> list[tuple[Any, ...]]:
        """Number, counts of added, forgotten and changed entries, and time of every edit."""
        found: list[tuple[Any, ...]] = self.connections.read(
            lambda connection: connection.execute(self.sql.edits(), (self.number,)).fetchall()
        )
        return found

    def _gone(self) -> MemoryServerError:
        return MemoryServerError(
            f"The entries of this model are gone from {self.connections.address}: it was replaced "
            "by another fit, or dropped. Open it again."
        )


class UncommittedError(MemoryServerError):
    """A connection that was lost before the commit."""


def _set_search(connection: Any, search_width: int | None, limit: int) -> None:
    """Settings of the next search on this connection, sent only where they change."""
    if search_width is None:
        wanted = ("off", "on", "40", "20000")
    else:
        width = str(min(1000, max(search_width, limit)))
        wanted = ("on", "off", width, str(max(20_000, 64 * limit)))
    if getattr(connection, "attnknn_search", None) == wanted:
        return
    connection.execute(
        "select set_config('enable_indexscan', %s, false), set_config('enable_seqscan', %s, false),"
        " set_config('hnsw.ef_search', %s, false), set_config('hnsw.max_scan_tuples', %s, false),"
        " set_config('hnsw.iterative_scan', 'strict_order', false)",
        wanted,
    )
    connection.attnknn_search = wanted


def _drop(connections: Connections, number: int) -> None:
    """Drop a collection that nobody can find; a database that is gone has dropped it already."""
    with suppress(MemoryServerError), connections.connection() as connection:
        sql = connections.statements(number)
        connection.execute(sql.drop_entries())
        connection.execute(sql.forget_collection(), (number,))


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.full(len(values), None, dtype=object)
    array[:] = list(values)
    return array


def _longest(vectors: Vectors) -> float:
    """At least the length of the longest vector."""
    squares = np.einsum("nd,nd->n", vectors, vectors)
    return 1.001 * float(np.sqrt(squares.max(initial=0.0)))
