"""Where each id is, and which id comes first, without a table of a million Python objects."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn.errors import InvalidInputError, UnknownEntryError
from attnknn.records import Booleans, Integers

LARGEST_ID = np.iinfo(np.int64).max


class IdLookup:
    """Sorted ids and a binary search.

    >>> lookup = IdLookup(np.array([30, 10, 20]))
    >>> lookup.positions_of([20, 30]).tolist(), lookup.ranks(np.array([0, 1])).tolist()
    ([2, 0], [2, 0])
    """

    def __init__(self, ids: NDArray[Any]) -> None:
        self.ids = ids

    def positions_of(self, wanted: ArrayLike) -> Integers:
        """The row of each of the `wanted` ids; an unknown one is an error."""
        asked = as_ids(wanted)
        rows, found = self._look_up(asked)
        if not found.all():
            raise UnknownEntryError(f"No entry has the id {asked.tolist()[np.argmin(found)]!r}.")
        return rows

    def refuse_known(self, ids: NDArray[Any]) -> None:
        """An error where one of the `ids` is here already, or is of the other kind."""
        if len(self.ids) and len(ids) and (self.ids.dtype == object) != (ids.dtype == object):
            kinds = ("strings", "integers") if self.ids.dtype == object else ("integers", "strings")
            raise InvalidInputError(
                f"`ids` must be {kinds[0]} like those that are remembered, got {kinds[1]}."
            )
        found = self._look_up(ids)[1]
        if found.any():
            known = ids.tolist()[np.argmax(found)]
            raise InvalidInputError(f"`ids` must be new, {known!r} is remembered already.")

    def ranks(self, positions: Integers) -> Integers:
        """The places of the ids at `positions` in sorted order: ties in distance go by them."""
        return positions if self._is_sorted else self._inverse[positions]

    def _look_up(self, asked: NDArray[Any]) -> tuple[Integers, Booleans]:
        """Row of each asked id, and whether it is there at all."""
        if not len(self.ids) or (self.ids.dtype == object) != (asked.dtype == object):
            return np.zeros(len(asked), dtype=np.int64), np.zeros(len(asked), dtype=bool)
        places = np.searchsorted(self._sorted, asked)
        places = np.minimum(places, len(self.ids) - 1).astype(np.int64)
        found = np.asarray(self._sorted[places] == asked, dtype=bool)
        return (places if self._is_sorted else self._order[places]), found

    @cached_property
    def _is_sorted(self) -> bool:
        return bool(np.all(self.ids[1:] > self.ids[:-1]))

    @cached_property
    def _order(self) -> Integers:
        return np.argsort(self.ids, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[Any]:
        return self.ids if self._is_sorted else self.ids[self._order]

    @cached_property
    def _inverse(self) -> Integers:
        inverse = np.empty(len(self.ids), dtype=np.int64)
        inverse[self._order] = np.arange(len(self.ids))
        return inverse


def as_ids(ids: ArrayLike) -> NDArray[Any]:
    """One-dimensional ids: int64, or strings as objects; other kinds are an error.

    >>> as_ids(["a", "long name"]).dtype, as_ids(7).tolist()
    (dtype('O'), [7])
    """
    array = np.atleast_1d(np.asarray(ids))
    if array.dtype.kind in "OT":
        array = np.asarray(array.tolist())
    if array.dtype.kind == "u" and array.size and array.max() > LARGEST_ID:
        raise InvalidInputError(f"`ids` must be at most {LARGEST_ID}, got {array.max()}.")
    if array.dtype.kind in "iu" or not array.size:
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array.astype(object)  # fixed-width strings would cut a longer id that is added later
    raise InvalidInputError(f"`ids` must be integers or strings, got {array.dtype}.")


def refuse_repeated(ids: NDArray[Any]) -> None:
    """An error that names an id that comes twice."""
    if np.all(ids[1:] > ids[:-1]):
        return
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(repeated):
        twice = ordered.tolist()[repeated[0]]
        raise InvalidInputError(f"`ids` must be distinct, {twice!r} comes twice.")
