"""Entries of a memory, in arrays of equal length, and lookups by id and by group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._validation import is_missing
from attnknn.errors import InvalidInputError, UnknownEntryError
from attnknn.records import Booleans, Floats, Integers

MAX_ID = np.iinfo(np.int64).max


class IdLookup:
    """Positions and order of ids, by binary search.

    >>> lookup = IdLookup(np.array([30, 10, 20]))
    >>> lookup.positions_of([20, 30]).tolist(), lookup.ranks(np.array([0, 1])).tolist()
    ([2, 0], [2, 0])
    """

    def __init__(self, ids: NDArray[Any]) -> None:
        self.ids = ids

    def positions_of(self, wanted: ArrayLike) -> Integers:
        """The position of each of the `wanted` ids; an unknown one is an error."""
        asked = as_ids(wanted)
        rows, found = self._look_up(asked)
        if not found.all():
            raise UnknownEntryError(f"No entry has the id {asked.tolist()[np.argmin(found)]!r}.")
        return rows

    def are_known(self, ids: NDArray[Any]) -> Booleans:
        """Whether each of the `ids` has an entry."""
        return self._look_up(ids)[1]

    def refuse_known(self, ids: NDArray[Any]) -> None:
        """Raise if one of the `ids` is known already or has another type."""
        if len(self.ids) and len(ids) and (self.ids.dtype == object) != (ids.dtype == object):
            kinds = ("strings", "integers") if self.ids.dtype == object else ("integers", "strings")
            raise InvalidInputError(
                f"`ids` must be {kinds[0]} like those in the memory, got {kinds[1]}."
            )
        found = self._look_up(ids)[1]
        if found.any():
            known = ids.tolist()[np.argmax(found)]
            raise InvalidInputError(f"`ids` must be new, {known!r} is in the memory already.")

    def ranks(self, positions: Integers) -> Integers:
        """The ranks of the ids at `positions` in sorted order, which break ties in distance."""
        return positions if self._is_sorted else self._inverse[positions]

    def _look_up(self, asked: NDArray[Any]) -> tuple[Integers, Booleans]:
        """Position of each id, and whether it is known."""
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
    """One-dimensional ids: int64, or strings as objects; other types are an error.

    >>> as_ids(["a", "long name"]).dtype, as_ids(7).tolist()
    (dtype('O'), [7])
    """
    array = np.atleast_1d(np.asarray(ids))
    if array.dtype.kind in "OT":
        array = np.asarray(array.tolist())
    if array.dtype.kind == "u" and array.size and array.max() > MAX_ID:
        raise InvalidInputError(f"`ids` must be at most {MAX_ID}, got {array.max()}.")
    if array.dtype.kind in "iu" or not array.size:
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array.astype(object)  # fixed-width strings would truncate a longer id added later
    raise InvalidInputError(f"`ids` must be integers or strings, got {array.dtype}.")


def refuse_repeated(ids: NDArray[Any]) -> None:
    """Raise if an id occurs twice."""
    if np.all(ids[1:] > ids[:-1]):
        return
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(repeated):
        twice = ordered.tolist()[repeated[0]]
        raise InvalidInputError(f"`ids` must be distinct, {twice!r} occurs twice.")


NO_GROUP = -1
NOBODY = ""


@dataclass(frozen=True, kw_only=True)
class EntryColumns:
    """What a memory keeps in arrays about its entries: everything but their vectors.

    Parameters
    ----------
    labels : ndarray of shape (n_entries,)
        Label codes.
    ids : ndarray of shape (n_entries,)
        Distinct integers or strings.
    groups : ndarray of shape (n_entries,)
        Entries of one group are left out of each other's leave-one-out search; -1 means no group.
    sample_weight : ndarray of shape (n_entries,)
        Positive weights; a neighbor's log weight is added to its score.
    held_out : ndarray of shape (n_entries,)
        True for entries that no learned part was trained on.
    payloads : ndarray of shape (n_entries,), default=None
        Objects shown with the evidence.
    subjects : ndarray of shape (n_entries,), default=None
        Data subject (person) of each entry as a string; "" means no subject.
    decay : ndarray of shape (n_entries,), default=None
        Factor of the sample weight, above 0, up to 1; None means no decay.

    Examples
    --------
    >>> from attnknn.memory import NumpyMemory
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0]], [0, 1], groups=[4, 4]))
    >>> memory.entries.groups.tolist()
    [4, 4]
    """

    labels: Integers
    ids: NDArray[Any]
    groups: Integers
    sample_weight: Floats
    held_out: Booleans
    payloads: NDArray[np.object_] | None = None
    subjects: NDArray[np.object_] | None = None
    decay: Floats | None = None

    @property
    def effective_weight(self) -> Floats:
        """Sample weight × decay of each entry."""
        return self.sample_weight if self.decay is None else self.sample_weight * self.decay

    def __len__(self) -> int:
        return len(self.labels)

    def ids_of(self, subject: str) -> NDArray[Any]:
        """Look up the ids of all entries of a data subject.

        Parameters
        ----------
        subject : str
            Name of the data subject (person).

        Returns
        -------
        ndarray
            The ids.

        Raises
        ------
        UnknownEntryError
            If the subject has no entries.
        """
        if self.subjects is None or subject == NOBODY or subject not in self.subjects:
            raise UnknownEntryError(f"No entry belongs to the subject {subject!r}.")
        return self.ids[self.subjects == subject]

    def take(self, rows: Integers | Booleans) -> Self:
        """Select entries.

        Parameters
        ----------
        rows : ndarray
            Positions or a boolean mask.

        Returns
        -------
        EntryColumns
            The selected entries, of the same type.
        """
        return self._mapped(lambda _, array: array[rows])

    def joined(self, other: Self) -> Self:
        """Concatenate two sets of entries.

        Parameters
        ----------
        other : EntryColumns
            Entries to append, of the same type.

        Returns
        -------
        EntryColumns
            These entries followed by the others.
        """
        if not (len(self) and len(other)):
            return self if len(self) else other
        mine, theirs = self._filled_like(other), other._filled_like(self)
        return mine._mapped(lambda name, array: np.concatenate([array, getattr(theirs, name)]))

    def with_vectors(self, embeddings: NDArray[Any]) -> Entries:
        """Combine these columns with vectors.

        Parameters
        ----------
        embeddings : ndarray of shape (n_entries, n_features)
            One vector for each entry.

        Returns
        -------
        Entries
            The entries, which share the arrays.
        """
        columns = {f.name: getattr(self, f.name) for f in fields(EntryColumns)}
        return Entries(embeddings=embeddings, **columns)

    def _filled_like(self, other: EntryColumns) -> Self:
        """The same entries, with arrays for the optional columns that `other` has."""
        n = len(self)
        defaults: dict[str, Any] = {
            "payloads": np.full(n, None, dtype=object),
            "subjects": np.full(n, NOBODY, dtype=object),
            "decay": np.ones(n),
        }
        missing = {name: array for name, array in defaults.items() if getattr(self, name) is None}
        return replace(self, **{n: a for n, a in missing.items() if getattr(other, n) is not None})

    def _mapped(self, change: Callable[[str, NDArray[Any]], NDArray[Any]]) -> Self:
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        changed: dict[str, Any] = {
            name: None if array is None else change(name, array) for name, array in arrays.items()
        }
        return type(self)(**changed)


@dataclass(frozen=True, kw_only=True)
class Entries(EntryColumns):
    """Entries with their vectors, as they are given to a memory or read from one.

    Parameters
    ----------
    embeddings : ndarray of shape (n_entries, n_features)
        Embeddings; what `Memory.read` returns are prepared float32 vectors.
    labels, ids, groups, sample_weight, held_out, payloads, subjects, decay : ndarray
        The columns, see `EntryColumns`.

    Examples
    --------
    >>> make_entries([[0.0], [1.0]], [0, 1], groups=[4, 4]).groups.tolist()
    [4, 4]
    """

    embeddings: NDArray[np.float32]

    @property
    def columns(self) -> EntryColumns:
        """Everything but the vectors."""
        return EntryColumns(**{f.name: getattr(self, f.name) for f in fields(EntryColumns)})


@dataclass(frozen=True)
class RowMetadata:
    """Optional columns of rows beside their labels; see `Entries`."""

    ids: ArrayLike | None = None
    groups: ArrayLike | None = None
    sample_weight: ArrayLike | None = None
    payloads: Any = None
    subjects: ArrayLike | None = None

    def grouped(self, known: EntryColumns | None = None) -> RowMetadata:
        """The same with the rows of each subject as one group, unless groups are given."""
        if self.subjects is None or self.groups is not None:
            return self
        subjects = _checked_subjects(self.subjects)
        return replace(self, subjects=subjects, groups=groups_by_subject(subjects, known))


def groups_by_subject(subjects: NDArray[Any], known: EntryColumns | None = None) -> Integers:
    """Group (n,) of each subject, that of its `known` entries if it has any; -1 for nobody.

    >>> groups_by_subject(np.array(["ann", "", "ann", "bob"], dtype=object)).tolist()
    [0, -1, 0, 1]
    """
    groups: dict[str, int] = {}
    if known is not None and known.subjects is not None:
        groups = dict(zip(known.subjects.tolist(), known.groups.tolist(), strict=True))
    groups = {name: group for name, group in groups.items() if group != NO_GROUP}
    free = 1 + max([NO_GROUP, *([] if known is None else known.groups.tolist())])
    groups[NOBODY] = NO_GROUP
    for name in subjects.tolist():
        if groups.setdefault(name, free) == free:
            free += 1
    return np.array([groups[name] for name in subjects.tolist()], dtype=np.int64)


def make_entries(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    payloads: Any = None,
    subjects: ArrayLike | None = None,
    held_out: bool | ArrayLike = True,
    first_id: int = 0,
) -> Entries:
    """Build entries, with defaults for the columns that are not given.

    Parameters
    ----------
    embeddings : array-like of shape (n_entries, n_features)
        Embeddings as the encoder returns them.
    labels : array-like of shape (n_entries,)
        Label codes.
    ids, groups, sample_weight, payloads, subjects : array-like of shape (n_entries,), default=None
        Columns of `Entries`. By default ids count up from `first_id`, weights are 1, and there
        are no groups.
    held_out : bool or array-like of shape (n_entries,), default=True
        False for entries that a learned part is trained on.
    first_id : int, default=0
        First id if no ids are given.

    Returns
    -------
    Entries
        The entries; see there for the columns.

    Raises
    ------
    InvalidInputError
        If a column has another length than `embeddings`, or ids repeat.

    Examples
    --------
    >>> entries = make_entries([[0.0], [1.0]], [0, 1])
    >>> entries.ids.tolist(), entries.sample_weight.tolist()
    ([0, 1], [1.0, 1.0])
    """
    embeddings = _checked_embeddings(embeddings)
    n = len(embeddings)
    if ids is None:
        ids = np.arange(first_id, first_id + n, dtype=np.int64)
    entries = Entries(
        embeddings=embeddings,
        labels=np.asarray(labels, dtype=np.int64),
        ids=as_ids(ids),
        groups=group_codes(groups, n),
        sample_weight=_checked_sample_weight(sample_weight, n),
        held_out=np.broadcast_to(np.asarray(held_out, dtype=bool), (n,)).copy(),
        payloads=_checked_payloads(payloads),
        subjects=None if subjects is None else _checked_subjects(subjects),
    )
    for name in ("labels", "ids", "groups", "sample_weight", "payloads", "subjects"):
        array = getattr(entries, name)
        if array is not None and array.shape != (n,):
            raise InvalidInputError(
                f"`{name}` must hold one value for each of the {n} rows, got shape {array.shape}."
            )
    refuse_repeated(entries.ids)
    return entries


def _checked_embeddings(embeddings: ArrayLike) -> NDArray[Any]:
    array = np.asarray(embeddings)
    if array.shape == (0,):
        array = array.reshape(0, 0)
    if array.ndim != 2:
        raise InvalidInputError(
            f"`embeddings` must have one row for each entry, got shape {array.shape}."
        )
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def group_codes(groups: ArrayLike | None, n: int) -> Integers:
    """Groups (n,) as integers; -1 where none are given."""
    if groups is None:
        return np.full(n, NO_GROUP, dtype=np.int64)
    groups = np.asarray(groups)
    if groups.dtype.kind not in "iu":
        raise InvalidInputError(f"`groups` must be integers, got {groups.dtype}.")
    return groups.astype(np.int64)


def _checked_sample_weight(sample_weight: ArrayLike | None, n: int) -> Floats:
    if sample_weight is None:
        return np.ones(n)
    sample_weight = np.asarray(sample_weight, dtype=np.float64)
    if not (np.isfinite(sample_weight).all() and (sample_weight > 0).all()):
        raise InvalidInputError("`sample_weight` must be positive and finite for every row.")
    return sample_weight


def _checked_payloads(payloads: Any) -> NDArray[np.object_] | None:
    if payloads is None:
        return None
    items = list(payloads)
    array = np.full(len(items), None, dtype=object)
    array[:] = items
    return array


def _checked_subjects(subjects: ArrayLike) -> NDArray[np.object_]:
    """Data subjects as strings: 7 and "7" are one person."""
    names = np.asarray(subjects, dtype=object)
    texts = [NOBODY if is_missing(name) else str(name) for name in names.ravel()]
    return np.array(texts, dtype=object).reshape(names.shape)


class Exclusion:
    """Lookup of the entries that an entry's own search leaves out: itself and its group.

    >>> queries, positions = Exclusion(np.array([7, -1, 7])).pairs(np.array([1, 2]))
    >>> queries.tolist(), positions.tolist()
    ([0, 1, 1], [1, 0, 2])
    """

    def __init__(self, groups: Integers) -> None:
        self.groups = groups

    def pairs(self, exclude: Integers) -> tuple[Integers, Integers]:
        """Pairs (query, position) to leave out; `exclude` holds the position of each query."""
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
        """Number of entries that each query leaves out."""
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
