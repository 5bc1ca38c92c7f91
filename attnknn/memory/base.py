"""What a memory must do: remember entries, search them, and change by add, forget and relabel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from attnknn.errors import InvalidInputError, InvalidSettingError, UnknownEntryError, unknown_name
from attnknn.memory.entries import NO_GROUP, Entries
from attnknn.records import Floats, Integers, Neighbors

Metric = Literal["euclidean", "cosine", "inner_product"]
METRICS = ("euclidean", "cosine", "inner_product")
Vectors = NDArray[np.float32]


class Memory(ABC, BaseEstimator):
    """Entries and their search; the parts that every memory shares.

    A memory works on *prepared* vectors: moved near the origin for `euclidean`, of unit length for
    `cosine`, as they come for `inner_product`. An implementation gives `_index` and `_nearest`,
    and may give `_append` and `_remove` where it can do better than index everything anew.
    """

    entries: Entries
    metric_: Metric
    is_exact: bool = True

    def remember(self, entries: Entries, metric: Metric = "euclidean") -> Self:
        """Start anew with `entries`."""
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        self.metric_ = metric
        self.center_ = _center(entries.embeddings) if metric == "euclidean" else None
        self._set(replace(entries, embeddings=self.prepare(entries.embeddings)))
        self._index()
        return self

    def search(
        self, queries: ArrayLike, k: int, *, exclude: Integers | None = None
    ) -> Neighbors:
        """The `k` entries nearest to each query, nearest first, ties by id.

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
        width = min(k, len(self))
        if width == 0 or len(queries) == 0:
            empty = np.zeros((len(queries), width), dtype=np.int64)
            return Neighbors(empty, empty, empty.astype(float), empty.astype(bool))
        positions, keys = self._nearest(queries, width, exclude)
        mask = np.isfinite(keys)
        positions = np.where(mask, positions, 0)
        return Neighbors(
            positions=positions,
            labels=np.where(mask, self.entries.labels[positions], 0),
            distances=self._distances(keys),
            mask=mask,
        )

    def add(self, entries: Entries) -> None:
        """Remember `entries` too; their ids must be new."""
        self._check_width(entries.embeddings)
        for given in entries.ids.tolist():
            if given in self._position_of:
                raise InvalidInputError(f"`ids` must be new, {given!r} is remembered already.")
        entries = replace(entries, embeddings=self.prepare(entries.embeddings))
        self._set(self.entries.joined(entries))
        self._append(len(entries))

    def forget(self, ids: ArrayLike) -> None:
        """Remove the entries with these `ids`; an unknown id changes nothing and is an error."""
        positions = np.unique(self.positions_of(ids))
        keep = np.ones(len(self), dtype=bool)
        keep[positions] = False
        self._set(self.entries.take(keep))
        self._remove(positions)

    def relabel(self, ids: ArrayLike, labels: ArrayLike) -> None:
        """Give the entries with these `ids` new label codes."""
        positions = self.positions_of(ids)
        changed = self.entries.labels.copy()
        changed[positions] = np.asarray(labels, dtype=np.int64)
        self.entries = replace(self.entries, labels=changed)

    def positions_of(self, ids: ArrayLike) -> Integers:
        """The rows of the memory that hold these `ids`."""
        wanted = np.atleast_1d(np.asarray(ids)).tolist()
        unknown = [given for given in wanted if given not in self._position_of]
        if unknown:
            raise UnknownEntryError(f"No entry has the id {unknown[0]!r}.")
        return np.array([self._position_of[given] for given in wanted], dtype=np.int64)

    def prepare(self, vectors: ArrayLike) -> Vectors:
        """Vectors as this memory compares them (float32; see the class)."""
        array = np.asarray(vectors)
        if hasattr(self, "entries"):
            self._check_width(array)
        if self.metric_ == "euclidean" and self.center_ is not None:
            array = array - self.center_.astype(array.dtype)
        elif self.metric_ == "cosine":
            array = _unit_length(array)
        return np.ascontiguousarray(array, dtype=np.float32)

    def __len__(self) -> int:
        return len(self.entries) if hasattr(self, "entries") else 0

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

    def _left_out(self, exclude: Integers) -> tuple[Integers, Integers]:
        """Pairs (query, position) that must not meet: each query's own entry and its group."""
        queries = np.arange(len(exclude), dtype=np.int64)
        groups = self.entries.groups[exclude]
        grouped = queries[groups != NO_GROUP]
        if not len(grouped):
            return queries, exclude
        order = np.argsort(self.entries.groups, kind="stable")
        ordered = self.entries.groups[order]
        first = np.searchsorted(ordered, groups[grouped], side="left")
        sizes = np.searchsorted(ordered, groups[grouped], side="right") - first
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        members = order[starts + np.arange(sizes.sum())]
        alone = groups == NO_GROUP
        return (
            np.concatenate([queries[alone], np.repeat(grouped, sizes)]),
            np.concatenate([exclude[alone], members]),
        )

    def _set(self, entries: Entries) -> None:
        self.entries = entries
        ids = entries.ids.tolist()
        self._position_of = dict(zip(ids, range(len(ids)), strict=True))
        self._id_rank = _ranks(entries.ids)

    def _distances(self, keys: Floats) -> Floats:
        if self.metric_ == "euclidean":
            return np.sqrt(np.maximum(keys, 0.0))
        return keys / 2 if self.metric_ == "cosine" else keys

    def _check_width(self, array: NDArray[Any]) -> None:
        width = self.entries.embeddings.shape[1]
        if array.ndim != 2 or array.shape[1] != width:
            raise InvalidInputError(
                f"Queries have {array.shape[-1] if array.ndim else 0} columns but this memory "
                f"holds embeddings of {width}. Was the encoder changed after `fit`?"
            )


def _center(vectors: NDArray[Any]) -> Floats:
    """A point near the middle of `vectors`, on a grid of powers of two.

    Moving the origin there keeps float32 differences exact far from zero; on the grid, whole
    numbers stay whole, so equal distances stay equal and the order of the rows does not matter.
    """
    if not len(vectors):
        return np.zeros(vectors.shape[1])
    middle = vectors.mean(axis=0, dtype=np.float64)
    spread = vectors.std(axis=0, dtype=np.float64)
    grid = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))))
    return np.round(middle / grid) * grid


def _unit_length(vectors: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if len(lengths) and not (lengths > 0).all():
        row = int(np.flatnonzero(lengths[:, 0] == 0)[0])
        raise InvalidInputError(
            f"`metric='cosine'` needs rows with a direction, row {row} is all zeros."
        )
    return vectors / lengths


def _ranks(ids: NDArray[Any]) -> Integers:
    """The place of each id in sorted order: what ties in distance are broken by."""
    if ids.dtype == object:
        ids = ids.astype(str)
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    return ranks


def in_order(positions: Integers, keys: Floats, id_rank: Integers, k: int) -> Any:
    """Candidates (B, M) sorted by key, then id, and cut to the first `k`."""
    by_id = np.argsort(id_rank[positions], axis=1, kind="stable")
    keys = np.take_along_axis(keys, by_id, axis=1)
    positions = np.take_along_axis(positions, by_id, axis=1)
    by_key = np.argsort(keys, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(positions, by_key, axis=1), np.take_along_axis(keys, by_key, axis=1)
