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
    >>> out = torch.empty(1, 2)
    >>> multiply(torch.ones(1, 3), torch.ones(2, 3), out)
    >>> out.tolist()
    [[3.0, 3.0]]
    """
    import torch

    if len(queries) == 1 and queries.device.type == "cpu":
        query, entries, products = queries[0].numpy(), vectors.numpy(), out[0].numpy()
        share_rows(
            lambda part: _dot(entries[part], query, products[part]),
            len(entries),
            entries.size,
            torch.get_num_threads(),
        )
    elif len(queries) < FEW:
        out.copy_(torch.mm(vectors, queries.T).T)
    else:
        torch.mm(queries, vectors.T, out=out)


def _dot(vectors: Vectors, query: Vectors, out: Vectors) -> None:
    if hasattr(np, "vecdot"):  # NumPy 2
        np.vecdot(vectors, query, out=out)
    else:
        np.einsum("nd,d->n", vectors, query, out=out)
