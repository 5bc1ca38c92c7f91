"""One thread for small work: waking and waiting for a second costs more than it gives."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

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


@lru_cache(maxsize=1)
def _controller() -> Any:
    """What knows the loaded libraries; finding them takes longer than a small search."""
    import torch  # noqa: F401  (its OpenMP must be loaded before libraries are looked for)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
