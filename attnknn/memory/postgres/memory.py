"""The memory whose vectors are in PostgreSQL with pgvector."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import InvalidSettingError
from attnknn.memory.base import Memory
from attnknn.memory.distances import Ranking, Vectors, first_of_each, keys_between, keys_of_pairs
from attnknn.memory.entries import Entries, EntryColumns
from attnknn.memory.postgres.collection import (
    MAX_INDEXED_WIDTH,
    Collection,
    Edit,
    Found,
)
from attnknn.memory.postgres.connections import Address, Connections
from attnknn.memory.torch_memory import TorchMemory
from attnknn.memory.vectors import ArrayVectors, EntryVectors
from attnknn.records import Booleans, Floats, Integers
from attnknn.registry import register

QUERIES = 64  # sent at once
ROUNDING = 2.0**-23  # of one operation of the server, which computes distances in float32
N_PROBES = 300  # a search that ends in a wrong region misses all neighbors, but is rare
PROBED_NEIGHBORS = 64
WIDTHS = (40, 100, 200, 400, 800)  # of the HNSW search, the cheapest first
COLUMNS = ("labels", "sample_weight", "decay", "held_out")
PENDING = -1  # key of an entry that is not in the database yet


class PostgresVectors(EntryVectors):
    """Vectors in a collection, read by key; those of entries that were not committed are here.

    Parameters
    ----------
    collection : Collection
    keys : ndarray of shape (n_entries,)
        Key of each entry, ascending; -1 for the last ones, which are `pending`.
    pending : ndarray of shape (n_pending, width)
    """

    def __init__(self, collection: Collection, keys: Integers, pending: Vectors) -> None:
        self.collection, self.keys, self.pending = collection, keys, pending
        self.width = int(pending.shape[1])
        self.n_stored = len(keys) - len(pending)
        self._seen: tuple[Integers, Vectors] | None = None  # positions and vectors of a search

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, positions: Any) -> Vectors:
        if not isinstance(positions, np.ndarray) or positions.dtype == bool:
            positions = np.arange(len(self))[positions]
        used, places = np.unique(positions, return_inverse=True)
        return self._read(used)[places.reshape(positions.shape)]

    def note(self, positions: Integers, vectors: Vectors) -> None:
        """Keep vectors that a search has read, for those who ask for them next.

        Parameters
        ----------
        positions : ndarray of shape (n,)
        vectors : ndarray of shape (n, width)
        """
        used, first = np.unique(positions, return_index=True)
        self._seen = used, vectors[first]

    def _read(self, used: Integers) -> Vectors:
        """The vectors at distinct positions in ascending order."""
        if self._seen is not None and len(used) <= len(self._seen[0]):
            known, vectors = self._seen
            places = np.minimum(np.searchsorted(known, used), len(known) - 1)
            if len(known) and np.array_equal(known[places], used):
                return vectors[places]
        n_stored = int(np.searchsorted(used, self.n_stored))
        stored = self.collection.vectors(self.keys[used[:n_stored]], self.width)
        if n_stored == len(used):
            return stored
        return np.concatenate([stored, self.pending[used[n_stored:] - self.n_stored]])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}


@dataclass(frozen=True)
class _State:
    """The entries of a version, as the database has them."""

    version: int
    keys: Integers
    entries: EntryColumns


class _Owner:
    """Shared by the copies of a memory; when the last is gone, an unnamed collection is dropped."""


@register("memory", "postgres")
class PostgresMemory(Memory):
    """Entries in PostgreSQL with pgvector: exact, or by an HNSW index that is measured.

    Labels, ids, groups and weights are held in this process, vectors in the database. A search asks
    the server for candidates and computes their distances in float64, as the other memories do.
    `AttnKNNClassifier(memory="postgres://…")` makes one. Needs the extra `postgres`.

    An edit is written by `commit`, in one transaction; a classifier calls it at the end of each of
    its methods that edit. Copies of a classifier, as `what_if` makes them, are never written.

    Parameters
    ----------
    address : str, default=""
        `postgres://user@host:port/database?model=NAME`, with libpq's settings (`sslmode` and so
        on) as further parameters. Without `model` the entries are dropped with the memory.
    index : {'exact', 'hnsw'}, default='hnsw'
        How to search. HNSW is used from `exact_up_to` entries on, if its recall suffices.
    recall : float, default=0.99
        Share of the nearest entries that an index must find to be used.
    exact_up_to : int, default=20000
        Number of entries up to which search is exact.
    timeout : float, default=30.0
        Seconds for a connection, a statement, and waiting for another writer.
    n_connections : int, default=4
        Largest number of connections of this process.

    Attributes
    ----------
    version_ : int
        Number of the edit that the entries are read after.
    reason_ : str
        How entries are searched and why.

    Examples
    --------
    >>> memory = PostgresMemory("postgres://ann:secret@db.example/data?model=churn")
    >>> memory
    PostgresMemory(address='postgres://ann@db.example/data?model=churn')
    >>> memory.open().search(queries, 5)  # doctest: +SKIP
    """

    derived: ClassVar[tuple[str, ...]] = (*Memory.derived, "_connections")
    is_shared: ClassVar[bool] = True
    _base: _State
    _hidden: Integers
    _collection: Collection
    _is_detached: bool = False
    _class_texts: list[str] | None = None  # what the label codes mean, once a classifier said it

    def __init__(
        self,
        address: str = "",
        *,
        index: str = "hnsw",
        recall: float = 0.99,
        exact_up_to: int = 20_000,
        timeout: float = 30.0,
        n_connections: int = 4,
    ) -> None:
        self.address = address
        self.index = index
        self.recall = recall
        self.exact_up_to = exact_up_to
        self.timeout = timeout
        self.n_connections = n_connections

    # States

    @property
    def is_exact(self) -> bool:
        """Whether a search always finds the nearest entries."""
        return getattr(self, "_search_width", None) is None

    @property
    def n_bytes(self) -> int:
        """Size of the columns in this process, in bytes."""
        arrays = (getattr(self.entries, name) for name in ("ids", "groups", *COLUMNS))
        return int(sum(array.nbytes for array in arrays if array is not None))

    @property
    def place(self) -> str:
        """The address without passwords."""
        return str(self._parsed())

    @property
    def names_a_model(self) -> bool:
        """Whether the address names a model, which then outlives the memory."""
        return bool(self._parsed().model)

    def open(self, classes: list[str] | None = None) -> Self:
        """Read the entries of the model that the address names.

        Parameters
        ----------
        classes : list of str, default=None
            What label codes shall mean, as JSON; None takes the order of the database.

        Returns
        -------
        PostgresMemory
            The memory itself.
        """
        self._collection = self._found()
        known = self._collection.describe()
        self.metric_, self.center_ = known.metric, known.center  # type: ignore[assignment]
        self._search_width, self.reason_ = known.search_width, known.reason
        self._max_length, self._is_published = known.max_length, True
        keys, columns = self._collection.columns(known.version, known)
        self._class_texts = classes or known.classes or None
        self._take(_State(known.version, keys, self._decoded(columns, known.classes)), known.width)
        return self

    def follow(self) -> bool:
        """Read the edits of other processes since the last look, by the number of the latest.

        Edits of this memory that were not committed are dropped.

        Returns
        -------
        bool
            Whether there were any.
        """
        self._check_has_entries("follow")
        base = self._base
        if self._is_detached or self._collection.version() == base.version:
            return False
        known = self._collection.describe()
        last = int(base.keys.max(initial=0))
        touched, keys, columns = self._collection.newer_columns(
            base.version, known.version, last, known
        )
        self._max_length = known.max_length
        stays = ~np.isin(base.keys, touched)
        joined = base.entries.take(stays).joined(self._decoded(columns, known.classes))
        every = np.concatenate([base.keys[stays], keys])
        order = np.argsort(every)
        self._take(_State(known.version, every[order], joined.take(order)), known.width)
        return True

    def commit(self, classes: list[str] | None = None) -> None:
        """Write the edits since the last commit in one transaction; the first one gives the name.

        Edits of other processes that were made in between stay, and are read.

        Parameters
        ----------
        classes : list of str, default=None
            What the label codes mean, as JSON; None stores the codes.

        Raises
        ------
        MemoryServerError
            If the database cannot be reached or refuses; nothing is written.
        UnknownOutcomeError
            If the connection was cut during the commit, and the edit cannot be looked up.
        """
        self._check_has_entries("commit")
        if self._is_detached:
            return
        is_first = classes is not None and self._class_texts is None
        self._class_texts = self._class_texts if classes is None else classes
        edit = self._edit()
        if not edit.is_empty or is_first:
            self._collection.commit(edit)
            self.follow()
        name = self._parsed().model
        if name and not self._is_published:
            self._collection.publish(name)
            self._is_published = True

    def detached(self) -> Self:
        """Copy the memory; edits of the copy are never written.

        Returns
        -------
        PostgresMemory
            The copy.
        """
        other = copy(self)
        other._is_detached = True
        return other

    def local_copy(self) -> Memory:
        return TorchMemory()

    def exists(self) -> bool:
        """Look up whether the database has a model of that name.

        Returns
        -------
        bool
            Whether it has one.
        """
        return Collection.number_of(self._connected(), self._parsed().model) is not None

    def write_parts(self, parts: dict[str, tuple[bytes, str]]) -> None:
        """Store the fitted parts of a model beside its entries.

        Parameters
        ----------
        parts : dict of str to tuple
            Content and SHA-256 of each file.
        """
        self._collection.write_parts(parts)

    def read_parts(self) -> dict[str, tuple[bytes, str]]:
        """Read the fitted parts of the model that the address names.

        Returns
        -------
        dict of str to tuple
            Content and SHA-256 of each file.
        """
        return self._found().read_parts()

    @property
    def class_texts(self) -> list[str]:
        """What the label codes mean, as JSON; classes that other processes added come last."""
        return list(self._class_texts or [])

    def edits(self) -> list[dict[str, Any]]:
        """List the edits that were committed.

        Returns
        -------
        list of dict
            Number, counts of added, forgotten and changed entries, and time of each.
        """
        names = ("edit", "n_added", "n_forgotten", "n_changed", "time")
        return [dict(zip(names, row, strict=True)) for row in self._collection.log()]

    def erase(self) -> dict[str, Any]:
        """Delete forgotten entries from the table and its indexes, and say what is left.

        Earlier states cannot be read afterwards, also by other processes.

        Returns
        -------
        dict
            The receipt: what was erased, and what only the operator of the server can clear.
        """
        n_erased = self._collection.erase()
        return {
            "n_erased": n_erased,
            "cleared": "the rows of the table, its dead rows (vacuum) and its indexes (reindex)",
            "left_to_the_operator": [
                "write-ahead log: `checkpoint`, `select pg_switch_wal()`, and wait until old "
                "segments are recycled",
                "archived write-ahead log, replicas, snapshots of the disk, and backups",
            ],
        }

    # Edits

    def restore(self, entries: Entries, metric: str, center: Floats | None) -> Self:
        self.metric_, self.center_ = metric, center  # type: ignore[assignment]
        self.replace_entries(entries)
        self.build_index()
        return self

    def replace_entries(self, entries: Entries) -> None:
        self.entries, self.vectors = entries.columns, ArrayVectors(entries.embeddings)
        self._drop(*Memory.derived)

    def build_index(self) -> None:
        """Load the entries into a new collection, and index them."""
        entries = self.read()
        self._check_settings()
        made = Collection.made(self._connected(), entries, self.metric_, self.center_)
        token = _Owner()
        made.drop_with(token)
        self._owner, self._collection = token, made
        self._is_published, self._search_width, self.reason_ = False, None, "Search is exact."
        self._max_length, self._class_texts, self._is_detached = made.max_length, None, False
        keys = np.arange(1, len(entries) + 1)  # as a new table counts
        self._take(_State(1, keys, entries.columns), entries.embeddings.shape[1])
        self._choose_search()

    def add(self, entries: Entries) -> None:
        self._check_has_entries("add")
        self._check_width(entries.embeddings, "New entries")
        self.id_lookup.refuse_known(entries.ids)
        new = self._prepared(entries)
        vectors = self._here
        keys = np.concatenate([vectors.keys, np.full(len(new), PENDING)])
        pending = np.concatenate([vectors.pending, new.embeddings])
        columns = self.entries.joined(new.columns) if len(self) else new.columns
        self._set(columns, PostgresVectors(self._collection, keys, pending))

    def forget(self, ids: ArrayLike) -> None:
        keep = np.ones(len(self), dtype=bool)
        keep[np.unique(self.positions_of(ids))] = False
        vectors = self._here
        pending = vectors.pending[keep[vectors.n_stored :]]
        gone = vectors.keys[: vectors.n_stored][~keep[: vectors.n_stored]]
        self._hidden = np.concatenate([self._hidden, gone])
        kept = PostgresVectors(self._collection, vectors.keys[keep], pending)
        self._set(self.entries.take(keep), kept)

    def recode(self, codes: Integers) -> None:
        super().recode(codes)
        base = self._base
        self._base = replace(base, entries=replace(base.entries, labels=codes[base.entries.labels]))
        if self._class_texts is not None:
            texts = [""] * (int(codes.max(initial=-1)) + 1)
            for old, new in enumerate(codes.tolist()[: len(self._class_texts)]):
                texts[new] = self._class_texts[old]
            self._class_texts = texts

    # Search

    def find_nearest(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        positions, keys = [], []
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            own = None if exclude is None else exclude[block]
            found = self._nearest_of_block(queries[block], k, own)
            positions.append(found[0])
            keys.append(found[1])
        return np.concatenate(positions), np.concatenate(keys)

    def _nearest_of_block(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        vectors = self._here
        own = None
        if exclude is not None:
            own = vectors.keys[exclude], self.entries.groups[exclude]
        n_stored = self._n_stored_others(len(queries), exclude)
        limit = k + 8 + k // 8
        arguments: dict[str, Any] = {"hidden": self._hidden}
        found = self._candidates(
            queries, own, limit=limit, search_width=self._search_width, **arguments
        )
        n_found = np.bincount(found.rows, minlength=len(queries))
        if self._search_width is not None:  # a filtered index search may return too few
            is_short = n_found < np.minimum(limit, n_stored)
            if is_short.any():
                found = self._again(found, is_short, queries, own, limit=limit, **arguments)
        else:
            found = self._with_ties(found, queries, own, k, limit, n_found)
        return self._ranked(queries, found, k, exclude)

    def _candidates(
        self, queries: Vectors, own: tuple[Integers, Integers] | None, **arguments: Any
    ) -> Found:
        return self._collection.nearest(
            queries, self._base.version, self.metric_, own=own, **arguments
        )

    def _n_stored_others(self, n_queries: int, exclude: Integers | None) -> Integers:
        """Number of entries in the database that each query may find."""
        n_stored = self._here.n_stored
        if exclude is None:
            return np.full(n_queries, n_stored)
        rows, positions = self.exclusion.pairs(exclude)
        return n_stored - np.bincount(rows[positions < n_stored], minlength=n_queries)

    def _again(
        self,
        found: Found,
        chosen: Booleans,
        queries: Vectors,
        own: tuple[Integers, Integers] | None,
        **arguments: Any,
    ) -> Found:
        """The same with the `chosen` queries searched exactly, or within `radii`."""
        rows = np.flatnonzero(chosen)
        theirs = None if own is None else (own[0][rows], own[1][rows])
        exact = self._candidates(queries[rows], theirs, **arguments)
        stays = ~chosen[found.rows]
        return Found(
            np.concatenate([found.rows[stays], rows[exact.rows]]),
            np.concatenate([found.keys[stays], exact.keys]),
            np.concatenate([found.vectors[stays], exact.vectors]),
            np.concatenate([found.far[stays], exact.far]),
        )

    def _with_ties(
        self,
        found: Found,
        queries: Vectors,
        own: tuple[Integers, Integers] | None,
        k: int,
        limit: int,
        n_found: Integers,
    ) -> Found:
        """The candidates with all entries that rounding on the server may have put behind them."""
        keys = keys_between(queries[found.rows], found.vectors, self.metric_)
        order = np.lexsort((keys, found.rows))
        starts = np.searchsorted(found.rows[order], np.arange(len(queries)))
        is_full = n_found >= limit
        kth = np.full(len(queries), np.inf)
        kth[is_full] = keys[order][starts[is_full] + k - 1]
        farthest = np.full(len(queries), -np.inf)
        np.maximum.at(farthest, found.rows, found.far)
        radii = self._radii(queries, kth)
        is_doubtful = is_full & (radii >= farthest)
        if not is_doubtful.any():
            return found
        return self._again(
            found, is_doubtful, queries, own, radii=radii[is_doubtful], hidden=self._hidden
        )

    def _radii(self, queries: Vectors, keys: Floats) -> Floats:
        """Distances, as the server computes them, that no entry with at most these keys exceeds."""
        error = ROUNDING * (queries.shape[1] + 8)
        if self.metric_ == "inner_product":
            lengths = np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1))
            return keys + error * lengths * max(self._max_length, 1e-30)
        with np.errstate(invalid="ignore"):
            return np.sqrt(keys) * (1.0 + error) + 1e-37

    def _ranked(self, queries: Vectors, found: Found, k: int, exclude: Integers | None) -> Ranking:
        """The nearest of the candidates and of entries that are not committed, by exact keys."""
        vectors = self._here
        positions = np.searchsorted(vectors.keys[: vectors.n_stored], found.keys)
        vectors.note(positions, found.vectors)
        keys = keys_between(queries[found.rows], found.vectors, self.metric_)
        rows = found.rows
        if len(vectors.pending):
            more = self._pending_pairs(queries, exclude)
            rows, positions = np.append(rows, more[0]), np.append(positions, more[1])
            keys = np.append(keys, more[2])
        return first_of_each(rows, positions, keys, self.id_lookup, len(queries), k)

    def _pending_pairs(
        self, queries: Vectors, exclude: Integers | None
    ) -> tuple[Integers, Integers, Floats]:
        """Query, position and key of all pairs with entries that are not committed."""
        vectors = self._here
        n_new = len(vectors.pending)
        rows = np.repeat(np.arange(len(queries)), n_new)
        places = np.tile(np.arange(n_new), len(queries))
        allowed = np.ones((len(queries), n_new), dtype=bool)
        if exclude is not None:
            row, position = self.exclusion.pairs(exclude)
            is_new = position >= vectors.n_stored
            allowed[row[is_new], position[is_new] - vectors.n_stored] = False
        rows, places = rows[allowed.ravel()], places[allowed.ravel()]
        keys = keys_of_pairs(queries, vectors.pending, rows, places, self.metric_)
        return rows, places + vectors.n_stored, keys

    # Inside

    @property
    def _here(self) -> PostgresVectors:
        vectors = self.vectors
        assert isinstance(vectors, PostgresVectors)
        return vectors

    def _take(self, state: _State, width: int) -> None:
        """Take the entries of a committed state."""
        self._base, self.version_ = state, state.version
        self._hidden = np.zeros(0, dtype=np.int64)  # keys that are forgotten, and not committed
        vectors = PostgresVectors(
            self._collection, state.keys, np.zeros((0, width), dtype=np.float32)
        )
        self._set(state.entries, vectors)

    def _decoded(self, entries: EntryColumns, stored: list[str]) -> EntryColumns:
        """Entries with label codes of this memory; classes that are new to it come last."""
        if self._class_texts is None or not stored:
            return entries
        known = dict(zip(self._class_texts, range(len(self._class_texts)), strict=True))
        codes = np.array([known.setdefault(text, len(known)) for text in stored])
        self._class_texts = list(known)
        return replace(entries, labels=codes[entries.labels])

    def __copy__(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Copies in other processes read; what they edit is not written."""
        return {**super().__getstate__(), "_is_detached": True}

    def _set(self, entries: EntryColumns, vectors: EntryVectors) -> None:
        self.entries, self.vectors = entries, vectors
        self._drop("id_lookup", "exclusion")

    def _edit(self) -> Edit:
        """What differs between the entries and those of the database."""
        base, vectors = self._base, self._here
        stored = np.arange(vectors.n_stored)
        before = np.searchsorted(base.keys, vectors.keys[: vectors.n_stored])
        is_changed = np.zeros(vectors.n_stored, dtype=bool)
        for name in COLUMNS:
            new, old = getattr(self.entries, name), getattr(base.entries, name)
            if new is not old:
                ones = np.ones(1)
                new = np.broadcast_to(ones, len(self)) if new is None else new
                old = np.broadcast_to(ones, len(base.keys)) if old is None else old
                is_changed |= new[: vectors.n_stored] != old[before]
        changed = stored[is_changed]
        n_new = len(vectors.pending)
        new = np.arange(vectors.n_stored, len(vectors))
        return Edit(
            added=self.entries.take(new).with_vectors(vectors.pending) if n_new else None,
            removed=self._hidden,
            changed=vectors.keys[changed],
            values=self.entries.take(changed) if len(changed) else None,
            classes=self._class_texts,
        )

    def _choose_search(self) -> None:
        """Index large collections, and choose the narrowest search with enough recall."""
        n, width = len(self), self.vectors.width
        if self.index == "exact":
            return
        if n <= self.exact_up_to:
            self.reason_ = f"Search is exact: {n:,} entries are at most {self.exact_up_to:,}."
        elif width > MAX_INDEXED_WIDTH:
            self.reason_ = f"Search is exact: HNSW takes up to {MAX_INDEXED_WIDTH:,} columns."
        else:
            self._collection.index(self.metric_)
            self._search_width, self.reason_ = self._measured_width()
        self._collection.set_search(self._search_width, self.reason_)

    def _measured_width(self) -> tuple[int | None, str]:
        n, best = len(self), 0.0
        k = min(PROBED_NEIGHBORS, n)
        queries = self._probes(k)
        expected = self.find_nearest(queries, k, None)[1][:, -1]
        for width in WIDTHS:
            self._search_width = width
            found = self.find_nearest(queries, k, None)[1]
            best = float((found <= expected[:, None]).mean())
            if best >= (1.0 + self.recall) / 2:  # the recall of other queries may be lower
                words = f"finds {best:.1%} of the {k} nearest of {n:,} entries"
                return width, f"Search uses an HNSW index that {words} (`ef_search` {width})."
        return None, (
            f"Search is exact: the index finds {best:.1%} of the {k} nearest of {n:,} entries, "
            f"too few for `recall={self.recall}`."
        )

    def _probes(self, k: int) -> Vectors:
        """Vectors like the entries, but none of them: an index finds what it holds too easily."""
        generator = np.random.default_rng(0)
        rows = generator.choice(len(self), size=min(N_PROBES, len(self)), replace=False)
        rows.sort()
        near = self.find_nearest(self.vectors[rows], k, None)[0]
        two = generator.integers(0, k, (2, len(rows)))
        one, other = (self.vectors[near[np.arange(len(rows)), column]] for column in two)
        return self.vectors[rows] + (one - other) / np.float32(np.sqrt(2.0))

    def _found(self) -> Collection:
        parsed = self._parsed()
        if not parsed.model:
            raise InvalidSettingError(f"The address {parsed} must name a model: add `?model=NAME`.")
        return Collection.find(self._connected(), parsed.model)

    def _parsed(self) -> Address:
        if not isinstance(self.address, str) or not self.address:
            raise InvalidSettingError(
                "`PostgresMemory` needs an `address`, such as "
                "postgres://user@host:port/database?model=NAME."
            )
        return Address.parse(self.address)

    def _connected(self) -> Connections:
        known: Connections | None = self.__dict__.get("_connections")
        if known is None:
            known = Connections(self._parsed(), self.timeout, self.n_connections)
            self._connections = known
        return known

    def _check_settings(self) -> None:
        if self.index not in ("exact", "hnsw"):
            raise InvalidSettingError(f"`index` must be 'exact' or 'hnsw', got {self.index!r}.")
        if not 0 < self.recall <= 1:
            raise InvalidSettingError(f"`recall` must be above 0, up to 1, got {self.recall!r}.")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX)
        return text.replace(repr(self.address), repr(str(self._parsed()))) if self.address else text
