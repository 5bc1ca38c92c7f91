"""Which query must not meet which entry: itself and its group."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from attnknn.memory.entries import NO_GROUP
from attnknn.records import Integers


class Exclusion:
    """The entries that each entry's own search leaves out.

    >>> queries, positions = Exclusion(np.array([7, -1, 7])).pairs(np.array([1, 2]))
    >>> queries.tolist(), positions.tolist()
    ([0, 1, 1], [1, 0, 2])
    """

    def __init__(self, groups: Integers) -> None:
        self.groups = groups

    def pairs(self, exclude: Integers) -> tuple[Integers, Integers]:
        """Pairs (query, position) that must not meet; `exclude` holds each query's position."""
        sizes = self.sizes(exclude)
        queries = np.repeat(np.arange(len(exclude), dtype=np.int64), sizes)
        members = np.repeat(exclude, sizes)
        grouped = np.flatnonzero(self.groups[exclude] != NO_GROUP)
        if len(grouped):
            within = np.arange(len(queries)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            first = np.repeat(np.searchsorted(self._ordered, self.groups[exclude]), sizes)
            in_group = self.groups[members] != NO_GROUP
            members[in_group] = self._order[(first + within)[in_group]]
        return queries, members

    def sizes(self, exclude: Integers) -> Integers:
        """How many entries each query leaves out."""
        sizes = np.ones(len(exclude), dtype=np.int64)
        groups = self.groups[exclude]
        grouped = groups != NO_GROUP
        if grouped.any():
            last = np.searchsorted(self._ordered, groups[grouped], side="right")
            sizes[grouped] = last - np.searchsorted(self._ordered, groups[grouped])
        return sizes

    @cached_property
    def _order(self) -> Integers:
        return np.argsort(self.groups, kind="stable")

    @cached_property
    def _ordered(self) -> Integers:
        return self.groups[self._order]
