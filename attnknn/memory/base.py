"""What a memory must do: remember entries, search them, and change by add, forget and relabel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from attnknn._atomic import all_or_nothing
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError, unknown_name
from attnknn.memory.distances import Vectors, center_of, centered, refuse_infinite, unit_length
from attnknn.memory.entries import Entries, Exclusion, IdLookup
from attnknn.memory.range_search import RangeMatches, range_search_reference
from attnknn.records import Floats, Integers, Neighbors
from attnknn.registry import Option, find

Metric = Literal["euclidean", "cosine", "inner_product"]
_Other = TypeVar("_Other", bound="Memory")
METRICS = ("euclidean", "cosine", "inner_product")
DEVICES = ("auto", "cpu", "cuda", "mps")
DEVICE = Option("--device", "device", "Device that searches the memory.", choices=DEVICES)


class Memory(ABC, BaseEstimator):
    """Entries and their search; the parts that every memory shares.

    A memory works on *prepared* vectors: moved near the origin for `euclidean`, of unit length for
    `cosine`, as they come for `inner_product`. An implementation gives `_index` and `_nearest`,
    and may give `_append` and `_remove` where it can do better than index everything again.
    What can be computed again from the entries is named in `_derived`: it is dropped when they
    change, and never pickled.
    """

    entries: Entries
    metric_: Metric
    center_: Floats | None
    options: ClassVar[tuple[Option, ...]] = ()
    _derived: ClassVar[tuple[str, ...]] = ("_lookup", "_exclusion")

    @property
    def is_exact(self) -> bool:
        """Whether the neighbors found are the nearest for sure."""
        return True

    @property
    def n_bytes(self) -> int:
        """What the embeddings, and the index beside them, take."""
        return int(self.entries.embeddings.nbytes)

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
        """Start again with `entries`."""
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        with all_or_nothing(self):
            self.__dict__.pop("entries", None)  # the width may change
            self.metric_ = cast(Metric, metric)
            self.center_ = center_of(entries.embeddings) if metric == "euclidean" else None
            self._set(self._prepared(entries))
            self._index()
        return self

    def restore(self, entries: Entries, metric: str, center: Floats | None) -> Self:
        """Start again with entries that were prepared before, as a model folder holds them."""
        with all_or_nothing(self):
            self.metric_, self.center_ = cast(Metric, metric), center
            self._set(entries)
            self._index()
        return self

    def search(self, queries: ArrayLike, k: int, *, exclude: Integers | None = None) -> Neighbors:
        """The `k` entries nearest to each query, nearest first, ties by id.

        A memory with fewer entries than `k` gives them all: the record has `min(k, len(memory))`
        places, and those that `exclude` left without an entry are masked.

        Parameters
        ----------
        queries : (B, D) embeddings as the encoder gives them
        exclude : (B,) positions of the entries that the queries are; each is left out of its own
            search, and so is its group
        """
        return self.search_prepared(self.prepare(queries), k, exclude=exclude)

    def search_prepared(
        self, queries: Vectors, k: int, *, exclude: Integers | None = None
    ) -> Neighbors:
        """`search` for vectors that went through `prepare`, such as `entries.embeddings`."""
        if k < 1:
            raise InvalidSettingError(f"`k` must be an integer of at least 1, got {k}.")
        self._check_remembers("search")
        self._check_exclude(exclude, len(queries))
        positions, keys = self.ranked(queries, k, exclude=exclude)
        mask = np.isfinite(keys)
        positions = np.where(mask, positions, 0)
        return Neighbors(
            positions=positions,
            labels=np.where(mask, self.entries.labels[positions], 0),
            distances=self.distances_of(keys),
            mask=mask,
        )

    def ranked(
        self, queries: Vectors, k: int, *, exclude: Integers | None = None
    ) -> tuple[Integers, Floats]:
        """Positions and keys (B, min(k, N)) of the nearest, keys being what they are compared by.

        A key is the squared Euclidean distance, or minus the inner product; a missing place has
        key infinity. Exact memories give a pair of vectors the same key, whoever of them asks.
        """
        width = min(k, len(self))
        if width == 0 or len(queries) == 0:
            shape = (len(queries), width)
            return np.zeros(shape, dtype=np.int64), np.full(shape, np.inf)
        return self._nearest(queries, width, exclude)

    def ranks(self, positions: Integers) -> Integers:
        """The places of entries in the order of their ids: equally near ones go by them."""
        return self._lookup.ranks(positions)

    def reached(self, queries: Vectors, reach: Floats) -> RangeMatches:
        """Every pair of a query and an entry whose key is at most the entry's own `reach` (N,).

        >>> from attnknn.memory import NumpyMemory, make_entries
        >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
        >>> found = memory.reached(memory.prepare([[3.0]]), np.array([4.0, 4.0, 9.0]))
        >>> found.positions.tolist(), found.keys.tolist()
        ([1, 2], [4.0, 4.0])
        """
        return range_search_reference(queries, self.entries.embeddings, reach, self.metric_)

    def ranked_and_reached(
        self, queries: Vectors, k: int, reach: Floats, exclude: Integers
    ) -> tuple[Integers, Floats, RangeMatches]:
        """`ranked` and `reached` for the same queries, in one pass where that saves work.

        What `exclude` leaves out of the search need not be among the pairs that are reached.
        """
        positions, keys = self.ranked(queries, k, exclude=exclude)
        return positions, keys, self.reached(queries, reach)

    def add(self, entries: Entries) -> None:
        """Remember `entries` too; their ids must be new."""
        self._check_remembers("add")
        self._check_width(entries.embeddings, "New entries")
        if not len(self):  # the origin stays: what was learned knows vectors from there
            self.restore(self._prepared(entries), self.metric_, self.center_)
            return
        self._lookup.refuse_known(entries.ids)
        with all_or_nothing(self):
            self._set(self.entries.joined(self._prepared(entries)))
            self._append(len(entries))

    def forget(self, ids: ArrayLike) -> None:
        """Remove the entries with these `ids`; an unknown id changes nothing and is an error."""
        positions = np.unique(self.positions_of(ids))
        keep = np.ones(len(self), dtype=bool)
        keep[positions] = False
        with all_or_nothing(self):
            self._set(self.entries.take(keep))
            self._remove(positions)

    def relabel(self, ids: ArrayLike, labels: ArrayLike) -> None:
        """Give the entries with these `ids` new label codes, one each."""
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
        """Set what age leaves of the sample weight of each entry, (N,); None: all of it."""
        self.entries = replace(self.entries, decay=decay)

    def recode(self, codes: Integers) -> None:
        """Give label code c the new code `codes[c]`: the classes are in another order."""
        self.entries = replace(self.entries, labels=codes[self.entries.labels])

    def positions_of(self, ids: ArrayLike) -> Integers:
        """The rows of the memory that hold these `ids`."""
        self._check_remembers("positions_of")
        return self._lookup.positions_of(ids)

    def prepare(self, vectors: ArrayLike) -> Vectors:
        """Vectors as this memory compares them (float32; see the class)."""
        self._check_remembers("prepare")
        array = np.asarray(vectors)
        self._check_width(array, "Queries")
        return self._as_compared(array)

    def __len__(self) -> int:
        return len(self.entries) if hasattr(self, "entries") else 0

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in self._derived}

    @abstractmethod
    def _index(self) -> None:
        """Build the search structure over `self.entries`."""

    @abstractmethod
    def _nearest(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        """Positions and keys (B, k), sorted by key and then id; a missing place has key infinity.

        The key is the squared Euclidean distance, or minus the inner product.
        """

    def _append(self, n_new: int) -> None:  # noqa: ARG002  (the plain way needs no count)
        self._index()

    def _remove(self, positions: Integers) -> None:  # noqa: ARG002
        self._index()

    @cached_property
    def _lookup(self) -> IdLookup:
        return IdLookup(self.entries.ids)

    @cached_property
    def _exclusion(self) -> Exclusion:
        return Exclusion(self.entries.groups)

    def _left_out(self, exclude: Integers) -> tuple[Integers, Integers]:
        """Pairs (query, position) that must not meet: each query's own entry and its group."""
        return self._exclusion.pairs(exclude)

    def _prepared(self, entries: Entries) -> Entries:
        vectors = self._as_compared(entries.embeddings)
        if np.may_share_memory(vectors, entries.embeddings):
            vectors = vectors.copy()  # else the caller's next write would change what is remembered
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

    def _set(self, entries: Entries) -> None:
        self.entries = entries
        self._drop(*Memory._derived)

    def _drop(self, *names: str) -> None:
        for name in names:
            self.__dict__.pop(name, None)

    def _twin(self, other: _Other) -> _Other:
        """The `other` memory with these same entries, which are not copied."""
        other.metric_, other.center_ = self.metric_, self.center_
        other._set(self.entries)
        other._index()
        return other

    def distances_of(self, keys: Floats) -> Floats:
        """Keys as distances: Euclidean, 1 − cosine, or minus the inner product."""
        if self.metric_ == "euclidean":
            return np.sqrt(keys)
        return keys / 2 if self.metric_ == "cosine" else keys

    def _check_remembers(self, method: str) -> None:
        if not hasattr(self, "entries"):
            raise NotFittedYetError(f"Call `remember` before `{method}`: there are no entries yet.")

    def _check_width(self, array: NDArray[Any], what: str) -> None:
        width = self.entries.embeddings.shape[1]
        if array.ndim != 2 or array.shape[1] != width:
            came = f"{array.shape[1]} columns" if array.ndim == 2 else f"shape {array.shape}"
            raise InvalidInputError(
                f"{what} have {came} but this memory holds embeddings of {width}. "
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
    memory : {'auto', 'faiss', 'numpy', 'torch'}, a registered name, or Memory
        An object is cloned: its settings are kept, its entries are not.
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='cpu'
        Device of a memory built by name, where it has that setting. An object keeps its own.

    Returns
    -------
    Memory

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
    cls = find("memory", memory)
    has_device = "device" in cls().get_params(deep=False)
    return cast(Memory, cls(device=device) if has_device else cls())
