"""Exact search by blocked matrix products, on one machine's cores or its GPU. The default."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from attnknn.errors import unknown_name
from attnknn.memory.base import DEVICE, DEVICES
from attnknn.memory.distances import Vectors, first_of_each, in_order, keys_at, keys_of_pairs
from attnknn.memory.error_bounds import Slack
from attnknn.memory.numpy_memory import NumpyMemory
from attnknn.memory.range_search import RangeMatches, lowest_bounds, pairs_above
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

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 1024  # queries in one matrix product, at most
COLUMNS = 1 << 16  # entries in one matrix product, at most
PRODUCTS = 1 << 24  # numbers in one matrix product, at most
PAIRS = 1 << 22  # pairs that are compared one by one at a time
SMALL = 1 << 15  # numbers up to which the plain way is the faster one


@register("memory", "torch")
class TorchMemory(NumpyMemory):
    """Exact search: float32 products propose, float64 differences decide.

    The product proposes the nearest entries and a few more, which are compared by direct
    differences. Where the error bound of the product leaves open whether yet another entry is as
    near, every entry within the bound is compared. So the answer is that of `NumpyMemory` to the
    last bit, whatever the batch and the order of the entries.

    Parameters
    ----------
    device : where the products run: 'cpu', 'cuda', 'mps', or 'auto' for the fastest there is

    >>> from attnknn.memory import make_entries
    >>> memory = TorchMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    """

    options: ClassVar[tuple[Option, ...]] = (DEVICE,)
    _built: ClassVar[tuple[str, ...]] = ("_bounds_of_product", "_vectors", "_penalties")
    _derived: ClassVar[tuple[str, ...]] = (*NumpyMemory._derived, *_built, "_scratch")

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def _index(self) -> None:
        if self.device not in DEVICES:
            raise unknown_name("device", self.device, DEVICES)
        self._drop(*self._built)

    def _append(self, n_new: int) -> None:
        known: Slack | None = self.__dict__.get("_bounds_of_product")
        self._index()
        if known is not None:
            self._bounds_of_product = known.joined(self.entries.embeddings[-n_new:])

    def _remove(self, positions: Integers) -> None:
        known: Slack | None = self.__dict__.get("_bounds_of_product")
        self._index()
        if known is not None:
            self._bounds_of_product = known.without(positions)

    def _nearest(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        if len(queries) * self.entries.embeddings.size <= SMALL or self._slack.overflows(queries):
            return super()._nearest(queries, k, exclude)
        if len(queries) == 1 and self._vectors.device.type == "cpu":
            return self._nearest_to_one(queries, k, exclude)
        positions = np.empty((len(queries), k), dtype=np.int64)
        keys = np.empty((len(queries), k))
        for rows in self._blocks(len(queries)):
            own = None if exclude is None else exclude[rows]
            positions[rows], keys[rows] = self._nearest_by_product(queries[rows], k, own)
        return positions, keys

    def _blocks(self, n_queries: int) -> list[slice]:
        """Blocks of about the same size, as large as the room for products allows."""
        most = max(1, min(ROWS, PRODUCTS // min(COLUMNS, padded(len(self)))))
        borders = np.linspace(0, n_queries, -(-n_queries // most) + 1).astype(int).tolist()
        return [slice(first, stop) for first, stop in itertools.pairwise(borders)]

    def _nearest_by_product(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        found = self._candidates(queries, _with_margin(k), exclude)
        return self._settled(queries, found, k, exclude)

    def _settled(
        self, queries: Vectors, found: Candidates, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        """The `k` nearest, from candidates where these are enough and else from all entries."""
        positions, keys = self._decide(queries, found.columns, k)
        is_certain = self._slack.threshold(queries, keys[:, -1]) > found.rest
        doubtful = np.flatnonzero(~(is_certain | (found.rest == -np.inf)))
        step = max(1, PAIRS // len(self))
        for start in range(0, len(doubtful), step):
            some = doubtful[start : start + step]
            own = None if exclude is None else exclude[some]
            nearest = self._nearest_within(queries[some], keys[some, -1], k, own)
            positions[some], keys[some] = nearest
        return positions, keys

    def _nearest_to_one(
        self, query: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        """The same for a single query (1, D), in a few steps on one row."""
        bounds = self._bounds_of_one(query)
        if exclude is not None:
            bounds[self._left_out(exclude)[1]] = -np.inf
        found = largest_of_one(bounds, _with_margin(k))
        positions, keys = self._decide_for_one(query, found.columns[0], k)
        lowest = self._slack.threshold(query, keys[:, -1])
        if found.rest[0] > -np.inf and not lowest[0] > found.rest[0]:
            inside = np.flatnonzero((bounds >= lowest[0]) & (bounds > -np.inf))
            positions, keys = self._decide_for_one(query, inside, k)
        return positions, keys

    def _decide_for_one(
        self, query: Vectors, candidates: Integers, k: int
    ) -> tuple[Integers, Floats]:
        everyone = np.zeros(len(candidates), dtype=np.int64)
        exact = keys_of_pairs(query, self.entries.embeddings, everyone, candidates, self.metric_)
        positions, keys = in_order(candidates[None], exact[None], self._lookup, k)
        missing = ((0, 0), (0, k - positions.shape[1]))
        if not missing[1][1]:
            return positions, keys
        return np.pad(positions, missing), np.pad(keys, missing, constant_values=np.inf)

    def _candidates(self, queries: Vectors, m: int, exclude: Integers | None) -> Candidates:
        """The entries with the largest bounds, at least `m` of them where there are so many."""
        chunks = self._bounds(queries, exclude)
        return merged([self._largest_from(first, bounds, m) for first, bounds in chunks], m)

    def _largest_from(self, first: int, bounds: Tensor, m: int) -> Candidates:
        """The entries with the largest bounds of a chunk that begins with the entry `first`."""
        found = self._largest(bounds, m)
        positions = np.where(found.columns < 0, -1, found.columns + first)
        return Candidates(positions, found.values, found.rest)

    def _largest(self, bounds: Tensor, m: int) -> Candidates:
        if bounds.device.type != "cpu":
            return largest_on_device(bounds, m)
        parts: dict[int, Candidates] = {}
        values = bounds.numpy()

        def select(rows: slice) -> None:
            parts[rows.start] = largest(values[rows], m)

        share_rows(select, len(values), values.size, _n_threads())
        return stacked([parts[start] for start in sorted(parts)])

    def _decide(self, queries: Vectors, candidates: Integers, k: int) -> tuple[Integers, Floats]:
        """The `k` nearest of the candidates (B, M), by direct differences."""
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        keys = np.full((len(queries), k), np.inf)
        width = min(k, candidates.shape[1])

        def decide(rows: slice) -> None:
            theirs = np.maximum(candidates[rows], 0)
            exact = keys_at(queries[rows], self.entries.embeddings, theirs, self.metric_)
            exact[candidates[rows] < 0] = np.inf
            best = in_order(candidates[rows], exact, self._lookup, k)
            positions[rows, :width], keys[rows, :width] = best

        share_rows(decide, len(queries), candidates.size * queries.shape[1], _n_threads())
        return positions, keys

    def _nearest_within(
        self, queries: Vectors, kth_key: Floats, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        """The `k` nearest of all entries that the bounds do not rule out."""
        import torch

        threshold = torch.from_numpy(self._slack.threshold(queries, kth_key))[:, None]
        rows, positions = [], []
        for first, bounds in self._bounds(queries, exclude):
            inside = (bounds >= threshold.to(bounds.device)) & (bounds > -torch.inf)
            pairs = inside.nonzero().cpu().numpy()
            rows.append(pairs[:, 0])
            positions.append(pairs[:, 1] + first)
        row, position = np.concatenate(rows), np.concatenate(positions)
        keys = keys_of_pairs(queries, self.entries.embeddings, row, position, self.metric_)
        return first_of_each(row, position, keys, self._lookup, len(queries), k)

    def reached(self, queries: Vectors, reach: Floats) -> RangeMatches:
        """As in `Memory`: products rule pairs out, differences decide the others."""
        if len(queries) * self.entries.embeddings.size <= SMALL or self._slack.overflows(queries):
            return super().reached(queries, reach)
        if len(queries) == 1 and self._vectors.device.type == "cpu":
            return self._reached_by_one(queries, reach)
        blocks = self._blocks(len(queries))
        found = [self._reached_block(queries[rows], reach, rows.start) for rows in blocks]
        return RangeMatches.joined(found)

    def _reached_by_one(self, query: Vectors, reach: Floats) -> RangeMatches:
        lowest, half = lowest_bounds(query, reach, self._slack)
        inside = np.flatnonzero(self._bounds_of_one(query) >= lowest[0] - half)
        everyone = np.zeros(len(inside), dtype=np.int64)
        keys = keys_of_pairs(query, self.entries.embeddings, everyone, inside, self.metric_)
        return RangeMatches(everyone, inside, keys).part(keys <= reach[inside])

    def _bounds_of_one(self, query: Vectors) -> Vectors:
        bounds = dot(self.entries.embeddings, query[0], _n_threads())
        if self.metric_ != "inner_product":
            bounds -= self._slack.penalties
        return bounds

    def ranked_and_reached(
        self, queries: Vectors, k: int, reach: Floats, exclude: Integers
    ) -> tuple[Integers, Floats, RangeMatches]:
        """As in `Memory`: one product serves both."""
        is_small = len(queries) * self.entries.embeddings.size <= SMALL
        if is_small or len(queries) == 1 or self._slack.overflows(queries):
            return super().ranked_and_reached(queries, k, reach, exclude)
        positions = np.empty((len(queries), k), dtype=np.int64)
        keys = np.empty((len(queries), k))
        pairs = []
        for rows in self._blocks(len(queries)):
            look = _Look(queries[rows], reach, self._slack)
            own = exclude[rows][look.order]
            parts = []
            for first, bounds in self._bounds(look.queries, own):
                parts.append(self._largest_from(first, bounds, _with_margin(k)))
                look.at(first, bounds, len(self))
            back = rows.start + look.order
            found = merged(parts, _with_margin(k))
            positions[back], keys[back] = self._settled(look.queries, found, k, own)
            pairs.append(self._within(look, rows.start))
        return positions, keys, RangeMatches.joined(pairs)

    def _reached_block(self, queries: Vectors, reach: Floats, start: int) -> RangeMatches:
        look = _Look(queries, reach, self._slack)
        for first, bounds in self._bounds(look.queries, None):
            look.at(first, bounds, len(self))
        return self._within(look, start)

    def _within(self, look: _Look, start: int) -> RangeMatches:
        """Of the pairs that bounds do not rule out those in reach; queries count from `start`."""
        row, position = look.pairs()
        keys = keys_of_pairs(look.queries, self.entries.embeddings, row, position, self.metric_)
        found = RangeMatches(look.order[row] + start, position, keys)
        return found.part(keys <= look.reach[position])

    def _bounds(self, queries: Vectors, exclude: Integers | None) -> Iterator[tuple[int, Tensor]]:
        """For each chunk of entries its first position and what bounds the similarities (B, C).

        Excluded pairs and the places that fill up the last group hold minus infinity. The tensor
        is the same at every turn, with other numbers.
        """
        import torch

        asked = torch.from_numpy(queries).to(self._vectors.device)
        left_out = None if exclude is None else self._left_out(exclude)
        scratch = self._taken_scratch(len(queries) * min(COLUMNS, padded(len(self))))
        for first in range(0, len(self), COLUMNS):
            stop = min(first + COLUMNS, len(self))
            width = padded(stop - first)
            bounds = scratch[: len(queries) * width].view(len(queries), width)
            bounds[:, stop - first :] = -torch.inf
            multiply(asked, self._vectors[first:stop], bounds[:, : stop - first])
            self._subtract_penalties(bounds[:, : stop - first], slice(first, stop))
            if left_out is not None:
                rows, columns = _in_range(left_out, first, stop)
                bounds[torch.from_numpy(rows), torch.from_numpy(columns)] = -torch.inf
            yield first, bounds
        self._scratch = scratch

    def _subtract_penalties(self, products: Tensor, part: slice) -> None:
        if self._penalties is None:
            return
        penalties = self._penalties[part]
        if products.device.type != "cpu":
            products.sub_(penalties)
            return
        values, less = products.numpy(), penalties.numpy()

        def subtract(rows: slice) -> None:
            np.subtract(values[rows], less, out=values[rows])

        share_rows(subtract, len(values), values.size, _n_threads())

    def _taken_scratch(self, n_numbers: int) -> Tensor:
        """Room for products; taken from the memory, so that no other thread writes to it."""
        scratch: Tensor | None = self.__dict__.pop("_scratch", None)
        if scratch is None or scratch.numel() < n_numbers:
            scratch = self._vectors.new_empty(n_numbers)
        return scratch

    @property
    def _slack(self) -> Slack:
        import torch

        precision = torch.get_float32_matmul_precision()
        known: Slack | None = self.__dict__.get("_bounds_of_product")
        if known is None or known.precision != precision:
            known = Slack(self.entries.embeddings, self.metric_, precision)
            self.__dict__.pop("_penalties", None)
            self._bounds_of_product = known
        return known

    @cached_property
    def _vectors(self) -> Tensor:
        import torch

        return torch.from_numpy(self.entries.embeddings).to(_best_device(self.device))

    @cached_property
    def _penalties(self) -> Tensor | None:
        import torch

        if self.metric_ == "inner_product":
            return None
        return torch.from_numpy(self._slack.penalties).to(self._vectors.device)


class _Look:
    """Collects the pairs of queries (B, D) and entries that may be within the entries' reach.

    The queries are put in order: those with alike bounds side by side, so that one look serves
    many.
    """

    def __init__(self, queries: Vectors, reach: Floats, slack: Slack) -> None:
        lowest, self._half = lowest_bounds(queries, reach, slack)
        self.order = np.argsort(lowest)
        self.queries, self.reach, self._lowest = queries[self.order], reach, lowest[self.order]
        self._rows: list[Integers] = []
        self._positions: list[Integers] = []

    def at(self, first: int, bounds: Tensor, n: int) -> None:
        """Look at a chunk of the `n` entries that begins with the entry `first`."""
        stop = min(first + bounds.shape[1], n)
        values = bounds[:, : stop - first].cpu().numpy()
        row, column = pairs_above(values, self._lowest, self._half[first:stop])
        self._rows.append(row)
        self._positions.append(column + first)

    def pairs(self) -> tuple[Integers, Integers]:
        """Which of the queries, in their order here, and which entry."""
        return np.concatenate(self._rows), np.concatenate(self._positions)


def _with_margin(k: int) -> int:
    """How many candidates to look at, so that the k-th is nearly always certain at once."""
    return k + 8 + k // 8


def _n_threads() -> int:
    import torch

    return torch.get_num_threads()


def _in_range(pairs: tuple[Integers, Integers], first: int, stop: int) -> tuple[Integers, Integers]:
    rows, positions = pairs
    inside = (positions >= first) & (positions < stop)
    return rows[inside], positions[inside] - first


def _best_device(device: str) -> str:
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
