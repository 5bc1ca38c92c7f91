"""One thread for small work: waking and waiting for a second costs more than it gives."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


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
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="openmp")
