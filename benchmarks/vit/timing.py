"""Times of layers: forward, and forward with backward, all in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from benchmarks.vit.layers import DIM, made

Clock = Callable[[], float]
SIZES = ((32, 196), (8, 1024))


def times_of(
    names: Iterable[str], n_images: int, n_tokens: int, repeats: int, clock: Clock
) -> dict[str, dict[str, list[float]]]:
    """Seconds of `forward` and `both` of each layer; the first turn is not kept."""
    layers = {name: made(name) for name in names}
    x = torch.randn(n_images, n_tokens, DIM, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    found: dict[str, dict[str, list[float]]] = {n: {"forward": [], "both": []} for n in layers}
    for turn in range(repeats + 1):
        for name, layer in layers.items():
            seconds = {
                "forward": seconds_of_forward(layer, x, clock),
                "both": _both(layer, x, clock),
            }
            for way, value in seconds.items():
                if turn:
                    found[name][way].append(value)
    return found


def seconds_of_forward(layer: nn.Module, x: torch.Tensor, clock: Clock) -> float:
    """By the clock, without gradients."""
    with torch.no_grad():
        start = clock()
        layer(x)
        return clock() - start


def _both(layer: nn.Module, x: torch.Tensor, clock: Clock) -> float:
    start = clock()
    layer(x).sum().backward()
    return clock() - start


def clock_for(threads: int) -> Clock:
    """The processor's time of one thread; the wall's of several, which wait for each other."""
    return time.process_time if threads == 1 else time.perf_counter


def ratio(found: dict[str, Any], slow: str, fast: str, way: str) -> float:
    """How many times faster `fast` is: the median over turns."""
    pairs = zip(found[slow][way], found[fast][way], strict=True)
    return statistics.median(a / b for a, b in pairs)


def milliseconds(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Medians."""
    return {
        name: {way: round(1e3 * statistics.median(values), 1) for way, values in ways.items()}
        for name, ways in found.items()
    }
