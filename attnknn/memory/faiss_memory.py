"""Search through FAISS: exact and flat, or approximate by a graph (HNSW) or lists (IVF)."""

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
from attnknn.memory.distances import Vectors, in_order, keys_at
from attnknn.memory.entries import NO_GROUP
from attnknn.memory.error_bounds import product_error
from attnknn.memory.torch_memory import TorchMemory
from attnknn.records import Booleans, Floats, Integers
from attnknn.registry import register

KINDS = ("flat", "hnsw", "ivf")
MARGIN = 8  # candidates beyond the k asked for
MOST_LEFT_OUT = 64  # a query whose group is larger is searched exactly
PER_LIST = 39  # entries that FAISS wants for each list it trains
FEW = 8  # queries below which one thread is faster than several
LARGEST_STORED = {
    "m": 1 << 12,
    "ef_construction": 1 << 20,
    "ef_search": 1 << 20,
    "n_probe": 1 << 20,
}
SMALL = 1 << 18  # numbers in an index below which the same holds


@dataclass(frozen=True)
class Built:
    """A FAISS index, and the position of the entry in each of its slots, -1 for forgotten ones.

    One that `is_shared` may also be searched by a copy of the memory: it must not be changed.
    """

    index: Any
    positions: Integers
    n_held: int
    is_shared: bool = False

    @property
    def is_whole(self) -> bool:
        """False after an edit that failed half-way inside FAISS."""
        return bool(self.index.ntotal == self.n_held)


