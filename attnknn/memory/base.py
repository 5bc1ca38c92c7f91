"""The base class of memories: search entries by distance; add, forget and relabel them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from attnknn._atomic import all_or_nothing
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError, unknown_name
from attnknn.memory.distances import (
    Ranking,
    Vectors,
    center_of,
    centered,
    refuse_infinite,
    refuse_vanishing,
    unit_length,
)
from attnknn.memory.entries import Entries, EntryColumns, Exclusion, IdLookup
from attnknn.memory.range_search import RangeMatches, range_search_reference
from attnknn.memory.vectors import ArrayVectors, EntryVectors
from attnknn.records import Booleans, Floats, Integers, Neighbors
from attnknn.registry import Option, find

Metric = Literal["euclidean", "cosine", "inner_product"]
METRICS = ("euclidean", "cosine", "inner_product")
DEVICES = ("auto", "cpu", "cuda", "mps")
DEVICE = Option(
    "--device",
    "device",
    "Device that searches the memory, and that trains image networks.",
    choices=DEVICES,
)


class Memory(ABC, BaseEstimator):
    """Entries and the search for those nearest to a query; base class of all memories.

    A memory compares *prepared* vectors (float32): centered for `euclidean`, of unit length for
    `cosine`, unchanged for `inner_product`. A subclass implements `build_index` and
    `find_nearest`. It may implement `extend_index` and `shrink_index` if it can update its index
    faster than build it again. Attributes that can be computed from the entries are named in the
    class attribute `derived`; they are not pickled.

    Attributes
    ----------
    entries : EntryColumns
        Labels, ids and the other columns of the entries.
    vectors : EntryVectors
        The prepared vectors of the entries, read by position.
    metric_ : {'euclidean', 'cosine', 'inner_product'}
        Metric of the search.
    center_ : ndarray of shape (n_features,) or None
        Origin of the prepared vectors; None unless the metric is 'euclidean'.

    Examples
    --------
    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    entries: EntryColumns
    vectors: EntryVectors
    metric_: Metric
    center_: Floats | None
    options: ClassVar[tuple[Option, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ("id_lookup", "exclusion")
    is_shared: ClassVar[bool] = False  # whether other processes may edit the entries

    @property
    def is_exact(self) -> bool:
        """Whether a search always finds the nearest entries."""
        return True

    @property
    def n_bytes(self) -> int:
        """Size of the embeddings and of the index, in bytes."""
        return 4 * len(self) * self.vectors.width

    def check_stored_settings(self, n_entries: int) -> None:
        """Raise `ModelFolderError` for settings of a model folder that must not be used.

        Called before the entries are indexed, so that sizes in a damaged or hostile file cannot
        reserve memory. The default accepts everything.

        Parameters
        ----------
        n_entries : int
            Number of entries in the model folder.
        """

    def remember(self, entries: Entries, metric: str = "euclidean") -> Self:
        """Replace all entries and index the new ones.

        Parameters
        ----------
        entries : Entries
            The new entries, with embeddings as the encoder returns them.
        metric : {'euclidean', 'cosine', 'inner_product'}, default='euclidean'
            Metric of the search.

        Returns
        -------
        Memory
            The memory itself.
        """
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        with all_or_nothing(self):
            self._drop("entries", "vectors")  # the width may change
            self.metric_ = cast(Metric, metric)
            self.center_ = center_of(entries.embeddings) if metric == "euclidean" else None
            self.replace_entries(self._prepared(entries))
            refuse_vanishing(entries.embeddings, self.vectors.all())
            self.build_index()
        return self

    def restore(self, entries: Entries, metric: str, center: Floats | None) -> Self:
        """Replace all entries by ones whose embeddings are prepared already.

        Parameters
        ----------
        entries : Entries
            Entries of a model folder or of another memory. They are not copied.
        metric : {'euclidean', 'cosine', 'inner_product'}
            Metric that the embeddings were prepared for.
        center : ndarray of shape (n_features,) or None
            `center_` of the memory that prepared them.

        Returns
        -------
        Memory
            The memory itself.
        """
        with all_or_nothing(self):
            self.metric_, self.center_ = cast(Metric, metric), center
            self.replace_entries(entries)
            self.build_index()
        return self

    def search(self, queries: ArrayLike, k: int, *, exclude: Integers | None = None) -> Neighbors:
        """Find the `k` nearest entries of each query, nearest first, ties by id.

        Parameters
        ----------
        queries : array-like of shape (n_queries, n_features)
            Embeddings as the encoder returns them.
        k : int
            Number of neighbors. A memory with fewer entries returns them all.
        exclude : ndarray of shape (n_queries,), default=None
            If the queries are entries of this memory, the position of each one. Its own entry and
            the entries of its group are left out.

        Returns
        -------
        Neighbors
            Arrays of shape (n_queries, min(k, n_entries)). Places without an entry are masked.
        """
        return self.search_prepared(self.prepare(queries), k, exclude=exclude)

    def search_prepared(
        self, queries: Vectors, k: int, *, exclude: Integers | None = None
    ) -> Neighbors:
        """Find the `k` nearest entries of prepared queries, such as `vectors.all()`.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)
            Vectors that `prepare` returned.
        k, exclude : int, ndarray or None
            As in `search`.

        Returns
        -------
        Neighbors
            As in `search`.
        """
        if k < 1:
            raise InvalidSettingError(f"`k` must be an integer of at least 1, got {k}.")
        self._check_has_entries("search")
        self._check_exclude(exclude, len(queries))
        positions, keys = self.search_keys(queries, k, exclude=exclude)
        mask = np.isfinite(keys)
        positions = np.where(mask, positions, 0)
        return Neighbors(
            positions=positions,
            labels=np.where(mask, self.entries.labels[positions], 0),
            distances=self.distances_of(keys),
            mask=mask,
        )

    def search_keys(self, queries: Vectors, k: int, *, exclude: Integers | None = None) -> Ranking:
        """Find the positions and keys of the `k` nearest entries of prepared queries.

        A key orders the entries: the squared Euclidean distance, or minus the inner product.
        Exact memories compute the same key for (a, b) and (b, a), to the last bit.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)
            Vectors that `prepare` returned.
        k, exclude : int, ndarray or None
            As in `search`.

        Returns
        -------
        tuple of ndarray
            Positions and keys of shape (n_queries, min(k, n_entries)), sorted by key and then id.
            Places without an entry have key infinity.
        """
        width = min(k, len(self))
        if width == 0 or len(queries) == 0:
            shape = (len(queries), width)
            return np.zeros(shape, dtype=np.int64), np.full(shape, np.inf)
        return self.find_nearest(queries, width, exclude)

    def range_search(self, queries: Vectors, radii: Floats) -> RangeMatches:
        """Find every pair of a query and an entry whose key is at most the radius of the entry.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)
            Vectors that `prepare` returned.
        radii : ndarray of shape (n_entries,)
            Largest key per entry, in units of `search_keys`; infinity matches every query.

        Returns
        -------
        RangeMatches
            The pairs and their keys, in any order.

        Examples
        --------
        >>> from attnknn.memory import NumpyMemory, make_entries
        >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
        >>> found = memory.range_search(memory.prepare([[3.0]]), np.array([4.0, 4.0, 9.0]))
        >>> found.positions.tolist(), found.keys.tolist()
        ([1, 2], [4.0, 4.0])
        """
        parts = [
            range_search_reference(queries, block, radii[rows], self.metric_).shifted(rows.start)
            for rows, block in self.vectors.blocks()
        ]
        return parts[0] if len(parts) == 1 else RangeMatches.joined(parts)

    def search_both(
        self, queries: Vectors, k: int, radii: Floats, exclude: Integers
    ) -> tuple[Ranking, RangeMatches]:
        """Run `search_keys` and `range_search` on the same queries, faster than one by one.

        Parameters
        ----------
        queries, k, radii, exclude : ndarray, int, ndarray, ndarray
            As in `search_keys` and `range_search`.

        Returns
        -------
        tuple
            The results of both. Excluded pairs may be missing from the matches.
        """
        return self.search_keys(queries, k, exclude=exclude), self.range_search(queries, radii)

    def add(self, entries: Entries) -> None:
        """Add entries.

        Parameters
        ----------
        entries : Entries
            Entries with new ids, and embeddings as the encoder returns them.
        """
        self._check_has_entries("add")
        self._check_width(entries.embeddings, "New entries")
        if not len(self):  # the center stays: learned parts were fitted with it
            self.restore(self._prepared(entries), self.metric_, self.center_)
            return
        self.id_lookup.refuse_known(entries.ids)
        with all_or_nothing(self):
            self.replace_entries(self.read().joined(self._prepared(entries)))
            self.extend_index(len(entries))

    def forget(self, ids: ArrayLike) -> None:
        """Remove entries.

        Parameters
        ----------
        ids : array-like of shape (n,)
            Ids of the entries. If one of them is unknown, nothing is removed.

        Raises
        ------
        UnknownEntryError
            If no entry has one of the ids.
        """
        positions = np.unique(self.positions_of(ids))
        keep = np.ones(len(self), dtype=bool)
        keep[positions] = False
        with all_or_nothing(self):
            self.replace_entries(self.read().take(keep))
            self.shrink_index(positions)

    def relabel(self, ids: ArrayLike, labels: ArrayLike) -> None:
        """Change the labels of entries.

        Parameters
        ----------
        ids : array-like of shape (n,)
            Ids of the entries.
        labels : array-like of shape (n,)
            New label code of each.
        """
        positions = self.positions_of(ids)
        codes = np.atleast_1d(np.asarray(labels, dtype=np.int64))
        if codes.shape != positions.shape:
            raise InvalidInputError(
                f"`labels` must hold one code for each of the {len(positions)} ids, "
                f"got shape {codes.shape}."
            )
        changed = self.entries.labels.copy()
        changed[positions] = codes
        if (changed[positions] != codes).any():
            raise InvalidInputError("`ids` must not hold one id twice with two different labels.")
        self.entries = replace(self.entries, labels=changed)

    def set_decay(self, decay: Floats | None) -> None:
        """Set the decay of every entry's sample weight.

        Parameters
        ----------
        decay : ndarray of shape (n_entries,) or None
            Factors above 0, up to 1; None removes the decay.
        """
        self.entries = replace(self.entries, decay=decay)

    def recode(self, codes: Integers) -> None:
        """Change all label codes, for classes in another order.

        Parameters
        ----------
        codes : ndarray of shape (n_classes,)
            New code of each old code.
        """
        self.entries = replace(self.entries, labels=codes[self.entries.labels])

    def set_held_out(self, held_out: Booleans) -> None:
        """Set which entries no learned part was trained on.

        Parameters
        ----------
        held_out : ndarray of shape (n_entries,)
            True for the entries that are held out.
        """
        self.entries = replace(self.entries, held_out=held_out)

    def read(self, rows: Any = None) -> Entries:
        """Read entries with their prepared vectors.

        Parameters
        ----------
        rows : ndarray or slice, default=None
            Positions or a boolean mask; None reads all entries, which may take long and much
            memory where the vectors are not in this process.

        Returns
        -------
        Entries
            The entries. Their arrays may be those of the memory and must not be changed.

        Examples
        --------
        >>> from attnknn.memory import NumpyMemory, make_entries
        >>> memory = NumpyMemory().remember(make_entries([[0.0], [4.0]], [0, 1], ids=[7, 8]))
        >>> found = memory.read(np.array([1]))
        >>> found.ids.tolist(), found.embeddings.tolist()
        ([8], [[2.0]])
        """
        if rows is None:
            return self.entries.with_vectors(self.vectors.all())
        return self.entries.take(rows).with_vectors(self.vectors[rows])

    def local_copy(self) -> Memory:
        """Make an empty memory in this process for the same entries in another space.

        Returns
        -------
        Memory
            A memory of the same kind and settings, where such a memory is in this process.
        """
        return cast(Memory, clone(self))

    def follow(self) -> bool:
        """Read the edits that other processes made, where entries are shared.

        Returns
        -------
        bool
            Whether there were any.
        """
        return False

    def commit(self, classes: list[str] | None = None) -> None:
        """Make edits last, where entries are shared with other processes.

        Parameters
        ----------
        classes : list of str, default=None
            What the label codes mean, as JSON.
        """

    @property
    def class_texts(self) -> list[str]:
        """What the label codes mean, as JSON, where entries are shared; else nothing."""
        return []

    def detached(self) -> Self:
        """Copy a memory that is shared, so that edits of the copy stay in this process.

        Returns
        -------
        Memory
            The memory itself if it is not shared.
        """
        return self

    def positions_of(self, ids: ArrayLike) -> Integers:
        """Look up the positions of entries.

        Parameters
        ----------
        ids : array-like of shape (n,)
            Ids of the entries.

        Returns
        -------
        ndarray of shape (n,)
            Rows of the arrays in `entries`; valid until the next edit.
        """
        self._check_has_entries("positions_of")
        return self.id_lookup.positions_of(ids)

    def prepare(self, vectors: ArrayLike) -> Vectors:
        """Convert embeddings to the vectors that this memory compares.

        Parameters
        ----------
        vectors : array-like of shape (n, n_features)
            Embeddings as the encoder returns them.

        Returns
        -------
        ndarray of shape (n, n_features)
            Prepared vectors, float32.
        """
        self._check_has_entries("prepare")
        array = np.asarray(vectors)
        self._check_width(array, "Queries")
        return self._as_compared(array)

    def distances_of(self, keys: Floats) -> Floats:
        """Convert keys to distances.

        Parameters
        ----------
        keys : ndarray
            Keys as `search_keys` returns them.

        Returns
        -------
        ndarray
            Euclidean distances, 1 − cosine, or minus the inner products.
        """
        if self.metric_ == "euclidean":
            return np.sqrt(keys)
        return keys / 2 if self.metric_ == "cosine" else keys

    @abstractmethod
    def build_index(self) -> None:
        """Build the search structure over `self.entries`."""

    @abstractmethod
    def find_nearest(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        """Find the `k` nearest entries of prepared queries; the search of an implementation.

        Parameters
        ----------
        queries, k, exclude : ndarray, int, ndarray or None
            As in `search_keys`, with at least one query and at least `k` entries.
            `exclusion.pairs(exclude)` returns the pairs to leave out.

        Returns
        -------
        tuple of ndarray
            Positions and keys of shape (n_queries, k), as `search_keys` returns them.
        """

    def extend_index(self, n_new: int) -> None:  # noqa: ARG002  (the default needs no count)
        """Update the index after entries were added. The default builds it again.

        Parameters
        ----------
        n_new : int
            The last `n_new` entries are new.
        """
        self.build_index()

    def shrink_index(self, positions: Integers) -> None:  # noqa: ARG002
        """Update the index after entries were removed. The default builds it again.

        Parameters
        ----------
        positions : ndarray of shape (n,)
            Former positions of the removed entries, in ascending order.
        """
        self.build_index()

    def replace_entries(self, entries: Entries) -> None:
        """Set prepared entries without indexing them; `build_index` or an update must follow.

        Parameters
        ----------
        entries : Entries
            Entries with prepared embeddings. They are not copied.
        """
        self.entries, self.vectors = entries.columns, ArrayVectors(entries.embeddings)
        self._drop(*Memory.derived)

    @cached_property
    def id_lookup(self) -> IdLookup:
        """Lookup of ids and of their order, which breaks ties."""
        return IdLookup(self.entries.ids)

    @cached_property
    def exclusion(self) -> Exclusion:
        """Lookup of the entries that an entry's own search leaves out."""
        return Exclusion(self.entries.groups)

    def __len__(self) -> int:
        return len(self.entries) if hasattr(self, "entries") else 0

    def __getstate__(self) -> dict[str, Any]:
        # A copy in one step: a reader in another thread may add a cached property meanwhile.
        state: dict[str, Any] = dict(super().__getstate__())
        return {name: value for name, value in state.items() if name not in self.derived}

    def _prepared(self, entries: Entries) -> Entries:
        vectors = self._as_compared(entries.embeddings)
        if np.may_share_memory(vectors, entries.embeddings):
            vectors = vectors.copy()  # else the caller's next write would change the entries
        return replace(entries, embeddings=vectors)

    def _as_compared(self, array: NDArray[Any]) -> Vectors:
        if self.center_ is not None:
            vectors = centered(array, self.center_)
        elif self.metric_ == "cosine":
            vectors = unit_length(array)
        else:
            with np.errstate(over="ignore"):
                vectors = np.ascontiguousarray(array, dtype=np.float32)
        refuse_infinite(vectors)
        return vectors

    def _drop(self, *names: str) -> None:
        for name in names:
            self.__dict__.pop(name, None)

    def _check_has_entries(self, method: str) -> None:
        if not hasattr(self, "entries"):
            raise NotFittedYetError(f"Call `remember` before `{method}`: there are no entries yet.")

    def _check_width(self, array: NDArray[Any], what: str) -> None:
        width = self.vectors.width
        if array.ndim != 2 or array.shape[1] != width:
            got = f"{array.shape[1]} columns" if array.ndim == 2 else f"shape {array.shape}"
            raise InvalidInputError(
                f"{what} have {got} but this memory holds embeddings of {width}. "
                "Was the encoder changed after `fit`?"
            )

    def _check_exclude(self, exclude: Integers | None, n_queries: int) -> None:
        if exclude is None:
            return
        if exclude.shape != (n_queries,):
            raise InvalidInputError(
                f"`exclude` must hold one position for each of the {n_queries} queries, "
                f"got shape {exclude.shape}."
            )
        if n_queries and not (exclude.min() >= 0 and exclude.max() < len(self)):
            raise InvalidInputError(
                f"`exclude` must hold positions from 0 to {len(self) - 1}, "
                f"got {exclude.min()} to {exclude.max()}."
            )


def make_memory(memory: str | Memory, *, device: str = "cpu") -> Memory:
    """Build an empty memory from a name, or clone a memory.

    Parameters
    ----------
    memory : str or Memory
        'auto', 'faiss', 'numpy', 'torch' or another registered name, or the address of a database
        (`postgres://…`). An object is cloned: its settings are kept, its entries are not.
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='cpu'
        Device of a memory built by name, where it has that setting. An object keeps its own.

    Returns
    -------
    Memory
        A memory without entries.

    Raises
    ------
    InvalidSettingError
        If no memory has that name.

    Examples
    --------
    >>> make_memory("torch")
    TorchMemory()
    >>> make_memory("toch")
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: No memory is called 'toch'. Did you mean 'torch'? ...
    """
    if isinstance(memory, Memory):
        return cast(Memory, clone(memory))
    if not isinstance(memory, str):
        raise InvalidSettingError(
            f"`memory` must be a name or a `Memory`, got {type(memory).__name__}."
        )
    if "://" in memory:
        scheme = memory.split("://")[0].lower().replace("postgresql", "postgres")
        return cast(Memory, find("memory", scheme)(memory))
    cls = find("memory", memory)
    has_device = "device" in cls().get_params(deep=False)
    return cast(Memory, cls(device=device) if has_device else cls())
