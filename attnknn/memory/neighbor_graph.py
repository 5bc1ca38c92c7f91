"""Each entry's nearest others, kept up to date while the memory changes."""

from __future__ import annotations

import numpy as np

from attnknn.memory.base import Memory
from attnknn.memory.distances import Vectors, order_by
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.range_search import RangeMatches
from attnknn.records import Booleans, Floats, Integers, Neighbors

FREE = -1
HOSTS_AT_ONCE = 2048  # lists that are merged at once: they stay in the cache
FEW = 64  # a share of the entries; of more than one in so many all lists are looked through


class NeighborGraph:
    """For each entry a list of its nearest other entries, by key and then id.

    Lists name entries by *slots*, which stay when positions move. A list has room for some more
    than are asked for: entries that are forgotten leave it, and only when too few are left is the
    memory searched again. Entries beyond the end of a list are at least as far as its *reach*; a
    list that holds everyone has infinite reach, so that newcomers always enter it.

    After any edits of an exact memory, the lists are those that a search would find.

    Parameters
    ----------
    k : how many others each entry must have in its list, where there are so many
    margin : room for more; None takes a quarter of `k`, at least 8

    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> others = NeighborGraph(memory, 1)
    >>> memory.forget([1])
    >>> others.forgot(memory, np.array([1]))
    >>> others.neighbors(memory, 1).positions.ravel().tolist()
    [1, 0]
    """

    def __init__(self, memory: Memory, k: int, margin: int | None = None) -> None:
        self.k = max(1, k)
        self.width = self.k + (max(8, self.k // 4) if margin is None else margin)
        n = len(memory)
        room = n + n // 8
        self._lists = np.full((room, self.width), FREE, dtype=np.int32)
        self._keys = np.full((room, self.width), np.inf)
        self._reach = np.full(room, -np.inf)
        self._slots, self._free = np.arange(n), np.arange(n, room)
        self._search(memory, self._slots)
        self._embeddings: Vectors | None = memory.entries.embeddings

    def is_of(self, memory: Memory) -> bool:
        """Whether the lists are those of the memory's present entries."""
        return self._embeddings is memory.entries.embeddings

    def neighbors(self, memory: Memory, k: int, rows: Integers | None = None) -> Neighbors:
        """The `k` nearest others of the entries at `rows`, as a search without them finds them."""
        assert self.is_of(memory)
        assert k <= self.k
        rows = np.arange(len(memory)) if rows is None else rows
        own = self._slots[rows]
        width = max(1, min(k, len(memory) - 1))
        listed, keys = self._lists[own, :width], self._keys[own, :width]
        mask = listed != FREE
        positions = np.where(mask, self._positions()[listed], 0)
        labels = np.where(mask, memory.entries.labels[positions], 0)
        distances = memory.distances_of(np.where(mask, keys, np.inf))
        return Neighbors(positions, labels, distances, mask)

    def added(self, memory: Memory, n_new: int) -> None:
        """The last `n_new` entries of the memory are new."""
        self._embeddings = None  # nobody's lists until they are whole again
        newcomers = np.arange(len(memory) - n_new, len(memory))
        reach = np.concatenate([self._reach[self._slots], np.full(n_new, -np.inf)])
        self._slots = np.concatenate([self._slots, self._take_slots(n_new)])
        width = min(self.width, len(memory) - 1)
        queries = memory.entries.embeddings[newcomers]
        positions, keys, found = memory.ranked_and_reached(queries, width, reach, newcomers)
        self._write(newcomers, positions, keys)
        groups = memory.entries.groups
        theirs = groups[newcomers[found.queries]]
        found = found.part((theirs == NO_GROUP) | (theirs != groups[found.positions]))
        # Among equals the end of a list is not known: others of the same key may wait behind it.
        is_at_end = found.keys == reach[found.positions]
        self._take_in(memory, found.part(~is_at_end), newcomers)
        again = np.unique(found.positions[is_at_end])
        self._search(memory, again)
        self._embeddings = memory.entries.embeddings

    def forgot(self, memory: Memory, positions: Integers) -> None:
        """The entries that were at `positions` are gone from the memory."""
        assert self._embeddings is not None
        gone, self._embeddings = self._embeddings[positions], None
        stays = np.ones(len(self._slots), dtype=bool)
        stays[positions] = False
        left = self._slots[positions]
        self._slots = self._slots[stays]
        is_gone = np.zeros(len(self._reach), dtype=bool)
        is_gone[left] = True
        touched = self._hosts(memory, gone)
        self._remove(touched, is_gone)
        self._lists[left], self._keys[left], self._reach[left] = FREE, np.inf, -np.inf
        self._free = np.concatenate([self._free, left])
        n_listed = (self._lists[touched] != FREE).sum(axis=1)
        is_short = (n_listed < self.k) & (self._reach[touched] < np.inf)
        self._search(memory, self._positions()[touched[is_short]])
        self._embeddings = memory.entries.embeddings

    def _hosts(self, memory: Memory, gone: Vectors) -> Integers:
        """The slots in use whose lists may name one of those that are gone, by their vectors."""
        if len(gone) * FEW > len(self._slots):
            return self._slots
        found = memory.reached(gone, self._reach[self._slots])
        return self._slots[np.unique(found.positions)]

    def _remove(self, touched: Integers, is_gone: Booleans) -> None:
        """Take those that are gone out of lists; the others move up."""
        lists, keys = self._lists[touched], self._keys[touched]
        stays = (lists != FREE) & ~is_gone[lists]
        order = np.argsort(~stays, axis=1, kind="stable")
        lists, keys = np.where(stays, lists, FREE), np.where(stays, keys, np.inf)
        self._lists[touched] = np.take_along_axis(lists, order, axis=1)
        self._keys[touched] = np.take_along_axis(keys, order, axis=1)

    def _take_in(self, memory: Memory, found: RangeMatches, newcomers: Integers) -> None:
        """Put newcomers into the lists of those who reach them, short of newcomers first."""
        by_host = np.argsort(found.positions, kind="stable")
        hosts, firsts, counts = np.unique(
            found.positions[by_host], return_index=True, return_counts=True
        )
        slots, keys = self._slots[newcomers[found.queries[by_host]]], found.keys[by_host]
        by_count = np.argsort(counts, kind="stable")
        for start in range(0, len(hosts), HOSTS_AT_ONCE):
            some = by_count[start : start + HOSTS_AT_ONCE]
            column = np.arange(counts[some[-1]])  # the last has the most
            is_there = column < counts[some, None]
            pairs = np.where(is_there, firsts[some, None] + column, 0)
            extra = slots[pairs], np.where(is_there, keys[pairs], np.inf)
            self._merge(memory, self._slots[hosts[some]], *extra)

    def _merge(self, memory: Memory, slots: Integers, extra: Integers, extra_keys: Floats) -> None:
        """Others (H, E) enter the lists of `slots`; what is cut off ends a list that held all."""
        lists = np.concatenate([self._lists[slots], extra.astype(np.int32)], axis=1)
        keys = np.concatenate([self._keys[slots], extra_keys], axis=1)
        order, ordered = order_by(keys, lambda rows: memory.ranks(self._positions()[lists[rows]]))
        is_cut = ordered[:, self.width] < np.inf
        order, ordered = order[:, : self.width], ordered[:, : self.width]
        is_listed = ordered < np.inf
        self._lists[slots] = np.where(is_listed, np.take_along_axis(lists, order, axis=1), FREE)
        self._keys[slots] = ordered
        self._reach[slots] = np.where(is_cut, ordered[:, -1], self._reach[slots])

    def _search(self, memory: Memory, rows: Integers) -> None:
        """Lists of the entries at `rows`, found again."""
        width = min(self.width, len(memory) - 1)
        if width < 1 or not len(rows):
            slots = self._slots[rows]
            self._lists[slots], self._keys[slots], self._reach[slots] = FREE, np.inf, np.inf
            return
        queries = memory.entries.embeddings[rows]
        self._write(rows, *memory.ranked(queries, width, exclude=rows))

    def _write(self, rows: Integers, positions: Integers, keys: Floats) -> None:
        """Lists of the entries at `rows`, as a search found them."""
        slots, width = self._slots[rows], positions.shape[1]
        self._lists[slots], self._keys[slots], self._reach[slots] = FREE, np.inf, np.inf
        is_found = np.isfinite(keys)
        self._lists[slots, :width] = np.where(is_found, self._slots[positions], FREE)
        self._keys[slots, :width] = np.where(is_found, keys, np.inf)
        is_full = is_found.all(axis=1) & (width == self.width)
        self._reach[slots] = np.where(is_full, self._keys[slots, width - 1], np.inf)

    def _positions(self) -> Integers:
        """The position of each slot in use."""
        positions = np.zeros(len(self._reach), dtype=np.int64)
        positions[self._slots] = np.arange(len(self._slots))
        return positions

    def _take_slots(self, n: int) -> Integers:
        if n > len(self._free):
            self._grow(max(n - len(self._free), len(self._reach) // 2))
        taken, self._free = self._free[:n], self._free[n:]
        return taken

    def _grow(self, n: int) -> None:
        """Room for `n` more slots."""
        n_before = len(self._reach)
        self._lists = np.concatenate([self._lists, np.full((n, self.width), FREE, dtype=np.int32)])
        self._keys = np.concatenate([self._keys, np.full((n, self.width), np.inf)])
        self._reach = np.concatenate([self._reach, np.full(n, -np.inf)])
        self._free = np.concatenate([self._free, np.arange(n_before, n_before + n)])
