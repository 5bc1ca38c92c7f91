"""Reads batches ahead in threads, so that a step does not wait for files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Batch = TypeVar("Batch")
Found = TypeVar("Found")
AHEAD = 2  # batches that each worker may have read before they are asked for


def read_ahead(
    read: Callable[[Batch], Found], batches: Iterable[Batch], workers: int
) -> Iterator[Found]:
    """What `read` gives for each of the batches, in their order; an error comes at its batch.

    Parameters
    ----------
    workers : threads that read; 0 reads each batch when it is asked for

    >>> list(read_ahead(str.upper, ["a", "b"], workers=2))
    ['A', 'B']
    """
    if not workers:
        yield from map(read, batches)
        return
    coming = iter(batches)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="read-ahead")
    try:
        waiting: deque[Future[Found]] = deque(
            pool.submit(read, batch) for batch in islice(coming, AHEAD * workers)
        )
        while waiting:
            found = waiting.popleft().result()
            waiting.extend(pool.submit(read, batch) for batch in islice(coming, 1))
            yield found
    finally:
        pool.shutdown(cancel_futures=True)
