"""Matrix products and the selection of each row's largest numbers, on several threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.memory.distances import Vectors
from attnknn.records import Booleans, Integers
from attnknn.training.threads import one_blas_thread_if

if TYPE_CHECKING:
    from torch import Tensor

MAX_GROUP = 128  # a row that is searched by groups has a multiple of this many columns
MAX_TIES = 4  # a row keeps at most this many times m columns, however many are tied
FEW_QUERIES = 32  # below this a product is faster with the entries as its rows
SMALL_PRODUCT = 1 << 26  # multiplications that take NumPy milliseconds
MIN_PART = 1 << 20  # numbers per thread: fewer take longer to hand over than to compute


@dataclass(frozen=True)
class Candidates:
    """The columns with the largest numbers of each row, and an upper bound of the others.

    Parameters
    ----------
    columns : (B, M), -1 in unused places
    values : (B, M) the numbers in these columns, minus infinity in unused places
    rest : (B,) upper bound of the other numbers; minus infinity without others
    """

    columns: Integers
    values: Vectors
    rest: Vectors


def largest(values: Vectors, m: int) -> Candidates:
    """At least the `m` largest finite numbers of each row, on one thread.

    The `m`-th largest of the maxima of groups is at most the `m`-th largest number. So all numbers
    above it are taken, and they are in the groups whose maximum is above it. A group is a column
    of the row folded into (size, n_groups), so that the maxima are taken of long rows.

    >>> found = largest(np.arange(1024, dtype=np.float32)[None], 2)
    >>> found.columns.tolist(), found.rest.tolist()
    ([[1022, 1023]], [1022.0])
    """
    size = group_size(values.shape[1], m)
    groups = values.reshape(len(values), size, -1)
    maxima = groups.max(axis=1)  # (B, n_groups)
    n_groups = maxima.shape[1]
    place = max(0, n_groups - m)
    level = np.partition(maxima, place, axis=1)[:, place] if m <= n_groups else _nothing(values)
    hot = (maxima >= level[:, None]) & (maxima > -np.inf)
    is_crowded = _thinned(hot, MAX_TIES * m)
    row, group = np.nonzero(hot)
    inside = groups[row, :, group]  # (P, size)
    pair, member = np.nonzero((inside >= level[row, None]) & (inside > -np.inf))
    found = _packed(row[pair], member * n_groups + group[pair], inside[pair, member], len(values))
    if found.columns.shape[1] > MAX_TIES * m:
        is_crowded |= found.columns[:, MAX_TIES * m] >= 0
    rest = np.where(is_crowded, np.float32(np.inf), level)
    return Candidates(found.columns[:, : MAX_TIES * m], found.values[:, : MAX_TIES * m], rest)


def largest_of_one(values: Vectors, m: int) -> Candidates:
    """`largest` for a single row (N,)."""
    size = group_size(padded(len(values)), m)
    n_groups = len(values) // size
    whole, remainder = values[: n_groups * size], values[n_groups * size :]
    maxima = np.concatenate([whole.reshape(size, n_groups).max(axis=0), remainder])
    place = len(maxima) - m
    level = np.partition(maxima, place)[place] if place >= 0 else np.float32(-np.inf)
    columns = np.flatnonzero((values >= level) & (values > -np.inf))
    rest = level if len(columns) <= MAX_TIES * m else np.float32(np.inf)
    columns = columns[None, : MAX_TIES * m]
    return Candidates(columns, values[columns], np.array([rest], dtype=np.float32))


def largest_on_device(values: Tensor, m: int) -> Candidates:
    """Exactly the `m` largest numbers of each row, on the device that holds them."""
    top, columns = values.topk(min(m, values.shape[1]), sorted=False)
    found, rest = top.cpu().numpy(), top.amin(dim=1).cpu().numpy()
    return Candidates(np.where(found > -np.inf, columns.cpu().numpy(), -1), found, rest)


def merged(parts: list[Candidates], m: int) -> Candidates:
    """Candidates of rows whose columns were searched in several parts."""
    if len(parts) == 1:
        return parts[0]
    columns = np.concatenate([part.columns for part in parts], axis=1)
    best = largest(np.concatenate([part.values for part in parts], axis=1), m)
    chosen = np.take_along_axis(columns, np.maximum(best.columns, 0), axis=1)
    rest = np.max([best.rest, *(part.rest for part in parts)], axis=0)
    return Candidates(np.where(best.columns < 0, -1, chosen), best.values, rest)


def stacked(parts: list[Candidates]) -> Candidates:
    """Candidates of several sets of rows, one below the other."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.columns.shape[1] for part in parts)

    def filled(array: NDArray[Any], filling: float) -> NDArray[Any]:
        missing = ((0, 0), (0, width - array.shape[1]))
        return np.pad(array, missing, constant_values=filling)

    return Candidates(
        np.concatenate([filled(part.columns, -1) for part in parts]),
        np.concatenate([filled(part.values, -np.inf) for part in parts]),
        np.concatenate([part.rest for part in parts]),
    )


