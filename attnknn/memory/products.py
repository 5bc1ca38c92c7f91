"""Products of queries and entries, by the way that is fastest for so many queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnknn.memory.preparation import Vectors
from attnknn.memory.threads import share_rows

if TYPE_CHECKING:
    from torch import Tensor

FEW = 32  # queries below which a product reads faster with the entries as its rows


def multiply(queries: Tensor, vectors: Tensor, out: Tensor) -> None:
    """Write queries (B, D) times vectors (N, D) to `out` (B, N).

    >>> import torch
    >>> out = torch.empty(2, 1)
    >>> multiply(torch.ones(2, 3), torch.ones(1, 3), out)
    >>> out.tolist()
    [[3.0], [3.0]]
    """
    import torch

    if len(queries) < FEW:
        out.copy_(torch.mm(vectors, queries.T).T)
    else:
        torch.mm(queries, vectors.T, out=out)


def dot(vectors: Vectors, query: Vectors, n_threads: int) -> Vectors:
    """Vectors (N, D) times one query (D,), which takes as long as reading the vectors.

    >>> dot(np.ones((2, 3), dtype=np.float32), np.ones(3, dtype=np.float32), 1).tolist()
    [3.0, 3.0]
    """
    out = np.empty(len(vectors), dtype=np.float32)

    def work(part: slice) -> None:
        if hasattr(np, "vecdot"):  # NumPy 2
            np.vecdot(vectors[part], query, out=out[part])
        else:
            np.einsum("nd,d->n", vectors[part], query, out=out[part])

    share_rows(work, len(vectors), vectors.size, n_threads)
    return out
