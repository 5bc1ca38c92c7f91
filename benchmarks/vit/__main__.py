"""Time and memory of nearest-neighbor attention, with bars: `make bench-vit`.

`make bench-natten` adds the comparison with NATTEN.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import torch

from benchmarks.search import machine
from benchmarks.vit.contention import measure_contended
from benchmarks.vit.layers import (
    KVT,
    LINEAR,
    MAKE,
    OURS,
    PLAIN,
    PLAIN_KVT,
    PLAIN_SAMPLED,
    SAMPLED,
    SDPA,
)
from benchmarks.vit.memory import can_measure, measure_peak
from benchmarks.vit.timing import (
    RESULTS,
    SIZES,
    measure_times,
    milliseconds,
    ratio,
    record_bar,
    select_clock,
)
from benchmarks.vit.waiting import add_waiting

BARS = (  # slow, fast, way, minimum speedup, at these sizes
    (PLAIN, OURS, "forward", 3.0, SIZES),
    (PLAIN, OURS, "both", 2.5, SIZES),
    (PLAIN_SAMPLED, SAMPLED, "forward", 12.0, SIZES),
    (PLAIN_SAMPLED, SAMPLED, "both", 8.0, SIZES),
    (LINEAR, SAMPLED, "forward", 0.8, SIZES),
    (SDPA, OURS, "both", 1.0, SIZES[1:]),
    (PLAIN_KVT, KVT, "both", 3.0, SIZES[1:]),
)
WAYS = {"forward": "forward", "both": "forward and backward"}


def main() -> None:
    """Measure everything, print it with the bars, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    sizes = ((2, 49), (1, 64)) if options.quick else SIZES
    repeats = 1 if options.quick else options.repeats
    report: dict[str, Any] = {"machine": machine(), "repeats": repeats, "bars": []}
    for threads in (1, os.cpu_count() or 1):
        time_layers(report, sizes, threads, repeats)
    measure_memory(report, (1, 64) if options.quick else (32, 1024))
    measure_contention(report, sizes[0], repeats)
    add_waiting(report, *sizes[0], repeats)
    if not options.quick:
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def time_layers(
    report: dict[str, Any], sizes: tuple[tuple[int, int], ...], threads: int, repeats: int
) -> None:
    """Time every layer at every size."""
    torch.set_num_threads(threads)
    kind = "1 thread, processor time" if threads == 1 else f"{threads} threads, wall time"
    for place, (n_images, n_tokens) in enumerate(sizes):
        found = measure_times(MAKE, n_images, n_tokens, repeats, select_clock(threads))
        title = f"{n_images} images of {n_tokens} tokens, {kind}"
        rows = report[title] = milliseconds(found)
        print(f"\n{title}")
        for name, row in rows.items():
            print(f"  {name:28s} {row['forward']:9.1f} ms {row['both']:9.1f} ms")
        for slow, fast, way, least, where in BARS:
            if SIZES[place] in where:
                value = ratio(found, slow, fast, way)
                record_bar(report, f"{fast} over {slow}, {WAYS[way]}, {title}", value, least)


def measure_memory(report: dict[str, Any], size: tuple[int, int]) -> None:
    """Compare the peak memory of a step with SDPA's."""
    if not can_measure():
        print("\nThis system does not record peak memory: not measured.")
        return
    names = (SDPA, PLAIN, OURS, PLAIN_SAMPLED, SAMPLED, PLAIN_KVT, KVT)
    peaks = {name: round(measure_peak(name, *size), 1) for name in names}
    title = f"peak memory of a step in MB, {size[0]} images of {size[1]} tokens"
    report[title] = {name: {"both": value} for name, value in peaks.items()}
    print(f"\n{title}")
    for name, value in peaks.items():
        print(f"  {name:28s} {value:9.1f} MB")
    record_bar(
        report, f"{OURS}: peak memory over {SDPA}'s", peaks[OURS] / peaks[SDPA], 1.1, most=True
    )


def measure_contention(report: dict[str, Any], size: tuple[int, int], repeats: int) -> None:
    """Measure with every core kept busy by another process."""
    print("\ncores taken by other processes")
    for policy, least in (("passive", 2.0), (None, 1.0)):
        found = measure_contended(policy, *size, repeats)
        for way, value in found.items():
            words = f"OMP_WAIT_POLICY={policy}" if policy else "waiting as OpenMP does"
            record_bar(
                report, f"contended, {words}: {OURS} over {PLAIN}, {WAYS[way]}", value, least
            )


if __name__ == "__main__":
    main()
