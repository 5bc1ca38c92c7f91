"""Times while other processes keep all cores busy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.vit.layers import OURS, PLAIN
from benchmarks.vit.timing import measure_times, ratio, select_clock


def measure_contended(
    policy: str | None, n_images: int, n_tokens: int, repeats: int
) -> dict[str, float]:
    """Speedup over the plain formulation, with one busy process per core.

    Parameters
    ----------
    policy
        How threads wait (`OMP_WAIT_POLICY`); None is OpenMP's default.
    """
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    arguments = json.dumps([n_images, n_tokens, repeats])
    command = [sys.executable, "-m", "benchmarks.vit.contention", arguments]
    with busy(os.cpu_count() or 1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def busy(n: int) -> Iterator[None]:
    """Run n processes that each keep a core busy."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _measure(n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    threads = torch.get_num_threads()
    found = measure_times((PLAIN, OURS), n_images, n_tokens, repeats, select_clock(max(threads, 2)))
    return {way: ratio(found, PLAIN, OURS, way) for way in ("forward", "both")}


if __name__ == "__main__":
    print(json.dumps(_measure(*json.loads(sys.argv[1]))))