@register("memory", "faiss")
class FaissMemory(Memory):
    """Search through a FAISS index, the candidates compared by direct differences.

    A query for which the index finds fewer entries than there are is searched exactly, and so is
    one that leaves out a large group; what comes back is never padded or cut.

    Parameters
    ----------
    index : 'flat' is exact, 'hnsw' searches a graph, 'ivf' the nearest of many lists
    m : links of each entry in the graph of 'hnsw'; more find more and take more memory
    ef_construction, ef_search : how widely 'hnsw' looks while it builds and while it searches
    n_lists : lists of 'ivf'; None takes about four times the root of the number of entries.
        Training wants 39 entries for each list: while there are fewer, the search is exact
    n_probe : lists of 'ivf' that a query looks through
    rebuild_share : share of forgotten entries beyond which 'hnsw', which cannot delete, is rebuilt

    >>> from attnknn.memory import make_entries
    >>> memory = FaissMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    _derived: ClassVar[tuple[str, ...]] = (*Memory._derived, "_built", "_exact")

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
        """Whether the neighbors found are the nearest for sure."""
        return self.index == "flat"

    @property
    def n_bytes(self) -> int:
        """What the embeddings, and the index beside them, take."""
        built = self._ready()
        beside = 0 if built is None else self._faiss.serialize_index(built.index).nbytes
        return super().n_bytes + int(beside)

    def check_stored_settings(self, n_entries: int) -> None:
        """Raise `ModelFolderError` for sizes that FAISS would reserve too much memory for.

        Parameters
        ----------
        n_entries : int
            Number of entries in the model folder.
        """
        largest = {**LARGEST_STORED, "n_lists": max(n_entries, 1 << 16)}
        for name, most in largest.items():
            value = getattr(self, name)
            is_size = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
            if not (is_size or (name == "n_lists" and value is None)):
                raise ModelFolderError(
                    f"The stored `{name}` must be from 1 to {most}, got {value!r}."
                )

    def recall(self, queries: ArrayLike, k: int, *, exclude: Integers | None = None) -> float:
        """Share of the `k` nearest entries that `search` finds, 1.0 is all; higher is better."""
        return self.recall_prepared(self.prepare(queries), k, exclude=exclude)

    def recall_prepared(
        self, queries: Vectors, k: int, *, exclude: Integers | None = None
    ) -> float:
        """`recall` for vectors that went through `prepare`, such as `entries.embeddings`."""
        found = self.search_prepared(queries, k, exclude=exclude)
        nearest = self._exact.search_prepared(queries, k, exclude=exclude)
        farthest = np.where(nearest.mask, nearest.distances, -np.inf).max(axis=1, initial=-np.inf)
        hits = (found.distances <= farthest[:, None]) & found.mask
        return float(hits.sum() / max(1, nearest.mask.sum()))

    def _index(self) -> None:
        self._check_settings()
        self._drop("_built", "_exact")
        if not self._is_too_small:
            self._built = self._build()

    def _append(self, n_new: int) -> None:
        self._drop("_exact")
        built = self.__dict__.get("_built")
        if built is None or not built.is_whole:
            self._index()
            return
        n_slots, n_total = len(built.positions), len(self)
        index = self._own(built)
        self._put(index, self.entries.embeddings[n_total - n_new :], n_slots)
        added = np.arange(n_total - n_new, n_total)
        self._built = Built(index, np.concatenate([built.positions, added]), built.n_held + n_new)

    def _remove(self, positions: Integers) -> None:
        self._drop("_exact")
        built = self.__dict__.get("_built")
        if built is None or not built.is_whole:
            self._index()
            return
        gone = np.isin(built.positions, positions)
        moved = built.positions - np.searchsorted(positions, built.positions)
        slots = np.where(gone | (built.positions < 0), -1, moved)
        if self.index == "hnsw":
            self._built = replace(built, positions=slots)
            if (slots < 0).mean() > self.rebuild_share:
                self._index()
            return
        index = self._own(built)
        index.remove_ids(np.flatnonzero(gone))
        slots = (
            slots[~gone] if self.index == "flat" else slots
        )  # flat closes the gaps, lists do not
        self._built = Built(index, slots, built.n_held - len(positions))

    def __copy__(self) -> FaissMemory:
        """A memory with the same index: whichever of the two changes first takes a copy of it."""
        if "_built" in self.__dict__:
            self._built = replace(self._built, is_shared=True)
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _own(self, built: Built) -> Any:
        """An index that may be changed: that of `built`, or a copy of it."""
        return self._faiss.clone_index(built.index) if built.is_shared else built.index

    def _nearest(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        built = self._ready()
        if built is None or self._exact._slack.overflows(queries):
            return self._exact._nearest(queries, k, exclude)
        sizes = np.zeros(1, np.int64) if exclude is None else self._exclusion.sizes(exclude)
        wanted = min(k + MARGIN + min(int(sizes.max()), MOST_LEFT_OUT), len(self))
        candidates, worst = self._candidates(built, queries, wanted)
        if exclude is not None:
            candidates[self._must_not_meet(candidates, exclude)] = -1
        keys = keys_at(queries, self.entries.embeddings, np.maximum(candidates, 0), self.metric_)
        keys[candidates < 0] = np.inf
        positions, keys = in_order(candidates, keys, self._lookup, k)
        again = ~self._is_settled(queries, keys, worst, np.minimum(k, len(self) - sizes), wanted)
        if again.any():
            own = None if exclude is None else exclude[again]
            positions[again], keys[again] = self._exact._nearest(queries[again], k, own)
        return positions, keys

    def _candidates(self, built: Built, queries: Vectors, wanted: int) -> tuple[Integers, Floats]:
        """Positions (B, wanted), -1 for none, and the worst key that FAISS gave to each query."""
        with _threads(self._faiss, len(queries) < FEW or self.entries.embeddings.size < SMALL):
            keys, slots = built.index.search(queries, wanted, params=self._how(built, wanted))
        candidates = np.where(slots < 0, -1, built.positions[np.maximum(slots, 0)])
        worst = keys[:, -1].astype(np.float64)
        return candidates, -worst if self.metric_ == "inner_product" else worst

    def _is_settled(
        self, queries: Vectors, keys: Floats, worst: Floats, n_due: Integers, wanted: int
    ) -> Booleans:
        """Whether each query has as many entries as it should, and for sure where exact."""
        is_full = (keys < np.inf).sum(axis=1) >= n_due
        if not self.is_exact or wanted == len(self):
            return is_full
        error = product_error(queries, keys[:, -1], self._exact._slack)
        return is_full & (keys[:, -1] < worst - error)

    def _must_not_meet(self, candidates: Integers, exclude: Integers) -> Booleans:
        groups = self.entries.groups
        own = groups[exclude][:, None]
        return (candidates == exclude[:, None]) | ((groups[candidates] == own) & (own != NO_GROUP))

    def _ready(self) -> Built | None:
        built: Built | None = self.__dict__.get("_built")
        if self._is_too_small:
            return None
        if built is None or not built.is_whole:
            self._index()
        return self._built

    def _build(self) -> Built:
        faiss, vectors = self._faiss, self.entries.embeddings
        width = vectors.shape[1]
        is_product = self.metric_ == "inner_product"
        metric = faiss.METRIC_INNER_PRODUCT if is_product else faiss.METRIC_L2
        if self.index == "hnsw":
            index = faiss.IndexHNSWFlat(width, self.m, metric)
            index.hnsw.efConstruction = self.ef_construction
        elif self.index == "ivf":
            quantizer = faiss.IndexFlat(width, metric)
            index = faiss.IndexIVFFlat(quantizer, width, self._n_lists, metric)
            index.cp.niter = 10  # the lists need not be perfect, only balanced: a tenth of the time
            index.cp.max_points_per_centroid = 64
            with _threads(faiss, vectors.size < SMALL):
                index.train(vectors)
        else:
            index = faiss.IndexFlat(width, metric)
        self._put(index, vectors, 0)
        return Built(index, np.arange(len(vectors)), len(vectors))

    def _put(self, index: Any, vectors: Vectors, first_slot: int) -> None:
        with _threads(self._faiss, vectors.size < SMALL):
            if self.index == "ivf":
                index.add_with_ids(vectors, np.arange(first_slot, first_slot + len(vectors)))
            else:
                index.add(vectors)

    def _how(self, built: Built, wanted: int) -> Any:
        """The parameters of one search; entries that are forgotten are passed over."""
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
    def _exact(self) -> TorchMemory:
        return self._twin(TorchMemory())

    @property
    def _faiss(self) -> Any:
        return require(
            "faiss", extra="faiss", needed_by="`FaissMemory`", instead="`memory='torch'`"
        )

    def _check_settings(self) -> None:
        if self.index not in KINDS:
            raise unknown_name("index", self.index, KINDS)
        for name in ("m", "ef_construction", "ef_search", "n_lists", "n_probe"):
            value = getattr(self, name)
            if value is not None and value < (2 if name == "m" else 1):
                least = 2 if name == "m" else 1
                raise InvalidSettingError(
                    f"`{name}` must be an integer of at least {least}, got {value}."
                )
        self._faiss  # noqa: B018  (a missing package is named now, not at the first search)


@contextmanager
def _threads(faiss: Any, is_small: bool) -> Iterator[None]:
    """One thread for small work: starting several takes far longer on a busy machine."""
    usual = faiss.omp_get_max_threads()
    if is_small:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(usual)
