"""Exact search by blocked matrix products, on CPU or GPU. The default for small memories."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import unknown_name
from attnknn.memory import selection
from attnknn.memory.base import DEVICE, DEVICES
from attnknn.memory.distances import (
    Ranking,
    Vectors,
    first_of_each,
    in_order,
    keys_at,
    keys_between,
    keys_of_pairs,
)
from attnknn.memory.error_bounds import ErrorBounds
from attnknn.memory.numpy_memory import NumpyMemory
from attnknn.memory.range_search import RangeFilter, RangeMatches, lower_limits
from attnknn.memory.selection import (
    Candidates,
    dot,
    largest,
    largest_of_one,
    largest_on_device,
    merged,
    multiply,
    padded,
    share_rows,
    stacked,
)
from attnknn.records import Floats, Integers
from attnknn.registry import Option, register
from attnknn.training.terminal import track
from attnknn.training.threads import n_threads

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 1024  # queries in one matrix product, at most
COLUMNS = 1 << 16  # entries in one matrix product, at most
PRODUCTS = 1 << 24  # numbers in one matrix product, at most
PAIRS = 1 << 22  # pairs that are compared one by one at a time
SMALL = 1 << 15  # numbers up to which the reference is faster


@register("memory", "torch")
class TorchMemory(NumpyMemory):
    """Exact search by float32 matrix products, with the candidates compared in float64.

    A matrix product selects the nearest entries and a few more, which are then compared by direct
    differences. If the error bound of the product cannot rule out that another entry is as near,
    every entry within the bound is compared. So the result equals that of `NumpyMemory` to the
    last bit, whatever the batch and the order of the entries.

    Parameters
    ----------
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='cpu'
        Device of the matrix products; 'auto' takes the fastest that is available.

    Examples
    --------
    >>> from attnknn.memory import make_entries
    >>> memory = TorchMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    options: ClassVar[tuple[Option, ...]] = (DEVICE,)
    _built: ClassVar[tuple[str, ...]] = ("_error_bounds", "_vectors", "_penalties")
    derived: ClassVar[tuple[str, ...]] = (*NumpyMemory.derived, *_built, "_scratch")

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def build_index(self) -> None:
        if self.device not in DEVICES:
            raise unknown_name("device", self.device, DEVICES)
        self._drop(*self._built)

    def extend_index(self, n_new: int) -> None:
        bounds: ErrorBounds | None = self.__dict__.get("_error_bounds")
        self.build_index()
        if bounds is not None:
            self._error_bounds = bounds.joined(self.vectors[-n_new:])

    def shrink_index(self, positions: Integers) -> None:
        bounds: ErrorBounds | None = self.__dict__.get("_error_bounds")
        self.build_index()
        if bounds is not None:
            self._error_bounds = bounds.without(positions)

    def find_nearest(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        if self._needs_reference(queries):
            if len(queries) == 1 and exclude is None:
                return self._nearest_of_few(queries, k)
            return super().find_nearest(queries, k, exclude)
        if len(queries) == 1 and self._is_on_cpu(1):
            return self._nearest_to_one(queries, k, exclude)
        positions = np.empty((len(queries), k), dtype=np.int64)
        keys = np.empty((len(queries), k))
        for rows in track(self._blocks(len(queries)), "Searching neighbors"):
            own = None if exclude is None else exclude[rows]
            chunks = self._similarities(queries[rows], own)
            parts = [self._candidates(first, chunk, k) for first, chunk in chunks]
            found = merged(parts, _with_margin(k))
            positions[rows], keys[rows] = self._decide(queries[rows], found, k, own)
        return positions, keys

    def range_search(self, queries: Vectors, radii: Floats) -> RangeMatches:
        if self._needs_reference(queries):
            return super().range_search(queries, radii)
        if len(queries) == 1 and self._is_on_cpu(1):
            lowest, half = lower_limits(queries, radii, self.error_bounds)
            inside = np.flatnonzero(self._similarities_of_one(queries) >= lowest[0] - half)
            query = np.zeros(len(inside), dtype=np.int64)
            keys = self._keys_of_pairs(queries, query, inside)
            return RangeMatches(query, inside, keys).take(keys <= radii[inside])
        parts = []
        for rows in self._blocks(len(queries)):
            pairs = RangeFilter(queries[rows], radii, self.error_bounds)
            for first, chunk in self._similarities(pairs.queries, None):
                pairs.add(first, _as_array(chunk[:, : len(self) - first]))
            parts.append(self._in_range(pairs, rows.start))
        return RangeMatches.joined(parts)

    def search_both(
        self, queries: Vectors, k: int, radii: Floats, exclude: Integers
    ) -> tuple[Ranking, RangeMatches]:
        if len(queries) == 1 or self._needs_reference(queries):
            return super().search_both(queries, k, radii, exclude)
        positions = np.empty((len(queries), k), dtype=np.int64)
        keys = np.empty((len(queries), k))
        matches = []
        blocks = track(self._blocks(len(queries)), "Searching neighbors")
        for rows in blocks:  # one product serves both searches
            pairs = RangeFilter(queries[rows], radii, self.error_bounds)
            own = exclude[rows][pairs.order]
            parts = []
            for first, chunk in self._similarities(pairs.queries, own):
                parts.append(self._candidates(first, chunk, k))
                pairs.add(first, _as_array(chunk[:, : len(self) - first]))
            found, back = merged(parts, _with_margin(k)), rows.start + pairs.order
            positions[back], keys[back] = self._decide(pairs.queries, found, k, own)
            matches.append(self._in_range(pairs, rows.start))
        return (positions, keys), RangeMatches.joined(matches)

    @property
    def error_bounds(self) -> ErrorBounds:
        """Error bounds of the products, in the precision that torch is set to."""
        precision = "highest"
        if "torch" in sys.modules:
            import torch  # waits while another thread imports it

            precision = torch.get_float32_matmul_precision()
        known: ErrorBounds | None = self.__dict__.get("_error_bounds")
        if known is None or known.precision != precision:
            known = ErrorBounds(self.vectors.all(), self.metric_, precision)
            self.__dict__.pop("_penalties", None)
            self._error_bounds = known
        return known

    def _needs_reference(self, queries: Vectors) -> bool:
        is_small = len(queries) * self.vectors.all().size <= SMALL
        return is_small or self.error_bounds.overflows(queries)

    def _blocks(self, n_queries: int) -> list[slice]:
        """Blocks of about the same size, as large as the limits of a product allow."""
        most = max(1, min(ROWS, PRODUCTS // min(COLUMNS, padded(len(self)))))
        borders = np.linspace(0, n_queries, -(-n_queries // most) + 1).astype(int).tolist()
        return [slice(first, stop) for first, stop in itertools.pairwise(borders)]

    def _keys_of_pairs(self, queries: Vectors, rows: Integers, positions: Integers) -> Floats:
        return keys_of_pairs(queries, self.vectors.all(), rows, positions, self.metric_)

    def _in_range(self, pairs: RangeFilter, start: int) -> RangeMatches:
        """The pairs of a filter that are in range; the index of queries begins at `start`."""
        row, position = pairs.pairs()
        keys = self._keys_of_pairs(pairs.queries, row, position)
        found = RangeMatches(pairs.order[row] + start, position, keys)
        return found.take(keys <= pairs.radii[position])

    def _decide(
        self, queries: Vectors, found: Candidates, k: int, exclude: Integers | None
    ) -> Ranking:
        """The `k` nearest of the candidates, or of all entries where these are not enough."""
        positions, keys = self._nearest_of(queries, found.columns, k)
        is_certain = self.error_bounds.threshold(queries, keys[:, -1]) > found.rest
        doubtful = np.flatnonzero(~(is_certain | (found.rest == -np.inf)))
        step = max(1, PAIRS // len(self))
        for start in range(0, len(doubtful), step):
            some = doubtful[start : start + step]
            own = None if exclude is None else exclude[some]
            nearest = self._nearest_within(queries[some], keys[some, -1], k, own)
            positions[some], keys[some] = nearest
        return positions, keys

    def _nearest_of(self, queries: Vectors, candidates: Integers, k: int) -> Ranking:
        """The `k` nearest of the candidates (B, M), by direct differences."""
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        keys = np.full((len(queries), k), np.inf)
        width = min(k, candidates.shape[1])

        def compare(rows: slice) -> None:
            theirs = np.maximum(candidates[rows], 0)
            exact = keys_at(queries[rows], self.vectors.all(), theirs, self.metric_)
            exact[candidates[rows] < 0] = np.inf
            nearest = in_order(candidates[rows], exact, self.id_lookup, k)
            positions[rows, :width], keys[rows, :width] = nearest

        share_rows(compare, len(queries), candidates.size * queries.shape[1], n_threads())
        return positions, keys

    def _nearest_within(
        self, queries: Vectors, kth_key: Floats, k: int, exclude: Integers | None
    ) -> Ranking:
        """The `k` nearest of all entries that the bounds do not rule out."""
        threshold = self.error_bounds.threshold(queries, kth_key)[:, None]
        rows, positions = [], []
        for first, chunk in self._similarities(queries, exclude):
            least = self._beside(chunk, threshold)
            inside, columns = np.nonzero(_as_array((chunk >= least) & (chunk > -np.inf)))
            rows.append(inside)
            positions.append(columns + first)
        row, position = np.concatenate(rows), np.concatenate(positions)
        keys = self._keys_of_pairs(queries, row, position)
        return first_of_each(row, position, keys, self.id_lookup, len(queries), k)

    def _nearest_of_few(self, query: Vectors, k: int) -> Ranking:
        """The reference for a single query (1, D): only those as near as the k-th are sorted."""
        keys = keys_between(query, self.vectors.all(), self.metric_)
        candidates = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
        return in_order(candidates[None], keys[candidates][None], self.id_lookup, k)

    def _nearest_to_one(self, query: Vectors, k: int, exclude: Integers | None) -> Ranking:
        """`find_nearest` for a single query (1, D), without the overhead of blocks."""
        similarities = self._similarities_of_one(query)
        if exclude is not None:
            similarities[self.exclusion.pairs(exclude)[1]] = -np.inf
        found = largest_of_one(similarities, _with_margin(k))
        positions, keys = self._nearest_of_one(query, found.columns[0], k)
        lowest = self.error_bounds.threshold(query, keys[:, -1])
        if found.rest[0] > -np.inf and not lowest[0] > found.rest[0]:
            inside = np.flatnonzero((similarities >= lowest[0]) & (similarities > -np.inf))
            positions, keys = self._nearest_of_one(query, inside, k)
        return positions, keys

    def _nearest_of_one(self, query: Vectors, candidates: Integers, k: int) -> Ranking:
        exact = self._keys_of_pairs(query, np.zeros(len(candidates), dtype=np.int64), candidates)
        positions, keys = in_order(candidates[None], exact[None], self.id_lookup, k)
        missing = ((0, 0), (0, k - positions.shape[1]))
        if not missing[1][1]:
            return positions, keys
        return np.pad(positions, missing), np.pad(keys, missing, constant_values=np.inf)

    def _candidates(self, first: int, chunk: Vectors | Tensor, k: int) -> Candidates:
        """The most similar entries, `k` and some more, of a chunk that begins with `first`."""
        if not isinstance(chunk, np.ndarray):
            found = largest_on_device(chunk, _with_margin(k))
        else:
            parts: dict[int, Candidates] = {}

            def select(rows: slice) -> None:
                parts[rows.start] = largest(chunk[rows], _with_margin(k))

            share_rows(select, len(chunk), chunk.size, n_threads())
            found = stacked([parts[start] for start in sorted(parts)])
        positions = np.where(found.columns < 0, -1, found.columns + first)
        return Candidates(positions, found.values, found.rest)

    def _similarities(
        self, queries: Vectors, exclude: Integers | None
    ) -> Iterator[tuple[int, Any]]:
        """For each chunk of entries its first position and products minus penalties (B, C).

        Excluded pairs and the padding of the last chunk hold minus infinity. Chunks are arrays on
        the CPU and tensors on another device. Every turn writes into the same one.
        """
        is_on_cpu = self._is_on_cpu(len(queries))
        vectors = self.vectors.all() if is_on_cpu else self._vectors
        asked = self._beside(vectors, queries)
        left_out = None if exclude is None else self.exclusion.pairs(exclude)
        scratch = self._taken_scratch(len(queries) * min(COLUMNS, padded(len(self))), vectors)
        for first in range(0, len(self), COLUMNS):
            stop = min(first + COLUMNS, len(self))
            width = padded(stop - first)
            chunk = scratch[: len(queries) * width].reshape(len(queries), width)
            chunk[:, stop - first :] = -np.inf
            multiply(asked, vectors[first:stop], chunk[:, : stop - first])
            self._subtract_penalties(chunk[:, : stop - first], slice(first, stop))
            if left_out is not None:
                rows, positions = left_out
                inside = (positions >= first) & (positions < stop)
                chunk[rows[inside], positions[inside] - first] = -np.inf
            yield first, chunk
        self._scratch = scratch

    def _similarities_of_one(self, query: Vectors) -> Vectors:
        similarities = dot(self.vectors.all(), query[0], n_threads())
        if self.metric_ != "inner_product":
            similarities -= self.error_bounds.penalties
        return similarities

    def _subtract_penalties(self, products: Any, part: slice) -> None:
        if self.metric_ == "inner_product":
            return
        if not isinstance(products, np.ndarray):
            products.sub_(self._penalties[part])
            return
        penalties = self.error_bounds.penalties[part]

        def subtract(rows: slice) -> None:
            np.subtract(products[rows], penalties, out=products[rows])

        share_rows(subtract, len(products), products.size, n_threads())

    def _taken_scratch(self, n_numbers: int, vectors: Any) -> Any:
        """A buffer for products, removed from the memory so that no other thread writes to it."""
        scratch = self.__dict__.pop("_scratch", None)
        if type(scratch) is not type(vectors) or len(scratch) < n_numbers:
            scratch = self._beside(vectors, np.empty(n_numbers, dtype=np.float32))
        return scratch

    def _is_on_cpu(self, n_queries: int) -> bool:
        """Whether products are computed on the CPU; with 'auto' small ones always are."""
        is_small = n_queries * self.vectors.all().size <= selection.SMALL_PRODUCT
        if self.device == "cpu" or (self.device == "auto" and is_small):
            return True
        from attnknn.training.devices import device_of

        return device_of(self.device).type == "cpu"

    @staticmethod
    def _beside(others: Any, values: Vectors) -> Any:
        """The values as a tensor on the device of `others`, or as they are beside an array."""
        if isinstance(others, np.ndarray):
            return values
        import torch

        return torch.from_numpy(values).to(others.device)

    @cached_property
    def _vectors(self) -> Tensor:
        import torch

        from attnknn.training.devices import device_of

        return torch.from_numpy(self.vectors.all()).to(device_of(self.device))

    @cached_property
    def _penalties(self) -> Tensor:
        penalties: Tensor = self._beside(self._vectors, self.error_bounds.penalties)
        return penalties


def _as_array(values: Any) -> NDArray[Any]:
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def _with_margin(k: int) -> int:
    """Number of candidates, so that the k-th nearest is nearly always certain at once."""
    return k + 8 + k // 8
