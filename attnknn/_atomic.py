"""Changes of an object that are undone if they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def all_or_nothing(thing: object) -> Iterator[None]:
    """Context manager that restores the attributes of `thing` if an error is raised in it.

    >>> from types import SimpleNamespace
    >>> thing = SimpleNamespace(n=1)
    >>> with all_or_nothing(thing):
    ...     thing.n = 2
    ...     raise ValueError("stop")
    Traceback (most recent call last):
    ValueError: stop
    >>> thing.n
    1
    """
    before = thing.__dict__.copy()
    try:
        yield
    except BaseException:
        for name in thing.__dict__.keys() - before.keys():
            del thing.__dict__[name]
        thing.__dict__.update(before)  # never empty: other threads may be reading
        raise
