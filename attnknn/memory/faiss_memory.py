"""Search with FAISS: exact (flat), or approximate by a graph (HNSW) or inverted lists (IVF)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from attnknn._optional import require
from attnknn.errors import InvalidSettingError, ModelFolderError, unknown_name
from attnknn.memory.base import Memory
from attnknn.memory.distances import Ranking, Vectors, in_order, keys_at
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.torch_memory import TorchMemory
from attnknn.records import Booleans, Floats, Integers
from attnknn.registry import register

KINDS = ("flat", "hnsw", "ivf")
MARGIN = 8  # candidates beyond k
MAX_EXCLUDED = 64  # a query whose group is larger is searched exactly
PER_LIST = 39  # entries that FAISS needs to train each list
FEW_QUERIES = 8  # below this one thread is faster than several
MAX_STORED = {
    "m": 1 << 12,
    "ef_construction": 1 << 20,
    "ef_search": 1 << 20,
    "n_probe": 1 << 20,
}
SMALL = 1 << 18  # numbers in an index below which one thread is faster


@dataclass(frozen=True)
class BuiltIndex:
    """A FAISS index, and the position of the entry in each of its slots, -1 for forgotten ones.

    If `is_shared`, a copy of the memory uses the index too, and it must not be changed.
    """

    index: Any
    positions: Integers
    n_held: int
    is_shared: bool = False

    @property
    def is_whole(self) -> bool:
        """False if an edit failed inside FAISS."""
        return bool(self.index.ntotal == self.n_held)


@register("memory", "faiss")
class FaissMemory(Memory):
    """Search with a FAISS index, with the candidates compared in float64.

    A query for which the index finds too few entries is searched exactly, and so is a query that
    excludes a large group. Results are never padded or truncated. Needs the extra `faiss`.

    Parameters
    ----------
    index : {'flat', 'hnsw', 'ivf'}, default='flat'
        'flat' is exact, 'hnsw' searches a graph, 'ivf' searches the nearest of many lists.
    m : int, default=32
        Links per entry in the graph of 'hnsw'. More links increase recall and memory use.
    ef_construction : int, default=80
        Search width while 'hnsw' is built; larger is slower and has a higher recall.
    ef_search : int, default=64
        Search width of queries with 'hnsw'; larger is slower and has a higher recall.
    n_lists : int, default=None
        Number of lists of 'ivf'; None takes about four times the square root of the number of
        entries. Search is exact while there are fewer than 39 entries per list.
    n_probe : int, default=16
        Lists of 'ivf' that are searched per query; larger is slower and has a higher recall.
    rebuild_share : float, default=0.2
        Share of forgotten entries above which 'hnsw', which cannot delete, is rebuilt.

    Examples
    --------
    >>> from attnknn.memory import make_entries
    >>> memory = FaissMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    derived: ClassVar[tuple[str, ...]] = (*Memory.derived, "_built", "_reference")

    def __init__(
        self,
        index: str = "flat",
        *,
        m: int = 32,
        ef_construction: int = 80,
        ef_search: int = 64,
        n_lists: int | None = None,
        n_probe: int = 16,
        rebuild_share: float = 0.2,
    ) -> None:
        self.index = index
        self.m = m
        self.ef_construction = ef_construction
        self.ef_search = ef_search
        self.n_lists = n_lists
        self.n_probe = n_probe
        self.rebuild_share = rebuild_share

    @property
    def is_exact(self) -> bool:
        """Whether a search always finds the nearest entries."""
        return self.index == "flat"

    @property
    def n_bytes(self) -> int:
        """Size of the embeddings and of the index, in bytes."""
        built = self._ready()
        beside = 0 if built is None else self._faiss.serialize_index(built.index).nbytes
        return super().n_bytes + int(beside)

    def check_stored_settings(self, n_entries: int) -> None:
        largest = {**MAX_STORED, "n_lists": max(n_entries, 1 << 16)}
        for name, most in largest.items():
            value = getattr(self, name)
            is_size = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
            if not (is_size or (name == "n_lists" and value is None)):
                raise ModelFolderError(
                    f"The stored `{name}` must be from 1 to {most}, got {value!r}."
                )

    def recall(self, queries: ArrayLike, k: int, *, exclude: Integers | None = None) -> float:
        """Measure the share of the `k` nearest entries that `search` finds.

        Parameters
        ----------
        queries : array-like of shape (n_queries, n_features)
            Embeddings as the encoder returns them.
        k, exclude : int, ndarray or None
            As in `search`.

        Returns
        -------
        float
            From 0 to 1; higher is better.
        """
        return measure_recall(self, self.prepare(queries), k, exclude)

    def build_index(self) -> None:
        self._check_settings()
        self._drop("_built", "_reference")
        if not self._is_too_small:
            self._built = self._build()

    def extend_index(self, n_new: int) -> None:
        self._drop("_reference")
        built = self.__dict__.get("_built")
        if built is None or not built.is_whole:
            self.build_index()
            return
        n_slots, n_total = len(built.positions), len(self)
        index = self._own_index(built)
        self._add_vectors(index, self.vectors[n_total - n_new :], n_slots)
        positions = np.concatenate([built.positions, np.arange(n_total - n_new, n_total)])
        self._built = BuiltIndex(index, positions, built.n_held + n_new)

    def shrink_index(self, positions: Integers) -> None:
        self._drop("_reference")
        built = self.__dict__.get("_built")
        if built is None or not built.is_whole:
            self.build_index()
            return
        gone = np.isin(built.positions, positions)
        moved = built.positions - np.searchsorted(positions, built.positions)
        slots = np.where(gone | (built.positions < 0), -1, moved)
        if self.index == "hnsw":
            self._built = replace(built, positions=slots)
            if (slots < 0).mean() > self.rebuild_share:
                self.build_index()
            return
        index = self._own_index(built)
        index.remove_ids(np.flatnonzero(gone))
        if self.index == "flat":  # it closes the gaps, lists do not
            slots = slots[~gone]
        self._built = BuiltIndex(index, slots, built.n_held - len(positions))

    def __copy__(self) -> FaissMemory:
        """A memory with the same index, which is copied when one of the two changes."""
        if "_built" in self.__dict__:
            self._built = replace(self._built, is_shared=True)
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _own_index(self, built: BuiltIndex) -> Any:
        """An index that may be changed: that of `built`, or a copy of it."""
        return self._faiss.clone_index(built.index) if built.is_shared else built.index

    def find_nearest(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        built = self._ready()
        if built is None or self._reference.error_bounds.overflows(queries):
            return self._reference.find_nearest(queries, k, exclude)
        sizes = np.zeros(1, np.int64) if exclude is None else self.exclusion.sizes(exclude)
        wanted = min(k + MARGIN + min(int(sizes.max()), MAX_EXCLUDED), len(self))
        candidates, worst = self._candidates(built, queries, wanted)
        if exclude is not None:
            candidates[self._is_excluded(candidates, exclude)] = -1
        keys = keys_at(queries, self.vectors.all(), np.maximum(candidates, 0), self.metric_)
        keys[candidates < 0] = np.inf
        positions, keys = in_order(candidates, keys, self.id_lookup, k)
        is_done = self._is_done(queries, keys, worst, np.minimum(k, len(self) - sizes), wanted)
        if not is_done.all():
            again = ~is_done
            own = None if exclude is None else exclude[again]
            positions[again], keys[again] = self._reference.find_nearest(queries[again], k, own)
        return positions, keys

    def _candidates(self, built: BuiltIndex, queries: Vectors, n: int) -> tuple[Integers, Floats]:
        """Positions (B, n), -1 for none, and the largest key that FAISS found for each query."""
        is_small = len(queries) < FEW_QUERIES or self.vectors.all().size < SMALL
        with _threads(self._faiss, is_small):
            keys, slots = built.index.search(queries, n, params=self._search_parameters(built, n))
        candidates = np.where(slots < 0, -1, built.positions[np.maximum(slots, 0)])
        worst = keys[:, -1].astype(np.float64)
        return candidates, -worst if self.metric_ == "inner_product" else worst

    def _is_done(
        self, queries: Vectors, keys: Floats, worst: Floats, n_expected: Integers, wanted: int
    ) -> Booleans:
        """Whether each query has enough entries and, with an exact index, certainly the nearest."""
        is_full = (keys < np.inf).sum(axis=1) >= n_expected
        if not self.is_exact or wanted == len(self):
            return is_full
        error = self._reference.error_bounds.key_error(queries, keys[:, -1])
        return is_full & (keys[:, -1] < worst - error)

    def _is_excluded(self, candidates: Integers, exclude: Integers) -> Booleans:
        groups = self.entries.groups
        own = groups[exclude][:, None]
        return (candidates == exclude[:, None]) | ((groups[candidates] == own) & (own != NO_GROUP))

    def _ready(self) -> BuiltIndex | None:
        built: BuiltIndex | None = self.__dict__.get("_built")
        if self._is_too_small:
            return None
        if built is None or not built.is_whole:
            self.build_index()
        return self._built

    def _build(self) -> BuiltIndex:
        faiss, vectors = self._faiss, self.vectors.all()
        width = vectors.shape[1]
        is_product = self.metric_ == "inner_product"
        metric = faiss.METRIC_INNER_PRODUCT if is_product else faiss.METRIC_L2
        if self.index == "hnsw":
            index = faiss.IndexHNSWFlat(width, self.m, metric)
            index.hnsw.efConstruction = self.ef_construction
        elif self.index == "ivf":
            quantizer = faiss.IndexFlat(width, metric)
            index = faiss.IndexIVFFlat(quantizer, width, self._n_lists, metric)
            index.cp.niter = 10  # balanced lists suffice, in a tenth of the time
            index.cp.max_points_per_centroid = 64
            with _threads(faiss, vectors.size < SMALL):
                index.train(vectors)
        else:
            index = faiss.IndexFlat(width, metric)
        self._add_vectors(index, vectors, 0)
        return BuiltIndex(index, np.arange(len(vectors)), len(vectors))

    def _add_vectors(self, index: Any, vectors: Vectors, first_slot: int) -> None:
        with _threads(self._faiss, vectors.size < SMALL):
            if self.index == "ivf":
                index.add_with_ids(vectors, np.arange(first_slot, first_slot + len(vectors)))
            else:
                index.add(vectors)

    def _search_parameters(self, built: BuiltIndex, wanted: int) -> Any:
        """Parameters of one search; forgotten entries are skipped."""
        faiss = self._faiss
        if self.index == "ivf":
            return faiss.SearchParametersIVF(nprobe=min(self.n_probe, built.index.nlist))
        if self.index == "flat":
            return None
        width = max(self.ef_search, wanted)
        if len(built.positions) == len(self):
            return faiss.SearchParametersHNSW(efSearch=width)
        alive = np.packbits(built.positions >= 0, bitorder="little")
        return faiss.SearchParametersHNSW(efSearch=width, sel=faiss.IDSelectorBitmap(alive))

    @property
    def _n_lists(self) -> int:
        usual = min(round(4 * len(self) ** 0.5), len(self) // PER_LIST)
        return max(1, usual) if self.n_lists is None else self.n_lists

    @property
    def _is_too_small(self) -> bool:
        smallest = PER_LIST * self._n_lists if self.index == "ivf" else 1
        return "_built" not in self.__dict__ and len(self) < smallest

    @cached_property
    def _reference(self) -> TorchMemory:
        return TorchMemory().restore(self.read(), self.metric_, self.center_)

    @property
    def _faiss(self) -> Any:
        return require(
            "faiss", extra="faiss", needed_by="`FaissMemory`", instead="`memory='torch'`"
        )

    def _check_settings(self) -> None:
        if self.index not in KINDS:
            raise unknown_name("index", self.index, KINDS)
        for name in ("m", "ef_construction", "ef_search", "n_lists", "n_probe"):
            value, least = getattr(self, name), 2 if name == "m" else 1
            if value is not None and value < least:
                raise InvalidSettingError(
                    f"`{name}` must be an integer of at least {least}, got {value}."
                )
        self._faiss  # noqa: B018  (a missing package is named now, not at the first search)


@contextmanager
def _threads(faiss: Any, is_small: bool) -> Iterator[None]:
    """Use one thread for small work: starting several takes longer on a busy machine."""
    usual = faiss.omp_get_max_threads()
    if is_small:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(usual)


def measure_recall(
    memory: Memory, queries: Vectors, k: int, exclude: Integers | None = None
) -> float:
    """Share of the `k` nearest entries of prepared queries that a search finds."""
    exact = TorchMemory().restore(memory.read(), memory.metric_, memory.center_)
    nearest = exact.search_prepared(queries, k, exclude=exclude)
    found = memory.search_prepared(queries, k, exclude=exclude)
    farthest = np.where(nearest.mask, nearest.distances, -np.inf).max(axis=1, initial=-np.inf)
    hits = (found.distances <= farthest[:, None]) & found.mask
    return float(hits.sum() / max(1, nearest.mask.sum()))
