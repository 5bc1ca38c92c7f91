"""Seconds from one moment to the next."""

from __future__ import annotations

import time


class Clock:
    """Tells how long each part of some work took.

    >>> Clock().lap() >= 0
    True
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last call, or since the clock was made."""
        before, self._last = self._last, time.perf_counter()
        return self._last - before
