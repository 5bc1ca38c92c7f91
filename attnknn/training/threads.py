"""One thread for small work, where waiting for a second costs more, or one for each share."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Done = TypeVar("Done")

SMALL = 1 << 22  # numbers in a tensor below which a second thread costs more than it gives


def one_thread_if(is_small: bool) -> AbstractContextManager[object]:
    """A context in which torch's operations of *this* thread run on one core, if `is_small`.

    OpenMP keeps the number per calling thread, so other threads of the user's process are left
    alone, which `torch.set_num_threads` would not do.

    >>> import torch
    >>> with one_thread_if(True):
    ...     torch.get_num_threads()
    1
    """
    if not is_small:
        return nullcontext()
    return _controller().limit(limits=1, user_api="openmp")


def in_shares(work: Callable[..., Done], *tensors: Tensor) -> list[Done]:
    """What `work` returns for each thread's share of the rows of `tensors`, without gradients.

    Threads that each do many operations meet once, at the end. Torch's own threads meet after
    every operation, which takes long when another process has one of their cores.

    >>> import torch
    >>> sum(in_shares(lambda rows: len(rows), torch.zeros(7)))
    7
    """
    import torch

    n_threads = min(torch.get_num_threads(), len(tensors[0]))
    if n_threads <= 1:
        return [work(*tensors)]

    def alone(*share: Tensor) -> Done:
        with one_thread_if(True), torch.no_grad():
            return work(*share)

    shares = list(zip(*(tensor.tensor_split(n_threads) for tensor in tensors), strict=True))
    others = [_helpers(n_threads - 1).submit(work, *share) for share in shares[1:]]
    try:
        first = alone(*shares[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


@lru_cache(maxsize=1)
def _helpers(n: int) -> ThreadPoolExecutor:
    """Threads that stay: a new one first has to get its memory, which small work notices."""
    return ThreadPoolExecutor(n, "attnknn-share", initializer=_work_alone)


def _work_alone() -> None:
    import torch

    torch.get_num_threads()  # sets the number of a new thread, which is limited after that
    one_thread_if(True)
    torch.set_grad_enabled(False)


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


@lru_cache(maxsize=1)
def _controller() -> Any:
    """What knows the loaded libraries; finding them takes longer than a small search."""
    import torch  # noqa: F401  (its OpenMP must be loaded before libraries are looked for)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
