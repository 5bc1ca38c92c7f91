"""Work on many rows, shared among plain threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache

PART = 1 << 20  # numbers that keep a thread busy for longer than it takes to start it


def share_rows(work: Callable[[slice], object], n_rows: int, n_numbers: int, n_most: int) -> None:
    """Call `work` on slices that cover the rows, at once where there is enough to do.

    NumPy lets other threads run while it computes. These wait without spinning, where a thread
    of OpenMP that waits for one without a core can cost more than the whole search.

    >>> seen = []
    >>> share_rows(seen.append, n_rows=3, n_numbers=10, n_most=2)
    >>> seen
    [slice(0, 3, None)]
    """
    n_parts = max(1, min(n_most, n_rows, n_numbers // PART))
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
    """Threads that wait for work: starting them takes as long as a small search.

    `process` makes a forked process start its own, since threads do not survive a fork.
    """
    return ThreadPoolExecutor(n_threads, thread_name_prefix="attnknn")
