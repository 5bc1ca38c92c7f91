"""The memory that chooses between exact search and an approximate index."""

from __future__ import annotations

from copy import copy
from typing import ClassVar

import numpy as np

from attnknn.errors import MissingExtraError
from attnknn.memory.base import DEVICE, Memory
from attnknn.memory.distances import Ranking, Vectors
from attnknn.memory.faiss_memory import FaissMemory, measure_recall
from attnknn.memory.range_search import RangeMatches
from attnknn.memory.torch_memory import TorchMemory
from attnknn.records import Floats, Integers
from attnknn.registry import Option, register

N_PROBES = 200
WIDTHS = (64, 128, 256, 512)  # search widths to try; beyond them exact search is as good


@register("memory", "auto")
class AutoMemory(Memory):
    """Exact search for small memories, an approximate index with high recall for large ones.

    The choice is made by `remember`, and again when the number of entries has doubled.

    Parameters
    ----------
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='cpu'
        Device of exact search, see `TorchMemory`.
    exact_up_to : int, default=2**25
        Largest size (entries × columns) that is searched exactly. The default takes about five
        milliseconds for a single query on two cores, and one millisecond per query in a batch.
    recall : float, default=0.99
        Share of the nearest entries that an index must find to be chosen.
    n_neighbors : int, default=32
        Number of neighbors for which the recall is measured.
    random_state : int, default=0
        Seed of the choice of entries on which the recall is measured.

    Attributes
    ----------
    chosen_ : Memory
        The memory that is searched.
    reason_ : str
        What was chosen and why.

    Examples
    --------
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
        """Whether the chosen memory always finds the nearest entries."""
        return not hasattr(self, "chosen_") or self.chosen_.is_exact

    @property
    def n_bytes(self) -> int:
        """Size of the embeddings and of the index, in bytes."""
        return self.chosen_.n_bytes

    def build_index(self) -> None:
        n, width = len(self), self.vectors.width
        self.n_when_chosen_ = n
        self.chosen_: Memory = TorchMemory(device=self.device).restore(
            self.read(), self.metric_, self.center_
        )
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
        """Choose the first index with enough recall, trying ever larger search widths."""
        best = 0.0
        generator = np.random.default_rng(self.random_state)
        rows = generator.choice(len(self), size=min(N_PROBES, len(self)), replace=False)
        queries = self.vectors[rows]
        for kind in ("ivf", "hnsw"):
            index = FaissMemory(kind).restore(self.read(), self.metric_, self.center_)
            for width in WIDTHS:
                index.set_params(ef_search=width, n_probe=width // 4)
                recall = measure_recall(index, queries, self.n_neighbors, rows)
                best = max(best, recall)
                if recall >= self.recall:
                    self.chosen_ = index
                    self.reason_ = (
                        f"Search uses an index ({kind}) that finds {recall:.1%} of the "
                        f"{self.n_neighbors} nearest of {len(self):,} entries."
                    )
                    return
        self.reason_ = (
            f"Search is exact: the indexes find {best:.1%} of the {self.n_neighbors} nearest of "
            f"{len(self):,} entries, less than `recall={self.recall}`."
        )

    def extend_index(self, n_new: int) -> None:
        if len(self) > 2 * self.n_when_chosen_:
            self.build_index()
            return
        self.chosen_ = copy(self.chosen_)  # a copy of this memory may still use the old one
        self.chosen_.replace_entries(self.read())
        self.chosen_.extend_index(n_new)

    def shrink_index(self, positions: Integers) -> None:
        self.chosen_ = copy(self.chosen_)
        self.chosen_.replace_entries(self.read())
        self.chosen_.shrink_index(positions)

    def find_nearest(self, queries: Vectors, k: int, exclude: Integers | None) -> Ranking:
        return self.chosen_.find_nearest(queries, k, exclude)

    def range_search(self, queries: Vectors, radii: Floats) -> RangeMatches:
        return self.chosen_.range_search(queries, radii)

    def search_both(
        self, queries: Vectors, k: int, radii: Floats, exclude: Integers
    ) -> tuple[Ranking, RangeMatches]:
        return self.chosen_.search_both(queries, k, radii, exclude)
