"""How learning rates move over a training."""

from __future__ import annotations

import math
from collections.abc import Callable


def warmup_and_cosine(n_steps: int, warmup: float) -> Callable[[int], float]:
    """A factor for the learning rate: up to one in a share of the steps, then down to zero.

    >>> factor = warmup_and_cosine(10, warmup=0.2)
    >>> [round(factor(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    n_rising = int(warmup * n_steps)

    def factor(step: int) -> float:
        if step < n_rising:
            return (step + 1) / (n_rising + 1)
        falling = min(1.0, (step - n_rising) / max(1, n_steps - n_rising))
        return 0.5 * (1 + math.cos(math.pi * falling))

    return factor
