"""Exact and near duplicates among the entries of a memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.vectors import EntryVectors
from attnknn.records import Booleans, Floats, Integers, Neighbors

ROUNDING = 1e-9  # relative error that a squared distance may have


@dataclass(frozen=True)
class Duplicates:
    """Groups of duplicates: the group number of each entry, -1 for entries without a duplicate."""

    exact: Integers  # (N,) entries with equal embeddings
    near: Integers  # (N,) entries linked by distances of at most `near_distance`
    near_distance: float  # largest distance between near duplicates


def find_duplicates(memory: Memory, neighbors: Neighbors, near: float) -> Duplicates:
    """Find exact and near duplicates.

    Parameters
    ----------
    neighbors : leave-one-out neighbors of all N entries. Where an entry has more duplicates than
        listed neighbors, the memory is searched
    near : near duplicates are at most `near` times the typical distance apart. That is the median
        over all entries of the distance to the nearest entry that is no exact duplicate
    """
    exact = _copies_in(memory.vectors)
    nothing = np.full_like(exact, -1)
    if memory.metric_ == "inner_product":
        return Duplicates(exact, nothing, 0.0)
    nearest = _nearest_distances(memory, exact, neighbors)
    known = nearest[np.isfinite(nearest)]
    near_distance = near * float(np.median(known)) if len(known) else 0.0
    if not near_distance > 0:
        return Duplicates(exact, nothing, 0.0)
    links = _find_links(memory, exact, neighbors, near_distance)
    return Duplicates(exact, _group_links(exact, *links), near_distance)


def _copies_in(vectors: EntryVectors) -> Integers:
    """`group_copies` of vectors, of which only digests are kept where they are not local."""
    if vectors.is_local:
        return group_copies(vectors.all())
    digests = [
        np.frombuffer(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), np.uint8)
        for _, block in vectors.blocks()
        for row in np.ascontiguousarray(block + np.float32(0.0))
    ]
    return group_copies(np.array(digests, dtype=np.uint8).reshape(len(vectors), 16))


def group_copies(embeddings: np.ndarray) -> Integers:
    """The group number (N,) of each row that equals another one, -1 for the others.

    >>> group_copies(np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-0.0, 0.0]])).tolist()
    [1, 0, 1, 0]
    """
    rows = np.ascontiguousarray(embeddings + embeddings.dtype.type(0))  # -0.0 becomes 0.0
    if not rows.size:
        return _renumber(np.zeros(len(rows), dtype=np.int64))  # rows of width 0 are all equal
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return _renumber(np.unique(keys, return_inverse=True)[1])


def _nearest_distances(memory: Memory, exact: Integers, neighbors: Neighbors) -> Floats:
    """(N,) distance to the nearest entry that is no exact duplicate, infinite if all are."""
    is_copy = (exact[neighbors.positions] == exact[:, None]) & (exact[:, None] >= 0)
    nearest: Floats = np.where(neighbors.mask & ~is_copy, neighbors.distances, np.inf).min(
        axis=1, initial=np.inf
    )
    is_open = np.isinf(nearest) & neighbors.mask.all(axis=1)  # all listed neighbors are copies
    for row in _one_per_copy(memory, exact, is_open).tolist():
        is_same = exact == exact[row]
        query = memory.vectors[row : row + 1]
        positions, keys = memory.search_keys(query, int(is_same.sum()), exclude=np.array([row]))
        distances = memory.distances_of(np.where(is_same[positions], np.inf, keys))
        nearest[is_open & is_same] = distances.min(initial=np.inf)
    return nearest


def _find_links(
    memory: Memory, exact: Integers, neighbors: Neighbors, near_distance: float
) -> tuple[Integers, Integers]:
    """Pairs of near entries: listed ones, and searched ones where a list may end too early."""
    is_near = neighbors.mask & (neighbors.distances <= near_distance)
    rows, column = np.nonzero(is_near)
    searched = _one_per_copy(memory, exact, np.asarray(is_near.all(axis=1)))
    entries = memory.entries
    key = near_distance**2 if memory.metric_ == "euclidean" else 2 * near_distance
    found = memory.range_search(memory.vectors[searched], np.full(len(exact), key * (1 + ROUNDING)))
    left, right = searched[found.queries], found.positions
    is_link = memory.distances_of(found.keys) <= near_distance
    is_link &= (entries.groups[left] != entries.groups[right]) | (entries.groups[left] == NO_GROUP)
    return (
        np.concatenate([rows, left[is_link]]),
        np.concatenate([neighbors.positions[rows, column], right[is_link]]),
    )


def _one_per_copy(memory: Memory, exact: Integers, chosen: Booleans) -> Integers:
    """One of the chosen entries per set of copies and group."""
    copies = np.where(exact >= 0, exact, len(exact) + np.arange(len(exact)))
    both = np.stack([copies, memory.entries.groups], axis=1)[chosen]
    return np.flatnonzero(chosen)[np.unique(both, axis=0, return_index=True)[1]]


def _group_links(exact: Integers, rows: Integers, others: Integers) -> Integers:
    """Connected groups of links and copies, without those that consist of one set of copies."""
    n = len(exact)
    has_copy = np.flatnonzero(exact >= 0)
    firsts = np.zeros(int(exact.max(initial=-1)) + 1, dtype=np.int64)
    firsts[exact[has_copy][::-1]] = has_copy[::-1]
    rows = np.concatenate([rows, has_copy])
    others = np.concatenate([others, firsts[exact[has_copy]]])
    graph = coo_array((np.ones(len(rows)), (rows, others)), shape=(n, n))
    parts: Integers = connected_components(graph, directed=False)[1].astype(np.int64)
    copies = np.where(exact >= 0, exact, np.arange(n) + exact.max(initial=-1) + 1)
    least, most = np.full(n, 2 * n), np.full(n, -1)
    np.minimum.at(least, parts, copies)
    np.maximum.at(most, parts, copies)
    return _renumber(np.where((least == most)[parts], -1, parts))


def _renumber(parts: Integers) -> Integers:
    """Number groups of at least two from 0; -1 for single entries and those that were -1."""
    groups = np.full(len(parts), -1, dtype=np.int64)
    inside = parts >= 0
    _, inverse, counts = np.unique(parts[inside], return_inverse=True, return_counts=True)
    number = np.cumsum(counts > 1) - 1
    groups[inside] = np.where(counts[inverse] > 1, number[inverse], -1)
    return groups
