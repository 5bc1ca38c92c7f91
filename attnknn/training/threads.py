"""Threads: one for small tensors, one per share of the rows for large ones, some to read ahead."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Batch = TypeVar("Batch")
Output = TypeVar("Output")

SMALL = 1 << 22  # numbers in a tensor below which a second thread costs more than it gains
SMALL_TABLE = 1 << 18  # numbers in a table below which the same holds for all work on it
AHEAD = 2  # batches per worker that are read before they are needed


def n_threads() -> int:
    """Number of threads for large work: torch's if it is imported, else what it would be.

    >>> n_threads() >= 1
    True
    """
    if "torch" in sys.modules:
        import torch  # waits while another thread imports it

        return int(torch.get_num_threads())
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(chosen)) if chosen.isdecimal() else available_cores()


def available_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_thread_if(is_small: bool) -> AbstractContextManager[object]:
    """A context in which torch's operations of *this* thread run on one core, if `is_small`.

    OpenMP keeps the number of threads per calling thread, so other threads of the process are not
    affected, as they would be by `torch.set_num_threads`.

    >>> import torch
    >>> with one_thread_if(True):
    ...     torch.get_num_threads()
    1
    """
    if not is_small:
        return nullcontext()
    return _controller().limit(limits=1, user_api="openmp")


class _OneBlasThread:
    """Counts the blocks that ask for one thread: the number of threads is one of the process."""

    def __init__(self) -> None:
        self._lock, self._n_blocks = Lock(), 0
        self._usual: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_blocks:
                libraries = _blas_libraries("scipy.optimize" in sys.modules)
                self._usual = [(library, library.get_num_threads()) for library in libraries]
                for library in libraries:
                    library.set_num_threads(1)
            self._n_blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_blocks -= 1
            if not self._n_blocks:
                for library, n_usual in self._usual:
                    library.set_num_threads(n_usual)


_one_blas_thread = _OneBlasThread()


def one_blas_thread_if(is_small: bool) -> AbstractContextManager[None]:
    """A context in which the linear algebra of NumPy and SciPy runs on one core, if `is_small`.

    Threads of OpenBLAS spin while they wait for each other. For small matrices that costs several
    times the work, and much more if another process occupies a core.

    >>> import numpy as np
    >>> with one_blas_thread_if(True):
    ...     np.eye(2) @ np.ones(2)
    array([1., 1.])
    """
    return _one_blas_thread if is_small else nullcontext()


def one_openmp_thread_if(is_small: bool) -> AbstractContextManager[object]:
    """A context in which OpenMP of loaded libraries runs on one core in this thread, if `is_small`.

    For scikit-learn's boosted trees: their threads spin while they wait for each other, which on
    small tables takes several times as long as the work. `one_thread_if` is the same for torch.

    >>> with one_openmp_thread_if(True):
    ...     pass
    """
    if not is_small:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="openmp")
    return limits


def in_shares(work: Callable[..., Output], *tensors: Tensor) -> list[Output]:
    """Apply `work` to each thread's share of the rows of `tensors`, without gradients.

    Under `torch.inference_mode()` all threads work in inference mode: outside of it, they could not
    write into the tensors that the caller made.

    These threads synchronize once, at the end. Torch's own threads synchronize after every
    operation, which is slow when another process occupies one of their cores.

    >>> import torch
    >>> sum(in_shares(lambda rows: len(rows), torch.zeros(7)))
    7
    """
    import torch

    n_threads = min(torch.get_num_threads(), len(tensors[0]))
    if n_threads <= 1:
        return [work(*tensors)]

    shares = list(zip(*(tensor.tensor_split(n_threads) for tensor in tensors), strict=True))
    is_inference = torch.is_inference_mode_enabled()
    help_with = _in_inference_mode(work) if is_inference else work
    others = [_helpers(n_threads - 1).submit(help_with, *share) for share in shares[1:]]
    try:
        with one_thread_if(True), torch.no_grad():
            first = work(*shares[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


def _in_inference_mode(work: Callable[..., Output]) -> Callable[..., Output]:
    """`work` in the inference mode of torch, which is a state of each thread."""
    import torch

    def run(*tensors: Tensor) -> Output:
        with torch.inference_mode():
            return work(*tensors)

    return run


def read_ahead(
    read: Callable[[Batch], Output], batches: Iterable[Batch], workers: int
) -> Iterator[Output]:
    """Results of `read` for each batch, in order; an error is raised at its batch.

    `workers` threads read ahead; with 0 each batch is read when it is needed.

    >>> list(read_ahead(str.upper, ["a", "b"], workers=2))
    ['A', 'B']
    """
    if not workers:
        yield from map(read, batches)
        return
    remaining = iter(batches)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="read-ahead")
    try:
        waiting: deque[Future[Output]] = deque(
            pool.submit(read, batch) for batch in islice(remaining, AHEAD * workers)
        )
        while waiting:
            output = waiting.popleft().result()
            waiting.extend(pool.submit(read, batch) for batch in islice(remaining, 1))
            yield output
    finally:
        pool.shutdown(cancel_futures=True)


@lru_cache(maxsize=1)
def _helpers(n: int) -> ThreadPoolExecutor:
    """Persistent threads: allocating the memory of a new one would slow down small work."""
    return ThreadPoolExecutor(n, "attnknn-share", initializer=_work_alone)


def _work_alone() -> None:
    import torch

    torch.get_num_threads()  # initializes the number for a new thread, which is limited next
    one_thread_if(True)
    torch.set_grad_enabled(False)


if hasattr(os, "register_at_fork"):  # a forked process does not inherit threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


@lru_cache
def _blas_libraries(has_scipy: bool) -> list[Any]:  # noqa: ARG001  (SciPy loads a second one)
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@lru_cache(maxsize=1)
def _controller() -> Any:
    """Controller of the loaded libraries; finding them takes longer than a small search."""
    import torch  # noqa: F401  (its OpenMP must be loaded before libraries are looked for)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
