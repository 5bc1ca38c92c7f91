"""The k-nearest-neighbor graph of a memory's entries, updated when the memory changes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from attnknn.memory.base import Memory
from attnknn.memory.distances import Ranking, Vectors, order_by
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.range_search import RangeMatches
from attnknn.memory.vectors import EntryVectors
from attnknn.records import Booleans, Floats, Integers, Neighbors

FREE = -1
LISTS_AT_ONCE = 2048  # lists that are merged at once: they stay in the cache
FEW = 64  # if more than one in 64 entries is removed, all lists are scanned


class NeighborGraph:
    """A list of nearest other entries for each entry, sorted by key and then id.

    After any edits of an exact memory, the lists are those that a search would find.

    Lists name entries by *slots*, which stay when positions move. A list holds a few more
    neighbors than needed: removed entries leave it, and the memory is searched again only when
    too few are left. The *radius* of a list is the key of its end: entries that are not in the
    list are at least as far. A list of all other entries has an infinite radius.

    Readers in other threads are safe: all methods hold one lock, and `neighbors` returns None
    for a memory other than the one the lists were last updated for.

    Parameters
    ----------
    k : number of neighbors that each list must have, if there are so many
    margin : further neighbors per list; None takes a quarter of `k`, at least 8

    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> graph = NeighborGraph(memory, 1)
    >>> memory.forget([1])
    >>> graph.neighbors(memory, 1) is None
    True
    >>> graph.remove_entries(memory, np.array([1]))
    >>> graph.neighbors(memory, 1).positions.ravel().tolist()
    [1, 0]
    """

    def __init__(self, memory: Memory, k: int, margin: int | None = None) -> None:
        self.k = max(1, k)
        self.width = self.k + (max(8, self.k // 4) if margin is None else margin)
        n = len(memory)
        capacity = n + n // 8
        self._lists = np.full((capacity, self.width), FREE, dtype=np.int32)
        self._keys = np.full((capacity, self.width), np.inf)
        self._radii = np.full(capacity, -np.inf)
        self._slots, self._free = np.arange(n), np.arange(n, capacity)
        self._search(memory, self._slots)
        self._vectors: EntryVectors | None = memory.vectors
        self._lock = threading.Lock()

    def matches(self, memory: Memory) -> bool:
        """Whether the lists are those of the memory's current entries."""
        return self._vectors is memory.vectors

    def neighbors(self, memory: Memory, k: int, rows: Integers | None = None) -> Neighbors | None:
        """The `k` nearest others of the entries at `rows`, or None if the lists are of others.

        The result is that of a search with `exclude=rows`.
        """
        assert k <= self.k
        with self._lock:
            if not self.matches(memory):
                return None
            own = self._slots if rows is None else self._slots[rows]
            width = max(1, min(k, len(memory) - 1))
            listed, keys = self._lists[own, :width], self._keys[own, :width]
            positions = self._positions()[listed]
        mask = listed != FREE
        positions = np.where(mask, positions, 0)
        labels = np.where(mask, memory.entries.labels[positions], 0)
        distances = memory.distances_of(np.where(mask, keys, np.inf))
        return Neighbors(positions, labels, distances, mask)

    def add_entries(self, memory: Memory, n_new: int) -> None:
        """Update the lists after `n_new` entries were added at the end of the memory."""
        with self._lock:
            self._vectors = None  # if this fails half-way, the lists belong to no memory
            new = np.arange(len(memory) - n_new, len(memory))
            radii = np.concatenate([self._radii[self._slots], np.full(n_new, -np.inf)])
            self._slots = np.concatenate([self._slots, self._take_slots(n_new)])
            width = min(self.width, len(memory) - 1)
            queries = memory.vectors[new]
            nearest, found = memory.search_both(queries, width, radii, new)
            self._write(new, nearest)
            groups = memory.entries.groups
            theirs = groups[new[found.queries]]
            found = found.take((theirs == NO_GROUP) | (theirs != groups[found.positions]))
            # With ties at the end of a list, an entry of the same key may be missing from it.
            is_at_end = found.keys == radii[found.positions]
            self._insert(memory, found.take(~is_at_end), new)
            self._search(memory, np.unique(found.positions[is_at_end]))
            self._vectors = memory.vectors

    def remove_entries(self, memory: Memory, positions: Integers) -> None:
        """Update the lists after the entries that were at `positions` were removed."""
        with self._lock:
            if self._vectors is None:
                return
            removed, self._vectors = self._vectors[positions], None
            slots = self._slots[positions]
            self._slots = np.delete(self._slots, positions)
            is_removed = np.zeros(len(self._radii), dtype=bool)
            is_removed[slots] = True
            touched = self._lists_near(memory, removed)
            self._remove(touched, is_removed)
            self._lists[slots], self._keys[slots], self._radii[slots] = FREE, np.inf, -np.inf
            self._free = np.concatenate([self._free, slots])
            n_listed = (self._lists[touched] != FREE).sum(axis=1)
            is_short = (n_listed < self.k) & (self._radii[touched] < np.inf)
            self._search(memory, self._positions()[touched[is_short]])
            self._vectors = memory.vectors

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _lists_near(self, memory: Memory, removed: Vectors) -> Integers:
        """The slots whose lists may contain one of the removed entries, by their vectors."""
        if len(removed) * FEW > len(self._slots):
            return self._slots
        found = memory.range_search(removed, self._radii[self._slots])
        return self._slots[np.unique(found.positions)]

    def _remove(self, touched: Integers, is_removed: Booleans) -> None:
        """Delete removed entries from lists; the others move up."""
        lists, keys = self._lists[touched], self._keys[touched]
        stays = (lists != FREE) & ~is_removed[lists]
        order = np.argsort(~stays, axis=1, kind="stable")
        lists, keys = np.where(stays, lists, FREE), np.where(stays, keys, np.inf)
        self._lists[touched] = np.take_along_axis(lists, order, axis=1)
        self._keys[touched] = np.take_along_axis(keys, order, axis=1)

    def _insert(self, memory: Memory, found: RangeMatches, new: Integers) -> None:
        """Insert new entries into the lists in whose range they are."""
        by_list = np.argsort(found.positions, kind="stable")
        targets, firsts, counts = np.unique(
            found.positions[by_list], return_index=True, return_counts=True
        )
        slots, keys = self._slots[new[found.queries[by_list]]], found.keys[by_list]
        by_count = np.argsort(counts, kind="stable")  # lists with few new entries first
        for start in range(0, len(targets), LISTS_AT_ONCE):
            some = by_count[start : start + LISTS_AT_ONCE]
            column = np.arange(counts[some[-1]])  # the last has the most
            is_there = column < counts[some, None]
            pairs = np.where(is_there, firsts[some, None] + column, 0)
            extra = slots[pairs], np.where(is_there, keys[pairs], np.inf)
            self._merge(memory, self._slots[targets[some]], *extra)

    def _merge(self, memory: Memory, slots: Integers, extra: Integers, extra_keys: Floats) -> None:
        """Merge other entries (H, E) into the lists of `slots`, and set the radius where cut."""
        lists = np.concatenate([self._lists[slots], extra.astype(np.int32)], axis=1)
        keys = np.concatenate([self._keys[slots], extra_keys], axis=1)
        ranks = memory.id_lookup.ranks
        order, ordered = order_by(keys, lambda rows: ranks(self._positions()[lists[rows]]))
        is_cut = ordered[:, self.width] < np.inf
        order, ordered = order[:, : self.width], ordered[:, : self.width]
        is_listed = ordered < np.inf
        self._lists[slots] = np.where(is_listed, np.take_along_axis(lists, order, axis=1), FREE)
        self._keys[slots] = ordered
        self._radii[slots] = np.where(is_cut, ordered[:, -1], self._radii[slots])

    def _search(self, memory: Memory, rows: Integers) -> None:
        """Search the memory for the lists of the entries at `rows`."""
        width = min(self.width, len(memory) - 1)
        if width < 1 or not len(rows):
            slots = self._slots[rows]
            self._lists[slots], self._keys[slots], self._radii[slots] = FREE, np.inf, np.inf
            return
        self._write(rows, memory.search_keys(memory.vectors[rows], width, exclude=rows))

    def _write(self, rows: Integers, nearest: Ranking) -> None:
        """Set the lists of the entries at `rows` to the result of a search."""
        positions, keys = nearest
        slots, width = self._slots[rows], positions.shape[1]
        self._lists[slots], self._keys[slots], self._radii[slots] = FREE, np.inf, np.inf
        is_found = np.isfinite(keys)
        self._lists[slots, :width] = np.where(is_found, self._slots[positions], FREE)
        self._keys[slots, :width] = np.where(is_found, keys, np.inf)
        is_full = is_found.all(axis=1) & (width == self.width)
        self._radii[slots] = np.where(is_full, self._keys[slots, width - 1], np.inf)

    def _positions(self) -> Integers:
        """The position of each slot in use."""
        positions = np.zeros(len(self._radii), dtype=np.int64)
        positions[self._slots] = np.arange(len(self._slots))
        return positions

    def _take_slots(self, n: int) -> Integers:
        if n > len(self._free):
            self._grow(max(n - len(self._free), len(self._radii) // 2))
        taken, self._free = self._free[:n], self._free[n:]
        return taken

    def _grow(self, n: int) -> None:
        """Reserve `n` more slots."""
        n_before = len(self._radii)
        self._lists = np.concatenate([self._lists, np.full((n, self.width), FREE, dtype=np.int32)])
        self._keys = np.concatenate([self._keys, np.full((n, self.width), np.inf)])
        self._radii = np.concatenate([self._radii, np.full(n, -np.inf)])
        self._free = np.concatenate([self._free, np.arange(n_before, n_before + n)])
