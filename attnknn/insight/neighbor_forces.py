"""Attraction by neighbors and repulsion by random others, which arrange entries on a map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from attnknn.records import Floats, Integers, Neighbors

N_OTHERS = 6  # random other entries that push an entry away in each epoch
REPULSION = 5.0  # others that push for each neighbor that pulls
MAX_PUSH = 4.0  # of one other entry, else two entries at one place fly apart


@dataclass(frozen=True)
class Links:
    """Which entries pull which others, and how much; symmetric."""

    weights: sparse.csr_array  # (N, N)
    rows: Integers  # (E,) of each stored weight
    shares: NDArray[np.float32]  # (E,) weights whose sum is one for each entry


def links_of(nearest: Neighbors) -> Links:
    """Weights by distance, relative to the nearest neighbor and to the density around each entry.

    Two entries are linked with the probability that at least one lists the other, if lists are
    independent: a + b − ab.
    """
    distances = np.where(nearest.mask, nearest.distances, np.inf)
    beyond = np.maximum(distances - distances.min(axis=1, keepdims=True), 0.0)
    beyond = np.where(nearest.mask, beyond, np.inf)
    n, k = beyond.shape
    weights = np.exp(-beyond / _scales(beyond, np.log2(max(k, 2)))[:, None])
    row, place = np.nonzero(nearest.mask & (weights > 1e-4))
    pairs = weights[row, place], (row, nearest.positions[row, place])
    one_way = sparse.csr_array(pairs, shape=(n, n))
    both = sparse.csr_array(one_way + one_way.T - one_way.multiply(one_way.T))
    both.sort_indices()
    rows = np.repeat(np.arange(n), np.diff(both.indptr))
    total = np.bincount(rows, both.data, n)
    return Links(both, rows, (both.data / total[rows]).astype(np.float32))


def _scales(beyond: Floats, wanted: float) -> Floats:
    """The scale (N,) with which the weights exp(−distance / scale) of each row sum to `wanted`."""
    finite = np.where(np.isfinite(beyond), beyond, 0.0)
    typical = finite.mean(axis=1)
    floor = 1e-3 * max(float(typical.mean()), 1e-12)
    low, high = np.zeros(len(beyond)), np.full(len(beyond), np.inf)
    scale = np.maximum(typical, floor)
    for _ in range(40):
        is_large = np.exp(-beyond / scale[:, None]).sum(axis=1) > wanted
        high, low = np.where(is_large, scale, high), np.where(is_large, low, scale)
        scale = np.where(np.isinf(high), scale * 2, (low + np.minimum(high, 1e300)) / 2)
        scale = np.clip(scale, floor, 1e3 * np.maximum(typical, floor))
    return scale


def arranged(
    positions: Floats,
    links: Links,
    n_epochs: int,
    rate: float,
    random: np.random.Generator,
    progress: Callable[[float], object] | None,
) -> Floats:
    """Move the entries: neighbors pull, random others push, in steps that become smaller."""
    x, y = np.ascontiguousarray(positions.T, dtype=np.float32)
    for epoch in range(n_epochs):
        pull_x, pull_y = _pulls(x, y, links)
        push_x, push_y = _pushes(x, y, random)
        step = np.float32(rate * (1 - epoch / n_epochs))
        x, y = x + step * (pull_x + push_x), y + step * (pull_y + push_y)
        if progress is not None:
            progress((epoch + 1) / n_epochs)
    return np.stack([x, y], axis=1).astype(np.float64)


Force = tuple[NDArray[np.float32], NDArray[np.float32]]


def _pulls(x: NDArray[np.float32], y: NDArray[np.float32], links: Links) -> Force:
    """The pull of the neighbors: the gradient of log 1 / (1 + d²)."""
    columns = links.weights.indices
    dx, dy = x[columns] - x[links.rows], y[columns] - y[links.rows]
    force = links.shares / (1 + dx * dx + dy * dy)
    n = len(x)
    pull_x = np.bincount(links.rows, force * dx, n)
    return pull_x.astype(np.float32), np.bincount(links.rows, force * dy, n).astype(np.float32)


def _pushes(x: NDArray[np.float32], y: NDArray[np.float32], random: np.random.Generator) -> Force:
    """The push of random other entries: the gradient of log (1 − 1 / (1 + d²))."""
    push_x, push_y = np.zeros_like(x), np.zeros_like(y)
    for _ in range(N_OTHERS):
        other = random.integers(len(x), size=len(x), dtype=np.int32)
        dx, dy = x - x[other], y - y[other]
        squared = dx * dx + dy * dy
        force = np.float32(REPULSION / N_OTHERS) / ((np.float32(0.01) + squared) * (1 + squared))
        push_x += np.clip(force * dx, -MAX_PUSH, MAX_PUSH)
        push_y += np.clip(force * dy, -MAX_PUSH, MAX_PUSH)
    return push_x, push_y
