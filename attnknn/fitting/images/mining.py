"""What a search of the whole memory shows: hard negatives, and rows whose neighbors disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnknn.leave_one_out import judge
from attnknn.memory.entries import make_entries
from attnknn.memory.torch_memory import TorchMemory
from attnknn.records import Integers

N_SEARCHED = 64  # nearest rows among which negatives are hard
N_NEIGHBORS = 16  # nearest rows that agree or disagree with a label


class Mine:
    """The memory of an epoch: all trained rows embedded, their neighbors searched.

    Parameters
    ----------
    n_negatives : most hard negatives per row; where fewer rows of other classes are near, fewer
    """

    def __init__(self, n_negatives: int) -> None:
        self.n_negatives = n_negatives
        self.embeddings: Tensor | None = None  # (n, D)
        self.negatives = torch.zeros(0, n_negatives, dtype=torch.int64)  # (n, M) places of rows
        self.is_negative = torch.zeros(0, n_negatives, dtype=torch.bool)
        self.disagreement = torch.zeros(0)  # (n,) share of the nearest with another label

    def refresh(
        self, embeddings: NDArray[np.float32], labels: Integers, groups: Integers, n_classes: int
    ) -> None:
        """Search the neighbors of all rows again; rows of one group are not neighbors."""
        entries = make_entries(embeddings, labels, groups=groups)
        memory = TorchMemory().remember(entries, "euclidean")
        counts = np.bincount(labels, minlength=n_classes)
        neighbors = judge(memory, counts, N_SEARCHED).batch.neighbors
        is_other = (neighbors.labels != labels[:, None]) & neighbors.mask
        nearest_first = np.argsort(~is_other, axis=1, kind="stable")[:, : self.n_negatives]
        self.embeddings = torch.from_numpy(embeddings)
        self.negatives = torch.from_numpy(_taken(neighbors.positions, nearest_first))
        self.is_negative = torch.from_numpy(_taken(is_other, nearest_first))
        n_found = np.maximum(neighbors.mask[:, :N_NEIGHBORS].sum(axis=1), 1)
        share = is_other[:, :N_NEIGHBORS].sum(axis=1) / n_found
        self.disagreement = torch.from_numpy(share.astype(np.float32))

    def draw_boundary(self, n_rows: int, generator: torch.Generator) -> Tensor | None:
        """Places of `n_rows` rows, the more likely the more their neighbors disagree.

        None if all neighbors agree: then there is no boundary.
        """
        if not bool((self.disagreement > 0).any()):
            return None
        return torch.multinomial(self.disagreement, n_rows, replacement=True, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)


def _taken(values: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    return np.take_along_axis(values, places, axis=1)
