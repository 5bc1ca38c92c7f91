"""The memory that chooses: exact while that is fast, an index that finds nearly all beyond."""

from __future__ import annotations

from copy import copy
from typing import ClassVar

import numpy as np

from attnknn.errors import MissingExtraError
from attnknn.memory.base import DEVICE, Memory
from attnknn.memory.distances import Vectors
from attnknn.memory.faiss_memory import FaissMemory
from attnknn.memory.range_search import RangeMatches
from attnknn.memory.torch_memory import TorchMemory
from attnknn.records import Floats, Integers
from attnknn.registry import Option, register

N_PROBES = 200
WIDTHS = (64, 128, 256, 512)  # how widely an index may look before exact search is as good


@register("memory", "auto")
class AutoMemory(Memory):
    """Exact search, or above a size the index that reaches the recall asked for.

    `reason_` says what was chosen and why, `chosen_` is the memory that does the work. The choice
    is made by `remember`, and again once the entries have doubled.

    Parameters
    ----------
    device : where exact products run; see `TorchMemory`
    exact_up_to : numbers (entries times columns) up to which search is exact. The default costs
        about five milliseconds for a single query on two cores, and one in a batch
    recall : share of the nearest entries that an index must find to be taken
    n_neighbors : the number of neighbors that recall is measured for
    random_state : seed of the choice of entries that the recall is measured on

    >>> from attnknn.memory import make_entries
    >>> memory = AutoMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.search([[4.0]], k=2).distances.tolist()
    [[1.0, 3.0]]
    >>> memory.reason_
    'Search is exact: 3 entries of 1 column take milliseconds.'
    """

    options: ClassVar[tuple[Option, ...]] = (DEVICE,)

    def __init__(
        self,
        device: str = "cpu",
        *,
        exact_up_to: int = 1 << 25,
        recall: float = 0.99,
        n_neighbors: int = 32,
        random_state: int = 0,
    ) -> None:
        self.device = device
        self.exact_up_to = exact_up_to
        self.recall = recall
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    @property
    def is_exact(self) -> bool:
        """Whether the memory chosen finds the nearest entries for sure."""
        return not hasattr(self, "chosen_") or self.chosen_.is_exact

    def _index(self) -> None:
        n, width = self.entries.embeddings.shape
        self.n_when_chosen_ = n
        self.chosen_: Memory = self._twin(TorchMemory(device=self.device))
        if n * width <= self.exact_up_to:
            columns = "column" if width == 1 else "columns"
            entries = "entry" if n == 1 else "entries"
            self.reason_ = (
                f"Search is exact: {n:,} {entries} of {width:,} {columns} take milliseconds."
            )
            return
        try:
            self._try_indexes()
        except MissingExtraError as error:
            self.reason_ = f"Search is exact, which is slow for {n:,} entries: {error}"

    def _try_indexes(self) -> None:
        """Take the first index that reaches the recall, looking ever more widely."""
        best = 0.0
        for kind in ("ivf", "hnsw"):
            index = self._twin(FaissMemory(kind))
            for width in WIDTHS:
                index.set_params(ef_search=width, n_probe=width // 4)
                reached = self._recall_of(index)
                best = max(best, reached)
                if reached >= self.recall:
                    self.chosen_ = index
                    self.reason_ = (
                        f"Search goes through an index ({kind}) that finds {reached:.1%} of the "
                        f"{self.n_neighbors} nearest of {len(self):,} entries."
                    )
                    return
        self.reason_ = (
            f"Search is exact: the indexes find {best:.1%} of the {self.n_neighbors} nearest of "
            f"{len(self):,} entries, less than `recall={self.recall}`."
        )

    def _recall_of(self, index: FaissMemory) -> float:
        chooser = np.random.default_rng(self.random_state)
        rows = chooser.choice(len(self), size=min(N_PROBES, len(self)), replace=False)
        return index.recall_prepared(self.entries.embeddings[rows], self.n_neighbors, exclude=rows)

    def _append(self, n_new: int) -> None:
        if len(self) > 2 * self.n_when_chosen_:
            self._index()
            return
        self.chosen_ = copy(self.chosen_)  # a copy of this memory may still use the old one
        self.chosen_._set(self.entries)
        self.chosen_._append(n_new)

    def _remove(self, positions: Integers) -> None:
        self.chosen_ = copy(self.chosen_)
        self.chosen_._set(self.entries)
        self.chosen_._remove(positions)

    def _nearest(
        self, queries: Vectors, k: int, exclude: Integers | None
    ) -> tuple[Integers, Floats]:
        return self.chosen_._nearest(queries, k, exclude)

    def reached(self, queries: Vectors, reach: Floats) -> RangeMatches:
        """As in `Memory`, by the memory chosen."""
        return self.chosen_.reached(queries, reach)

    def ranked_and_reached(
        self, queries: Vectors, k: int, reach: Floats, exclude: Integers
    ) -> tuple[Integers, Floats, RangeMatches]:
        """As in `Memory`, by the memory chosen."""
        return self.chosen_.ranked_and_reached(queries, k, reach, exclude)

    @property
    def n_bytes(self) -> int:
        """What the embeddings, and the index beside them, take."""
        return self.chosen_.n_bytes
