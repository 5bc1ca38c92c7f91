"""Times of layers, forward and with backward, and the bars they are held to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.vit.layers import DIM, build_layer

Clock = Callable[[], float]
RESULTS = Path(__file__).parents[1] / "results" / "vit.json"
SIZES = ((32, 196), (8, 1024))


def measure_times(
    names: Iterable[str], n_images: int, n_tokens: int, repeats: int, clock: Clock
) -> dict[str, dict[str, list[float]]]:
    """Seconds of `forward` and `both` of each layer, interleaved; the first round is a warm-up."""
    layers = {name: build_layer(name) for name in names}
    x = torch.randn(n_images, n_tokens, DIM, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    found: dict[str, dict[str, list[float]]] = {n: {"forward": [], "both": []} for n in layers}
    for turn in range(repeats + 1):
        for name, layer in layers.items():
            seconds = {
                "forward": time_forward(layer, x, clock),
                "both": _both(layer, x, clock),
            }
            for way, value in seconds.items():
                if turn:
                    found[name][way].append(value)
    return found


def time_forward(layer: nn.Module, x: torch.Tensor, clock: Clock) -> float:
    """Seconds of a forward pass without gradients."""
    with torch.no_grad():
        start = clock()
        layer(x)
        return clock() - start


def _both(layer: nn.Module, x: torch.Tensor, clock: Clock) -> float:
    start = clock()
    layer(x).sum().backward()
    return clock() - start


def select_clock(threads: int) -> Clock:
    """CPU time for one thread, wall time for several."""
    return time.process_time if threads == 1 else time.perf_counter


def ratio(found: dict[str, Any], slow: str, fast: str, way: str) -> float:
    """How many times faster `fast` is: the median over rounds."""
    pairs = zip(found[slow][way], found[fast][way], strict=True)
    return statistics.median(a / b for a, b in pairs)


def milliseconds(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Median times in milliseconds."""
    return {
        name: {way: round(1e3 * statistics.median(values), 1) for way, values in ways.items()}
        for name, ways in found.items()
    }


def record_bar(
    report: dict[str, Any], what: str, value: float, bound: float, *, most: bool = False
) -> None:
    """Print a measurement with its bound and add it to the report."""
    is_met = value <= bound if most else value >= bound
    sign = "≤" if most else "≥"
    print(f"  {'met    ' if is_met else 'NOT MET'}  {what}: {value:.2f} ({sign} {bound:g})")
    report["bars"].append(
        {"what": what, "measured": round(value, 3), "bound": bound, "is_met": is_met}
    )
