"""Cells of entries, by cluster or by class, and the entries of those that a query visits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.memory.base import Memory
from attnknn.memory.entries import EntryColumns
from attnknn.memory.vectors import EntryVectors
from attnknn.records import Booleans, Floats, Integers

Vectors = NDArray[np.float32]
CELLS_AT_ONCE = 1 << 22  # pairs of queries and centers, or of queries and entries, held at once
NOTHING = np.zeros(0, dtype=np.int64)
ROWS_PER_CENTER, MAX_ITERATIONS = 32, 8
MIN_MEMBERS = 3  # of a cluster: the center of fewer rows would show what they are


@dataclass(frozen=True, eq=False)
class Centers:
    """Where the cells are: the centers (M, D) of clusters, or None for the means of the classes."""

    of_clusters: Vectors | None

    def cells(self, memory: Memory, n_classes: int) -> Cells:
        """The cells of the entries of one state."""
        entries, vectors = memory.entries, memory.vectors
        if self.of_clusters is None:
            return Cells(entries, vectors, None, entries.labels, n_classes)
        found = [nearest_center(block, self) for _, block in vectors.blocks()]
        return Cells(entries, vectors, self.of_clusters, np.concatenate([NOTHING, *found]))

    def followed(
        self, known: Cells, memory: Memory, kept: Integers | None, n_classes: int
    ) -> Cells:
        """The cells after an edit: `kept` entries stay (None: all), further ones are new."""
        if self.of_clusters is None:
            return self.cells(memory, n_classes)
        cell = known.cell if kept is None else known.cell[kept]
        new = nearest_center(memory.vectors[np.arange(len(cell), len(memory))], self)
        cell = np.concatenate([cell, new])
        return Cells(memory.entries, memory.vectors, self.of_clusters, cell)


@dataclass(frozen=True)
class Visits:
    """The cells that B queries visit, nearest center first, and the pairs with their entries.

    The pairs of a visited cell are adjacent; `slots` (S,) says whose they are (row · m + place),
    and `sizes` (S,) how many.
    """

    squared: Floats  # (B, m) squared distances to the centers; infinite where there is no cell
    log_mass: Floats  # (B, m) log of the sample weight in each cell
    slots: Integers
    sizes: Integers
    positions: Integers  # (P,) the entry of each pair
    distances: Floats  # (P,) squared; infinite for entries that are left out

    @cached_property
    def rows(self) -> Integers:
        """The query (P,) of each pair."""
        return np.repeat(self.slots // self.squared.shape[1], self.sizes)

    @cached_property
    def starts(self) -> Integers:
        """Where the pairs of each visited cell begin, (S,)."""
        return np.cumsum(self.sizes) - self.sizes

    def summed(self, values: Floats) -> Floats:
        """Sums (S,) of the values (P,) of the pairs of each visited cell."""
        return np.add.reduceat(values, self.starts) if len(self.starts) else np.zeros(0)

    def part(self, n_rows: int, n_visited: int) -> Visits:
        """Of the first `n_rows` queries, the first `n_visited` cells."""
        width = self.squared.shape[1]
        row, place = self.slots // width, self.slots % width
        is_kept = (row < n_rows) & (place < n_visited)
        pairs = np.repeat(is_kept, self.sizes)
        return Visits(
            self.squared[:n_rows, :n_visited],
            self.log_mass[:n_rows, :n_visited],
            row[is_kept] * n_visited + place[is_kept],
            self.sizes[is_kept],
            self.positions[pairs],
            self.distances[pairs],
        )


@dataclass(frozen=True, eq=False)
class Cells:
    """Which cell each entry of one state is in, and where the centers are.

    Parameters
    ----------
    entries : EntryColumns
    entry_vectors : EntryVectors
        Their vectors, read by position.
    centers : (M, D) of clusters; None: the weighted means of the cells, which are classes
    cell : (N,) the cell of each entry
    n_cells : number of cells if there are no `centers`
    """

    entries: EntryColumns
    entry_vectors: EntryVectors
    centers: Vectors | None
    cell: Integers
    n_cells: int = 0

    @cached_property
    def members(self) -> Integers:
        """Positions (N,) of the entries, cell by cell."""
        return np.argsort(self.cell, kind="stable")

    @cached_property
    def counts(self) -> Integers:
        """Number (M,) of entries of each cell."""
        n_cells = self.n_cells if self.centers is None else len(self.centers)
        return np.bincount(self.cell, minlength=n_cells)

    @cached_property
    def starts(self) -> Integers:
        """Where each cell begins in `members`, (M,)."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def places(self) -> Integers:
        """The place (N,) of each entry among the members of its cell."""
        places = np.empty(len(self.cell), dtype=np.int64)
        places[self.members] = np.arange(len(self.cell)) - self.starts[self.cell[self.members]]
        return places

    @cached_property
    def mass(self) -> Floats:
        """Sample weight (M,) of each cell."""
        mass: Any = np.bincount(self.cell, self.entries.effective_weight, len(self.counts))
        return np.asarray(mass)

    @cached_property
    def sums(self) -> Floats:
        """Weighted sums (M, D) of the embeddings of each cell."""
        sums = np.zeros((len(self.counts), self.entry_vectors.width))
        for cell in np.flatnonzero(self.counts).tolist():
            of_cell = self.of(cell)
            weight = self.entries.effective_weight[of_cell]
            sums[cell] = weight @ self.entry_vectors[of_cell].astype(np.float64)
        return sums

    @cached_property
    def vectors(self) -> Floats:
        """The centers (M, D) in float64; those of empty cells are not used."""
        if self.centers is not None:
            return self.centers.astype(np.float64)
        return self.sums / np.where(self.mass > 0, self.mass, 1.0)[:, None]

    def of(self, cell: int) -> Integers:
        """Positions of the entries of a cell."""
        start = int(self.starts[cell])
        return self.members[start : start + int(self.counts[cell])]

    def rows_at_once(self, n_visited: int) -> int:
        """How many queries are answered together."""
        largest = int(self.counts.max(initial=1))
        return max(1, CELLS_AT_ONCE // max(len(self.counts), n_visited * largest))

    def visit(
        self,
        queries: Vectors,
        n_visited: int,
        left_out: tuple[Integers, Integers] | None = None,
    ) -> Visits:
        """Visit the `n_visited` cells that are nearest to each query (B, D).

        `left_out`: pairs (query, position) of entries that do not vote. They count neither in the
        mass of their cell nor in the mean of their class.
        """
        rows = queries.astype(np.float64)
        squared = squared_between(rows, self.vectors)  # (B, M)
        squared[:, self.counts == 0] = np.inf
        mass = np.broadcast_to(self.mass, squared.shape)
        if left_out is not None:
            mass = mass.copy()
            self._leave_out(rows, squared, mass, left_out)
        cells = nearest_of(squared, min(n_visited, int((self.counts > 0).sum())))
        squared = np.take_along_axis(squared, cells, axis=1)
        with np.errstate(divide="ignore"):
            log_mass = np.log(np.take_along_axis(mass, cells, axis=1))
        visits = self._pairs(rows, cells, squared, log_mass)
        return visits if left_out is None else self._without(visits, cells, left_out)

    def _leave_out(
        self, rows: Floats, squared: Floats, mass: Floats, left_out: tuple[Integers, Integers]
    ) -> None:
        """Take entries out of the distances and the mass (B, M) of their cells, in place."""
        query, position = left_out
        found, inverse = np.unique(
            query * len(self.counts) + self.cell[position], return_inverse=True
        )
        row, cell = np.divmod(found, len(self.counts))
        weight = self.entries.effective_weight[position]
        mass[row, cell] -= np.bincount(inverse, weight, len(found))
        is_empty = np.bincount(inverse, minlength=len(found)) == self.counts[cell]
        if self.centers is None:
            sums = self.sums[cell]
            embeddings = self.entry_vectors[position].astype(np.float64)
            np.subtract.at(sums, inverse, weight[:, None] * embeddings)
            means = sums / np.where(is_empty, 1.0, mass[row, cell])[:, None]
            squared[row, cell] = np.square(rows[row] - means).sum(axis=1)
        squared[row[is_empty], cell[is_empty]] = np.inf

    def _pairs(self, rows: Floats, cells: Integers, squared: Floats, log_mass: Floats) -> Visits:
        """The visits of cells (B, m), with the squared distances to their entries."""
        slots = np.flatnonzero(np.isfinite(squared).ravel())
        slots = slots[np.argsort(cells.ravel()[slots], kind="stable")]
        visited, first = np.unique(cells.ravel()[slots], return_index=True)
        asked_of = np.split(slots, first[1:]) if len(slots) else []
        distances, positions = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
        for cell, asked in zip(visited.tolist(), asked_of, strict=True):
            of_cell = self.of(cell)
            vectors = self.entry_vectors[of_cell].astype(np.float64)
            found = squared_between(rows[asked // cells.shape[1]], vectors)
            distances.append(found.ravel())
            positions.append(np.tile(of_cell, len(asked)))
        sizes = self.counts[cells.ravel()[slots]]
        pairs = np.concatenate(positions), np.concatenate(distances)
        return Visits(squared, log_mass, slots, sizes, *pairs)

    def _without(
        self, visits: Visits, cells: Integers, left_out: tuple[Integers, Integers]
    ) -> Visits:
        """The same visits without some pairs, at an infinite distance."""
        query, position = left_out
        is_place = cells[query] == self.cell[position][:, None]  # (E, m)
        is_visited = is_place.any(axis=1)
        query, position, is_place = query[is_visited], position[is_visited], is_place[is_visited]
        starts = np.full(cells.size, -1)
        starts[visits.slots] = visits.starts
        first = starts[query * cells.shape[1] + is_place.argmax(axis=1)]
        has_pairs = first >= 0  # a cell of which all are left out is not visited
        visits.distances[(first + self.places[position])[has_pairs]] = np.inf
        return visits


def squared_between(left: Floats, right: Floats) -> Floats:
    """Squared distances (B, M) of rows in float64.

    >>> squared_between(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[25.0, 0.0]]
    """
    lengths = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.abs(np.maximum(lengths - 2.0 * (left @ right.T), 0.0))


def nearest_of(squared: Floats, n: int) -> Integers:
    """The columns (B, n) of the smallest values of each row, ties by column.

    Values are compared in float32, so that rounding in the last digits does not order ties.

    >>> nearest_of(np.array([[4.0, 1.0, 1.0 + 1e-12]]), 2).tolist()
    [[1, 2]]
    """
    with np.errstate(over="ignore"):
        bits = squared.astype(np.float32).view(np.uint32).astype(np.uint64)
    keys = (bits << np.uint64(32)) | np.arange(squared.shape[1], dtype=np.uint64)
    if n < squared.shape[1]:
        keys = np.partition(keys, n - 1, axis=1)[:, :n] if n else keys[:, :0]
    return (np.sort(keys, axis=1) & np.uint64(0xFFFFFFFF)).astype(np.int64)


def nearest_center(vectors: Vectors, centers: Centers) -> Integers:
    """The cluster (n,) of each vector (n, D)."""
    assert centers.of_clusters is not None
    doubled = centers.of_clusters.astype(np.float64)
    cell = np.zeros(len(vectors), dtype=np.int64)
    step = max(1, CELLS_AT_ONCE // len(doubled))
    for start in range(0, len(vectors), step):
        rows = vectors[start : start + step].astype(np.float64)
        cell[start : start + step] = (
            squared_between(rows, doubled).astype(np.float32).argmin(axis=1)
        )
    return cell


def cluster_centers(
    vectors: EntryVectors | Vectors, n_clusters: int, generator: np.random.Generator
) -> Centers:
    """Centers of at most `n_clusters` clusters by Lloyd's k-means, on a sample of the vectors."""
    most = max(ROWS_PER_CENTER * n_clusters, 1)
    rows = np.arange(len(vectors))
    if len(rows) > most:
        rows = np.sort(generator.choice(len(rows), most, replace=False))
    sample = vectors[rows]
    distinct = np.unique(sample, axis=0)
    first = generator.choice(len(distinct), min(n_clusters, len(distinct)), replace=False)
    centers = Centers(distinct[np.sort(first)])
    for _ in range(MAX_ITERATIONS):
        assert centers.of_clusters is not None
        cell = nearest_center(sample, centers)
        means = _means(sample, cell, len(centers.of_clusters))
        if np.array_equal(means, centers.of_clusters):
            break
        centers = Centers(means)
    return centers


def _means(vectors: Vectors, cell: Integers, n_cells: int) -> Vectors:
    """Means of the cells with enough members; if no cell has, the mean of all vectors."""
    sums = np.zeros((n_cells, vectors.shape[1]))
    counts = np.bincount(cell, minlength=n_cells)
    order = np.argsort(cell, kind="stable")
    filled = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[filled]
    sums[filled] = np.add.reduceat(vectors[order].astype(np.float64), starts, axis=0)
    is_kept: Booleans = counts >= MIN_MEMBERS
    if not is_kept.any():
        return vectors.mean(axis=0, dtype=np.float64, keepdims=True).astype(np.float32)
    return np.unique((sums[is_kept] / counts[is_kept, None]).astype(np.float32), axis=0)
