"""Neighborhood attention compared with NATTEN, which has no CPU backward: `make bench-natten`.

NATTEN needs a separate environment. Its results in `results/vit.json` are replaced.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from typing import Any

import torch
from torch import nn

from benchmarks.vit.layers import DIM, K, neighborhood
from benchmarks.vit.timing import RESULTS, SIZES, record_bar, select_clock, time_forward

OURS = "NeighborhoodAttention1D"


def main() -> None:
    """Time both forward passes, interleaved, by the CPU time of one thread."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vit.natten", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    report = json.loads(RESULTS.read_text())
    add(report, *SIZES[1], options.repeats)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def add(report: dict[str, Any], n_images: int, n_tokens: int, repeats: int) -> None:
    """Replace the times and the bar in the report."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import natten
    theirs = f"NATTEN {natten.__version__}"
    layers = {
        theirs: natten.NeighborhoodAttention1D(DIM, 3, kernel_size=K).eval(),
        OURS: neighborhood().eval(),
    }
    found = forwards(layers, theirs, n_images, n_tokens, repeats)
    title = f"neighborhoods, {n_images} images of {n_tokens} tokens, 1 thread, processor time"
    report[title] = {
        name: {"forward": round(1e3 * statistics.median(seconds), 1)}
        for name, seconds in found.items()
    }
    for name, row in report[title].items():
        print(f"  {name:28s} {row['forward']:9.1f} ms")
    report["bars"] = [bar for bar in report["bars"] if " over NATTEN " not in bar["what"]]
    times = statistics.median(a / b for a, b in zip(found[theirs], found[OURS], strict=True))
    record_bar(report, f"{OURS} over {theirs}, forward, {title.partition(', ')[2]}", times, 5.0)


def forwards(
    layers: dict[str, nn.Module], theirs: str, n_images: int, n_tokens: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds of each, interleaved, after checking that outputs agree."""
    layers[theirs].load_state_dict(layers[OURS].state_dict())
    x = torch.randn(n_images, n_tokens, DIM)
    with torch.no_grad():
        torch.testing.assert_close(layers[OURS](x), layers[theirs](x), atol=1e-4, rtol=1e-4)
    found: dict[str, list[float]] = {name: [] for name in layers}
    for _ in range(repeats):
        for name, layer in layers.items():
            found[name].append(time_forward(layer, x, select_clock(1)))
    return found


if __name__ == "__main__":
    main()
