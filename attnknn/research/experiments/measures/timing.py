"""Times of several ways to do the same, taken in turns so that a busy machine is fair to all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def medians(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of each way, each called once before and then `repeats` times in turns."""
    for way in ways.values():
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - started)
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}
