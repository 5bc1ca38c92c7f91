"""Entries that are copies of each other, or nearly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Floats, Integers, Neighbors

ROUNDING = 1e-9  # by which a squared distance may be too large


@dataclass(frozen=True)
class Alike:
    """Groups of entries: the number of its group for each, -1 for entries in none.

    Parameters
    ----------
    exact : (N,) entries with the very same embedding
    near : (N,) entries linked by distances of at most `reach`, copies among them or not
    reach : the distance within which two entries are near duplicates
    """

    exact: Integers
    near: Integers
    reach: float


def find_alike(memory: Memory, neighbors: Neighbors, near: float) -> Alike:
    """Exact and near duplicates among the entries.

    Parameters
    ----------
    neighbors : some nearest others of all N entries; where these leave a question open, because
        an entry has many copies, the memory is asked
    near : two entries are near duplicates within this share of the typical distance: the median,
        over all entries, of the distance to the nearest other that is no copy
    """
    exact = copies(memory.entries.embeddings)
    nothing = np.full_like(exact, -1)
    if memory.metric_ == "inner_product":
        return Alike(exact, nothing, 0.0)
    nearest = _nearest_but_copies(memory, exact, neighbors)
    known = nearest[np.isfinite(nearest)]
    reach = near * float(np.median(known)) if len(known) else 0.0
    if not reach > 0:
        return Alike(exact, nothing, 0.0)
    rows, others = _links(memory, exact, neighbors, reach)
    return Alike(exact, _linked(exact, rows, others), reach)


def copies(embeddings: np.ndarray) -> Integers:
    """The number of its group for each row that has a copy, -1 for the others.

    >>> copies(np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-0.0, 0.0]])).tolist()
    [1, 0, 1, 0]
    """
    rows = np.ascontiguousarray(embeddings + 0.0)  # -0.0 becomes 0.0
    if not rows.size:
        return _numbered(np.zeros(len(rows), dtype=np.int64))  # of width 0 all are the same
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return _numbered(np.unique(keys, return_inverse=True)[1])


def _nearest_but_copies(memory: Memory, exact: Integers, neighbors: Neighbors) -> Floats:
    """(N,) the distance to the nearest other that is no copy, infinity where there is none."""
    is_copy = (exact[neighbors.positions] == exact[:, None]) & (exact[:, None] >= 0)
    nearest: Floats = np.where(neighbors.mask & ~is_copy, neighbors.distances, np.inf).min(
        axis=1, initial=np.inf
    )
    is_open = np.isinf(nearest) & neighbors.mask.all(axis=1)  # all that are listed are copies
    for row in _one_of_each(memory, exact, is_open).tolist():
        is_same = exact == exact[row]
        query = memory.entries.embeddings[row : row + 1]
        positions, keys = memory.ranked(query, int(is_same.sum()), exclude=np.array([row]))
        distances = memory.distances_of(np.where(is_same[positions], np.inf, keys))
        nearest[is_open & is_same] = distances.min(initial=np.inf)
    return nearest


def _links(
    memory: Memory, exact: Integers, neighbors: Neighbors, reach: float
) -> tuple[Integers, Integers]:
    """Pairs of entries within reach: listed ones, and all where a list may end too early."""
    is_near = neighbors.mask & (neighbors.distances <= reach)
    rows, column = np.nonzero(is_near)
    may_end_early = np.asarray(is_near.all(axis=1))
    asking = _one_of_each(memory, exact, may_end_early)
    entries = memory.entries
    key = reach**2 if memory.metric_ == "euclidean" else 2 * reach
    found = memory.reached(entries.embeddings[asking], np.full(len(exact), key * (1 + ROUNDING)))
    left, right = asking[found.queries], found.positions
    is_link = memory.distances_of(found.keys) <= reach
    is_link &= (entries.groups[left] != entries.groups[right]) | (entries.groups[left] == NO_GROUP)
    return (
        np.concatenate([rows, left[is_link]]),
        np.concatenate([neighbors.positions[rows, column], right[is_link]]),
    )


def _one_of_each(memory: Memory, exact: Integers, chosen: Booleans) -> Integers:
    """Of the chosen entries one of each set of copies and group."""
    kind = np.where(exact >= 0, exact, len(exact) + np.arange(len(exact)))
    both = np.stack([kind, memory.entries.groups], axis=1)[chosen]
    return np.flatnonzero(chosen)[np.unique(both, axis=0, return_index=True)[1]]


def _linked(exact: Integers, rows: Integers, others: Integers) -> Integers:
    """Groups that links and copies make, those that copies alone make left out."""
    has_copy = np.flatnonzero(exact >= 0)
    firsts = np.zeros(int(exact.max(initial=-1)) + 1, dtype=np.int64)
    firsts[exact[has_copy][::-1]] = has_copy[::-1]
    rows = np.concatenate([rows, has_copy])
    others = np.concatenate([others, firsts[exact[has_copy]]])
    graph = coo_array((np.ones(len(rows)), (rows, others)), shape=(len(exact), len(exact)))
    parts: Integers = connected_components(graph, directed=False)[1].astype(np.int64)
    return _numbered(np.where(_adds_nothing(parts, exact), -1, parts))


def _adds_nothing(parts: Integers, exact: Integers) -> Booleans:
    """(N,) True where all of a part are copies of one another, or it is a single entry."""
    kind = np.where(exact >= 0, exact, np.arange(len(exact)) + exact.max(initial=-1) + 1)
    least, most = np.full(len(parts), len(parts) * 2), np.full(len(parts), -1)
    np.minimum.at(least, parts, kind)
    np.maximum.at(most, parts, kind)
    return np.asarray((least == most)[parts])


def _numbered(parts: Integers) -> Integers:
    """Groups of two and more numbered from 0, -1 for what is alone or was -1."""
    groups = np.full(len(parts), -1, dtype=np.int64)
    inside = parts >= 0
    _, inverse, counts = np.unique(parts[inside], return_inverse=True, return_counts=True)
    number = np.cumsum(counts > 1) - 1
    groups[inside] = np.where(counts[inverse] > 1, number[inverse], -1)
    return groups
