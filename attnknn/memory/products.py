"""Products of queries and entries, by the way that is fastest for so many queries."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from attnknn.memory.preparation import Vectors

if TYPE_CHECKING:
    from torch import Tensor

FEW = 32  # queries below which a product reads faster with the entries as its rows
PART = 1 << 21  # numbers that keep one thread busy for longer than it takes to start one


def multiply(queries: Tensor, vectors: Tensor, penalties: Tensor | None, out: Tensor) -> None:
    """Write queries (B, D) times vectors (N, D), less the penalties (N,), to `out` (B, N).

    >>> import torch
    >>> out = torch.empty(1, 2)
    >>> multiply(torch.ones(1, 3), torch.ones(2, 3), torch.tensor([0.0, 1.0]), out)
    >>> out.tolist()
    [[3.0, 2.0]]
    """
    import torch

    if len(queries) == 1 and queries.device.type == "cpu":
        _one_by_all(queries[0].numpy(), vectors.numpy(), out[0].numpy(), torch.get_num_threads())
        if penalties is not None:
            np.subtract(out[0].numpy(), penalties.numpy(), out=out[0].numpy())
    elif len(queries) < FEW:
        out.copy_(torch.mm(vectors, queries.T).T)
        if penalties is not None:
            out.sub_(penalties)
    elif penalties is None:
        torch.mm(queries, vectors.T, out=out)
    else:
        torch.addmm(penalties, queries, vectors.T, beta=-1, out=out)


def _one_by_all(query: Vectors, vectors: Vectors, out: Vectors, n_threads: int) -> None:
    """One query is bound by reading the entries: plain threads, which wait without spinning.

    A thread of OpenMP that waits for one without a core costs more than the whole search.
    """
    n_parts = max(1, min(n_threads, vectors.size // PART))
    step = -(-len(vectors) // n_parts)
    parts = [slice(start, start + step) for start in range(0, len(vectors), step)]
    others = [Thread(target=_dot, args=(vectors[part], query, out[part])) for part in parts[1:]]
    for thread in others:
        thread.start()
    _dot(vectors[parts[0]], query, out[parts[0]])
    for thread in others:
        thread.join()


def _dot(vectors: Vectors, query: Vectors, out: Vectors) -> None:
    if hasattr(np, "vecdot"):  # NumPy 2
        np.vecdot(vectors, query, out=out)
    else:
        np.einsum("nd,d->n", vectors, query, out=out)
