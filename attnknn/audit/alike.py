"""Entries that are copies of each other, or nearly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from attnknn.memory.base import Memory
from attnknn.records import Booleans, Floats, Integers, Neighbors


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
    neighbors : the nearest others of all N entries
    near : two entries are near duplicates within this share of the typical distance: the median,
        over all entries, of the distance to the nearest other that is no copy
    """
    exact = copies(memory.entries.embeddings)
    reach = _reach(exact, neighbors, near) if memory.metric_ != "inner_product" else 0.0
    rows = np.repeat(np.arange(len(exact)), neighbors.positions.shape[1])
    is_linked = (neighbors.mask & (neighbors.distances <= reach)).ravel()
    links = rows[is_linked], neighbors.positions.ravel()[is_linked]
    return Alike(exact, _linked(exact, *links) if reach > 0 else np.full_like(exact, -1), reach)


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


def _reach(exact: Integers, neighbors: Neighbors, near: float) -> float:
    is_copy = (exact[neighbors.positions] == exact[:, None]) & (exact[:, None] >= 0)
    nearest = np.where(neighbors.mask & ~is_copy, neighbors.distances, np.inf).min(
        axis=1, initial=np.inf
    )
    known: Floats = nearest[np.isfinite(nearest)]
    return near * float(np.median(known)) if len(known) else 0.0


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