def group_size(width: int, m: int) -> int:
    """Group size at which both selections cost about the same; 1 where groups do not pay."""
    size = 1 << round(math.log2(max(1.0, math.sqrt(width / m))))
    return 1 if size < 4 or width % MAX_GROUP else min(size, MAX_GROUP)


def padded(width: int) -> int:
    """`width` rounded up to whole groups."""
    return -(-width // MAX_GROUP) * MAX_GROUP


def _nothing(values: Vectors) -> Vectors:
    return np.full(len(values), -np.inf, dtype=np.float32)


def _thinned(hot: Booleans, most: int) -> Booleans:
    """Keep the first `most` of each row, in place; return which rows had more."""
    is_crowded = hot.sum(axis=1) > most
    if is_crowded.any():
        hot[is_crowded] &= np.cumsum(hot[is_crowded], axis=1) <= most
    return np.asarray(is_crowded)


def _packed(row: Integers, column: Integers, value: Vectors, n_rows: int) -> Candidates:
    """Pairs (row, column), sorted by row, as one array row each."""
    counts = np.bincount(row, minlength=n_rows)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.full((n_rows, counts.max(initial=0)), -1, dtype=np.int64)
    values = np.full(columns.shape, -np.inf, dtype=np.float32)
    columns[row, slot], values[row, slot] = column, value
    return Candidates(columns, values, _nothing(columns))


def multiply(queries: Any, vectors: Any, out: Any) -> None:
    """Write queries (B, D) times vectors (N, D) to `out` (B, N): all arrays, or all tensors.

    Small products of arrays are NumPy's, so that they need no torch, which takes seconds to import.

    >>> out = np.empty((2, 1), dtype=np.float32)
    >>> multiply(np.ones((2, 3), np.float32), np.ones((1, 3), np.float32), out)
    >>> out.tolist()
    [[3.0], [3.0]]
    """
    if isinstance(out, np.ndarray) and out.size * queries.shape[1] <= SMALL_PRODUCT:
        with one_blas_thread_if(True):
            np.matmul(queries, vectors.T, out=out)
        return
    import torch

    queries, vectors, out = (torch.as_tensor(numbers) for numbers in (queries, vectors, out))
    if len(queries) < FEW_QUERIES:
        out.copy_(torch.mm(vectors, queries.T).T)
    else:
        torch.mm(queries, vectors.T, out=out)


def dot(vectors: Vectors, query: Vectors, n_threads: int) -> Vectors:
    """Vectors (N, D) times one query (D,), at the speed of reading the vectors.

    BLAS is faster where one thread is enough; its threads wait for each other by spinning.

    >>> dot(np.ones((2, 3), dtype=np.float32), np.ones(3, dtype=np.float32), 1).tolist()
    [3.0, 3.0]
    """
    if vectors.size < MIN_PART:
        with one_blas_thread_if(True):
            return np.asarray(vectors @ query)
    out = np.empty(len(vectors), dtype=np.float32)

    def work(part: slice) -> None:
        if hasattr(np, "vecdot"):  # NumPy 2
            np.vecdot(vectors[part], query, out=out[part])
        else:
            np.einsum("nd,d->n", vectors[part], query, out=out[part])

    share_rows(work, len(vectors), vectors.size, n_threads)
    return out


def share_rows(
    work: Callable[[slice], object], n_rows: int, n_numbers: int, max_threads: int
) -> None:
    """Call `work` on slices that cover the rows, in parallel threads if there is enough to do.

    NumPy releases the GIL while it computes. These threads wait without spinning; an OpenMP
    thread that waits for another one without a core can cost more than the whole search.

    >>> seen = []
    >>> share_rows(seen.append, n_rows=3, n_numbers=10, max_threads=2)
    >>> seen
    [slice(0, 3, None)]
    """
    n_parts = max(1, min(max_threads, n_rows, n_numbers // MIN_PART))
    step = -(-n_rows // n_parts)
    parts = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
    if len(parts) == 1:
        work(parts[0])
        return
    pool = _pool(len(parts) - 1, os.getpid())
    others = [pool.submit(work, part) for part in parts[1:]]
    try:
        work(parts[0])
    finally:
        wait(others)  # they write into arrays of the caller
    for other in others:
        other.result()


@lru_cache(maxsize=4)
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads that are kept: starting them takes as long as a small search.

    `process` makes a forked process start its own, since threads do not survive a fork.
    """
    return ThreadPoolExecutor(n_threads, thread_name_prefix="attnknn")
